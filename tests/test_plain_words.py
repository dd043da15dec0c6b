"""What users read is written in the field's terms: pages, `--help`, docstrings of public names, error messages."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from typer.main import get_command

import stretto
from plain_words import found, messages, prose, source_texts
from stretto.cli import app

SRC = Path(stretto.__file__).parent
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


def test_error_messages() -> None:
    wrong = [
        f"{path.relative_to(SRC)}:{line}: {what}"
        for path in sorted(SRC.rglob("*.py"))
        for line, text in messages(path)
        for what in found(text)
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", ["bench", "reproductions"])
def test_texts_of_benches_and_reproductions(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in source_texts(path)
        for what in found(text)
    ]
    assert wrong == []


def commands() -> dict[str, str]:
    """Every command of the command line, with the text of its help and options."""
    texts = {}
    waiting = [("stretto", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        options = [str(getattr(option, "help", "") or "") for option in command.params]
        texts[name] = "\n".join([command.help or "", command.epilog or "", *options])
        waiting += [(f"{name} {key}", child) for key, child in getattr(command, "commands", {}).items()]
    return texts


@pytest.mark.parametrize(("name", "text"), commands().items())
def test_help(name: str, text: str) -> None:
    assert found(text) == [], name


def public_docstrings() -> dict[str, str]:
    """Docstrings of what users import, and of the public methods of its classes."""
    texts = {}
    for space in (stretto, stretto.schedule, stretto.memory, stretto.tables):
        for name in getattr(space, "__all__", None) or [key for key in vars(space) if not key.startswith("_")]:
            value = getattr(space, name)
            if inspect.ismodule(value) or not getattr(value, "__module__", "stretto").startswith("stretto"):
                continue
            where = f"{space.__name__}.{name}"
            texts[where] = inspect.getdoc(value) or ""
            if inspect.isclass(value):
                for key, member in vars(value).items():
                    if not key.startswith("_"):
                        texts[f"{where}.{key}"] = inspect.getdoc(getattr(member, "fget", member)) or ""
    return texts


def test_docstrings_of_public_names() -> None:
    wrong = [f"{name}: {what}" for name, text in public_docstrings().items() for what in found(text)]
    assert wrong == []
