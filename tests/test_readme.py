"""The documents do what they say: marked blocks are run as written, and the commands they name exist."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from clirun import private_cache
from readymade import MODELS, TORCH, Ready

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
MARKED = re.compile(r"<!-- test: run -->\n```(bash|python)\n(.*?)```", re.DOTALL)
FENCED = re.compile(r"```(?:bash|sh)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)\)")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


def blocks(page: Path) -> list[tuple[str, str]]:
    return MARKED.findall(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def with_models(own_cache: None) -> Iterator[Ready]:
    with Ready(*MODELS, "loops_warm") as made:  # pages have loops
        yield made


@pytest.fixture
def ready(page: Path, with_models: Ready) -> Iterator[Ready]:
    """What runs a page's blocks: with PyTorch already imported where they want it."""
    with Ready(*TORCH) if "\nimport torch\n" in page.read_text(encoding="utf-8") else nullcontext(with_models) as made:
        yield made


def with_command(folder: Path, ready: Ready) -> dict[str, str]:
    """An environment in which `stretto` is the one under test, installed or not."""
    folder.mkdir()
    ready.command(folder / "stretto")
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_marked_blocks_run_as_written(page: Path, tmp_path: Path, ready: Ready) -> None:
    found = blocks(page)
    assert found, f"{page.name} has no block to run"
    environment = with_command(tmp_path / "bin", ready)
    for number, (language, text) in enumerate(found):
        block = tmp_path / f"block{number}.py"  # a file: the source of a loop is read where Python keeps it
        block.write_text(text, encoding="utf-8")
        if language == "python":
            done = ready.run(block, cwd=tmp_path, env=environment)
        else:
            command = ["bash", "-euo", "pipefail", "-c", text]
            done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    named = {name for page in pages for name in re.findall(r"^make ([a-z][a-z-]*)", _code(page), re.M)}
    assert {"run", "test"} <= set(re.findall(r"^make ([a-z-]+)", "\n".join(FENCED.findall(PAGES[0].read_text())), re.M))
    assert named <= targets, named - targets


def _code(page: Path) -> str:
    """What a page sets as code: fenced blocks and spans."""
    text = page.read_text(encoding="utf-8")
    spans = re.findall(r"`([^`\n]+)`", text)
    return "\n".join([*FENCED.findall(text), *(f"{span} " for span in spans)])


@pytest.mark.parametrize("page", [*PAGES, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"], ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), target
