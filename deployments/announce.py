"""Says in the console, whenever a verifier has started, that and how the server can be tried."""

from __future__ import annotations

import asyncio
import logging
import sys

from ray import serve
from ray.serve.schema import ApplicationStatus

from deployments.config import AppArgs

logger = logging.getLogger("ray.serve")

_POLL_S = 0.3


def ready_line(url: str, model: str) -> str:
    """Where the server is, with a command and a program to try it; one line."""
    body = (
        f'{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello!"}}], '
        '"temperature": 0}'
    )
    return (
        f"Ready: {url}  Try it:  curl {url}/v1/chat/completions "
        f"-H 'content-type: application/json' -d '{body}'   or in Python:  "
        f'openai.OpenAI(base_url="{url}/v1", api_key="none").chat.completions.create('
        f'model="{model}", messages=[{{"role": "user", "content": "Hello!"}}], temperature=0)'
    )


async def announce(args: AppArgs) -> None:
    """Waits until every deployment of this application runs, then prints the ready line."""
    name = serve.get_replica_context().app_name
    while True:
        if await asyncio.to_thread(_is_running, name):
            break
        await asyncio.sleep(_POLL_S)
    sys.stdout.write(ready_line(_url(), args.served_model_name or args.target) + "\n")
    sys.stdout.flush()


def _is_running(name: str) -> bool:
    application = serve.status().applications.get(name)
    return application is not None and application.status == ApplicationStatus.RUNNING


def _url() -> str:
    from ray.serve.context import _get_global_client

    client = _get_global_client()
    assert client is not None, "a replica is connected to its controller"
    options = client.http_config
    return f"http://{options.host}:{options.port}{options.root_path}"
