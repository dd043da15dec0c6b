"""A page for each program of `examples/`: what it says of itself, and its source."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.reference import cell
from tools.site.places import ROOT, address

FOLDER = ROOT / "examples"


def pages() -> dict[str, str]:
    """By file name, the text of every page, the list of all included."""
    found = {path.stem: path for path in sorted(FOLDER.glob("*.py"))}
    texts = {f"examples/{name}.md": _page(path) for name, path in found.items()}
    lines = [
        "# Programs",
        "",
        "Whole programs, each in one file that runs as it stands.",
        "",
        "| program | what it is |",
        "|---|---|",
    ]
    lines += [f"| [`{name}.py`]({name}.md) | {cell(_about(path)[0])} |" for name, path in found.items()]
    lines += ["", "```{toctree}", ":hidden:", "", *found, "```", ""]
    texts["examples/index.md"] = "\n".join(lines)
    return texts


def _about(path: Path) -> tuple[str, str]:
    """The first sentence of the docstring of a program, and the rest."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or path.stem
    summary, _, rest = text.partition("\n\n")
    return " ".join(summary.split()), rest


def _page(path: Path) -> str:
    summary, rest = _about(path)
    name = path.relative_to(ROOT).as_posix()
    source = path.read_text(encoding="utf-8")
    lines = [f"# `{path.name}`", "", summary, ""]
    if rest:
        lines += ["```text", rest, "```", ""]
    return "\n".join([*lines, f"[In the repository]({address(name)})", "", "```python", source.rstrip(), "```", ""])
