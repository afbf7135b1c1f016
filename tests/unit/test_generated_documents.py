"""What the documents take from the code is up to date; `make fix` brings it there."""

from __future__ import annotations

from deployments.config import DEPLOYMENTS
from tests.documents import rendered
from tests.unit.repository import ROOT

SERVING = (ROOT / "docs" / "serving.md").read_text()


def test_generated_parts_are_up_to_date() -> None:
    documents = {path: path.read_text() for path in (ROOT / "docs").rglob("*.md")}
    assert sum("<!-- made from the code" in text for text in documents.values()) == 2
    stale = [path.name for path, text in documents.items() if rendered(text) != text]
    assert stale == [], "run `make fix`"


def test_every_topology_is_described() -> None:
    assert [name for name in DEPLOYMENTS if f"| `{name}` |" not in SERVING] == []
