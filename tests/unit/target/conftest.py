from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from dcoco_core.target.folder import DEFAULT_TARGET, resolve_target
from tests.unit.target.tiny_models import SIZES, save_tiny


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A tiny Llama's folder and the transformers model it was saved from."""
    folder = tmp_path_factory.mktemp("tiny-llama")
    return folder, save_tiny(LlamaConfig(**SIZES, num_key_value_heads=2), folder)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default target; prepared on first use."""
    return resolve_target(DEFAULT_TARGET)
