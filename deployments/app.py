"""The application: which deployments there are and what each of them gets.

`serve run serve_config.yaml` calls `build` with the file's `args`, typed by its annotation: Serve
reads that as it stands, so annotations in this file must not be strings.
"""

from typing import Any

from ray import serve
from ray.serve import Application

from deployments.checkpoints import check
from deployments.config import AppArgs
from deployments.corrector import Corrector
from deployments.drafter import Drafter
from deployments.openai_api.settings import HttpSettings
from deployments.pipeline.addresses import ApplicationKey
from deployments.router import Router
from deployments.verifier import Verifier

# Cores reserved per replica; together they fit a machine with two. A config file's `deployments`
# section raises them where there are more.
_NUM_CPUS = {"Router": 0.2, "Verifier": 1.0, "Drafter": 0.5, "Corrector": 0.2}
# A context of 16 requests x 2,048 rows x 4,096 bfloat16 values is 256 MiB; Ray's limit is 4 MiB.
_MAX_MESSAGE_BYTES = 512 * 2**20
# Serve's own limit on requests is out of the way: the engine queues, and refuses with a 429.
_MAX_ONGOING_REQUESTS = 10_000


def build(args: AppArgs) -> Application:
    """Binds the deployments of `args.topology`.

    Raises:
        CheckpointError: a model folder is missing or incomplete.
        ConfigError: arguments that do not fit the checkpoints.
    """
    checked = check(args)
    args = checked.args
    has = args.deployments
    # Replicas learn the key with their arguments, which travel by Serve's own control plane.
    key = ApplicationKey.create() if args.transport == "socket" else None
    drafter = None
    if "Drafter" in has:
        corrector = None
        if "Corrector" in has:
            options = _options("Corrector", args.corrector_threads)
            corrector = serve.deployment(**options)(Corrector).bind(args, key)
        options = _options("Drafter", args.drafter_threads)
        drafter = serve.deployment(**options)(Drafter).bind(args, corrector, key)
    # A replica that stops lets its requests finish.
    longest_s = args.request_timeout_s + 10.0
    options = _options("Verifier", args.verifier_threads, longest_s)
    verifier = serve.deployment(**options)(Verifier).bind(args, drafter, key)
    settings = HttpSettings(request_timeout_s=args.request_timeout_s)
    options = _options("Router", 1, longest_s)
    return serve.deployment(**options)(Router).bind(
        verifier, checked.facts, str(checked.target_folder), settings
    )


def _options(name: str, num_threads: int, longest_request_s: float = 10.0) -> dict[str, Any]:
    """What every deployment sets.

    The environment has to be there before torch is imported. A waiting OpenMP thread spins for
    microseconds only: long spinning starves the other processes, none makes every small product
    wait for a thread to wake up (docs/decisions/0002-waiting-threads.md).
    """
    environment = {
        "OMP_NUM_THREADS": str(num_threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "4000",
        "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(_MAX_MESSAGE_BYTES),
    }
    return {
        "name": name,
        "max_ongoing_requests": _MAX_ONGOING_REQUESTS,
        "graceful_shutdown_timeout_s": longest_request_s,
        "graceful_shutdown_wait_loop_s": 0.5,
        "health_check_period_s": 5.0,
        # One line per request at the Router, not one per round at the others.
        "logging_config": {"enable_access_log": name == "Router"},
        "ray_actor_options": {
            "num_cpus": _NUM_CPUS[name],
            "runtime_env": {"env_vars": environment},
        },
    }
