"""One list of blocks, as Markdown and as HTML that holds everything it shows."""

from __future__ import annotations

import base64
from pathlib import Path

from dcoco_core.evaluation.document import (
    Block,
    Heading,
    Items,
    Paragraph,
    Plot,
    Table,
    to_html,
    to_markdown,
)

PNG = b"\x89PNG not really"
BLOCKS: list[Block] = [
    Heading("Results", 1),
    Paragraph("3 < 4 & so on"),
    Table(["set", "n"], [["a", "1"], ["b", "2"]]),
    Items(["one", "two"]),
    Plot("curve.png"),
]


def test_markdown() -> None:
    assert to_markdown(BLOCKS) == (
        "# Results\n\n3 < 4 & so on\n\n"
        "| set | n |\n|---|---|\n| a | 1 |\n| b | 2 |\n\n"
        "- one\n- two\n\n![curve](curve.png)\n"
    )


def test_html_needs_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "curve.png").write_bytes(PNG)
    html = to_html(BLOCKS, tmp_path)
    assert "<title>Results</title>" in html
    assert "<p>3 &lt; 4 &amp; so on</p>" in html
    assert "<tr><td>b</td><td>2</td></tr>" in html
    assert "<li>two</li>" in html
    assert f"data:image/png;base64,{base64.b64encode(PNG).decode()}" in html
    assert "curve.png" not in html
