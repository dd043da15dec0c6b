"""What is read is in the field's terms: pages, and the strings, docstrings and comments of all code but tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from plain_words import found, prose, source_texts

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if "decisions" not in path.parts),
    *sorted((ROOT / "bench").rglob("*.md")),
    *sorted((ROOT / "reproductions").rglob("*.md")),
]


def test_replaced_phrases_are_found() -> None:
    assert found("The blocks are made again, and the worker is told.") != []
    assert found("Is there a file? The node recomputes the blocks.") == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(page: Path) -> None:
    assert found(prose(page)) == []


@pytest.mark.parametrize("folder", ["src", "bench", "reproductions"])
def test_strings_and_comments(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in source_texts(path)
        for what in found(text)
    ]
    assert wrong == []
