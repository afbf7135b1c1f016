from __future__ import annotations

import pytest

from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from deployments.openai_api.tokenizer import ApiTokenizer
from tests.unit.deployments.openai_api.scripted import Api, ScriptedBackend


@pytest.fixture(scope="session")
def tokenizer() -> ApiTokenizer:
    return ApiTokenizer.load(resolve_target(DEFAULT_TARGET))


@pytest.fixture(scope="session")
def shared_api(tokenizer: ApiTokenizer) -> Api:
    return Api(ScriptedBackend(), tokenizer)


@pytest.fixture
def api(shared_api: Api) -> Api:
    shared_api.backend.reset()
    return shared_api
