"""Who may import whom: the import contracts, and what must load without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.repository import ROOT


def test_import_contracts_hold() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run(
        [lint_imports, "--no-cache", "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    "module",
    [
        "dcoco_core.types",
        "dcoco_core.errors",
        "dcoco_core.protocols",
        "dcoco_core.registry",
        "deployments.router",
    ],
)
def test_loads_without_torch(module: str) -> None:
    """In a process of its own: torch takes seconds to import and half a gigabyte."""
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr or f"{module} imports torch"


def test_choosing_a_corrector_by_name_loads_only_that_one() -> None:
    code = (
        "import sys; from dcoco_core.correctors.catalog import CORRECTORS; list(CORRECTORS); "
        "sys.exit(any(m.startswith('dcoco_core.correctors.dcoco') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
