"""A page as a list of blocks, written as Markdown or as HTML that needs no other file."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color: #1c1e21; background: #fff; }
h1, h2 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #d8dade; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #e4e6ea; text-align: left;
  white-space: nowrap; }
th { background: #f4f5f7; } tr:hover td { background: #fafbfc; }
img { max-width: 100%; }
"""


@dataclass(frozen=True, slots=True)
class Heading:
    """A title; level 1 is the page's own."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True)
class Items:
    """A list of short lines."""

    lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Plot:
    """A PNG file that lies beside the page."""

    file: str


Block = Heading | Paragraph | Items | Table | Plot


def to_markdown(blocks: Sequence[Block]) -> str:
    """The page as Markdown; plots are links to their files."""
    return "\n\n".join("\n".join(_markdown(block)) for block in blocks) + "\n"


def to_html(blocks: Sequence[Block], folder: Path) -> str:
    """The page as one HTML file, the plots in `folder` inside it."""
    title = next((block.text for block in blocks if isinstance(block, Heading)), "")
    body = "\n".join(_html(block, folder) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _markdown(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f"{'#' * block.level} {block.text}"
        case Paragraph():
            yield block.text
        case Items():
            yield from (f"- {line}" for line in block.lines)
        case Table():
            yield f"| {' | '.join(block.header)} |"
            yield "|" + "---|" * len(block.header)
            yield from (f"| {' | '.join(row)} |" for row in block.rows)
        case Plot():
            yield f"![{Path(block.file).stem}]({block.file})"


def _html(block: Block, folder: Path) -> str:
    match block:
        case Heading():
            return f"<h{block.level}>{escape(block.text)}</h{block.level}>"
        case Paragraph():
            return f"<p>{escape(block.text)}</p>"
        case Items():
            return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in block.lines)}</ul>"
        case Table():
            rows = "\n".join(_row("td", row) for row in block.rows)
            return (
                f'<div class="scroll"><table>\n<thead>{_row("th", block.header)}</thead>\n'
                f"<tbody>\n{rows}\n</tbody></table></div>"
            )
        case Plot():
            data = base64.b64encode((folder / block.file).read_bytes()).decode()
            name = escape(Path(block.file).stem)
            return f'<p><img alt="{name}" src="data:image/png;base64,{data}"></p>'


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
