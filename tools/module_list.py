"""Print every module with the first line of its docstring: `python -m tools.module_list`."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src" / "stretto"


def module_list() -> list[str]:
    """One line for each module: its path in the package, and the first line of its docstring."""
    lines = []
    for path in sorted(ROOT.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        lines.append(f"{path.relative_to(ROOT).as_posix()} | {text.partition(chr(10))[0]}")
    return lines


if __name__ == "__main__":
    print(*module_list(), sep="\n")
