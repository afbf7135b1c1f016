"""The parts of the documents that are made from the code: `make fix` rewrites them.

A generated part stands between `<!-- made from ...: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

from deployments.config import AppArgs
from tests.unit.repository import ROOT, sources

_PART = re.compile(r"(<!-- made from the code: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def settings() -> str:
    """Every argument of the application: default, and its own description."""
    lines = ["| setting | default | what it is |", "|---|---|---|"]
    for name, field in AppArgs.model_fields.items():
        default = json.dumps(field.get_default(call_default_factory=True))
        choices = ""
        if get_origin(field.annotation) is Literal:
            choices = f" One of {', '.join(f'`{item}`' for item in get_args(field.annotation))}."
        lines.append(f"| `{name}` | `{default}` | {field.description}{choices} |")
    return "\n".join(lines)


def modules() -> str:
    """Every module: the first line of its docstring, the package's own modules first."""
    lines = []
    for init in (path for path in sources("dcoco_core", "deployments") if path.stem == "__init__"):
        lines += ["", f"**`{init.parent.relative_to(ROOT)}/`** {_summary(init)}", ""]
        own = [path for path in sorted(init.parent.glob("*.py")) if path != init]
        lines += [f"- `{path.name}` {_summary(path)}" for path in own]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip())


def _summary(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, f"{path} has no docstring"
    return docstring.splitlines()[0]


_MAKERS: Mapping[str, Callable[[], str]] = {"settings": settings, "modules": modules}


def rendered(text: str) -> str:
    """A document with its generated parts as they should be."""
    return _PART.sub(lambda part: f"{part[1]}{_MAKERS[part[2]]()}\n{part[3]}", text)


def main() -> None:
    """Rewrites the generated parts of all documents."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        text = path.read_text()
        if (new := rendered(text)) != text:
            path.write_text(new)
            print(f"rewrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
