"""Paths and dotted names in the pages are those of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import stretto

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "stretto"
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *(
        page
        for folder in (DOCS, DOCS / "how-to", DOCS / "tutorials", DOCS / "contributing")
        for page in sorted(folder.glob("*.md"))
    ),
    DOCS / "decisions" / "2026-11-18-layout.md",
]
PACKAGES = sorted(path.parent.name for path in SRC.glob("*/__init__.py"))
FOLDERS = ("src", "tests", "bench", "reproductions", "examples", "docs")
# After a letter, a dot or a slash it is the end of something longer: a URL, a path of the user's.
_FROM_ROOT = re.compile(rf"(?<![\w./-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")
_IN_PACKAGE = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})/[\w/]*\w(?:\.py)?(?![\w.<*{{])")
_DOTTED = re.compile(r"(?<![\w./-])stretto(?:\.[A-Za-z_]\w*)+")
_ENDINGS = (".safetensors", ".json", ".png", ".svg", ".txt")


def exists_from_root(path: str) -> bool:
    return (ROOT / path).exists() or bool(list(ROOT.glob(path + "*")))  # `bench/results/lasso` of `…lasso-*.md`


def exists_in_package(path: str) -> bool:
    return (SRC / path).exists() or (ROOT / path).exists() or (SRC / f"{path}.py").exists()


def exists_dotted(name: str) -> bool:
    """A module, or a name in a module: of `stretto.a.b.c` the longest beginning that is a module has the rest."""
    words = name.split(".")[1:]
    place = SRC
    while words and (place / words[0]).is_dir():
        place /= words.pop(0)
    if words and (place / f"{words[0]}.py").exists():
        place /= f"{words.pop(0)}.py"
    if not words:
        return True
    if place == SRC:
        return words[0] in stretto.__all__ or words[0].startswith("__")
    text = (place if place.suffix else place / "__init__.py").read_text(encoding="utf-8")
    return words[0] in names_in(ast.parse(text))


def names_in(tree: ast.Module) -> set[object]:
    """Names that a module defines, imports, or has as text: packages load some of theirs when they are first used."""
    names: set[object] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Constant):
            names.add(node.value)
    return names


def missing(text: str) -> list[str]:
    """What a page names and the code does not have."""
    found = [path for path in _FROM_ROOT.findall(text) if not exists_from_root(path)]
    found += [path for path in _IN_PACKAGE.findall(text) if path.endswith(".py") and not exists_in_package(path)]
    found += [name for name in _DOTTED.findall(text) if not name.endswith(_ENDINGS) and not exists_dotted(name)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_pages_exist(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


def test_boxes_of_the_architecture_are_packages_and_modules() -> None:
    """In a box several modules of one package may follow the first by their names alone."""
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    boxes = re.findall(r'^ +\w+\["([^"<]+)<br/>', text, re.MULTILINE)
    assert len(boxes) > 50
    for box in boxes:
        folder = ""
        for name in re.split(r", | or ", box):
            folder = name.rpartition("/")[0] if "/" in name else folder
            assert (SRC / folder / name.rpartition("/")[2]).exists(), box


@pytest.mark.parametrize(
    "text",
    [
        "see `src/stretto/nowhere.py`",
        "in `loops/nowhere.py`",
        "`tests/test_nowhere.py`",
        "`stretto.loops.nowhere`",
        "`stretto.Nowhere`",
        "`stretto.memory.nowhere`",
    ],
)
def test_what_is_missing_is_found(text: str) -> None:
    assert missing(text)
