"""The documents do what they say: marked blocks are run as written, and the commands they name exist."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clirun import private_cache
from readymade import MODELS, TORCH, Ready

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
REFERENCE = sorted((ROOT / "docs").glob("*.md"))
PAGES = [
    README,
    *REFERENCE,
    *(page for name in ("how-to", "tutorials", "contributing") for page in sorted((ROOT / "docs" / name).glob("*.md"))),
]
# A block in some language with the line above it: `<!-- test: run -->`, or `<!-- test: not run, because … -->`.
_BLOCKS = re.compile(r"([^\n]*)\n *```(\w+)\n(.*?)\n *```", re.DOTALL)
RUN = "<!-- test: run -->"
NOT_RUN = re.compile(r"<!-- test: not run, because \S.* -->")
FENCED = re.compile(r"```(?:bash|sh)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)\)")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


def all_blocks(page: Path) -> list[tuple[str, str, str]]:
    """The line above, the language and the text of each block of code of a page."""
    text = page.read_text(encoding="utf-8")
    return _BLOCKS.findall(text)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of the blocks that are run."""
    return [(language, text) for above, language, text in all_blocks(page) if above == RUN]


# Each of these trains a network under several plans, or simulates for long: the first block of a page is enough for a
# quick look.
LONG = {"gpu-memory.md": 1, "simulate.md": 0}
CASES = [
    pytest.param(
        page,
        number,
        id=f"{page.name}-{number + 1}",
        marks=[pytest.mark.slow] if number >= LONG.get(page.name, number + 1) else [],
    )
    for page in PAGES
    for number in range(len(blocks(page)))
]


@pytest.fixture(scope="module")
def with_models(own_cache: None) -> Iterator[Ready]:
    with Ready(*MODELS, "loops_warm") as made:  # pages have loops
        yield made


class Pages:
    """Folders in which the blocks of pages run, one after another, as a reader would run them."""

    def __init__(self, folder: Path, with_models: Ready, stack: ExitStack) -> None:
        self._folder, self._with_models, self._stack = folder, with_models, stack
        self._done: dict[Path, list[subprocess.CompletedProcess[str]]] = {}
        self._ready: dict[Path, Ready] = {}

    def run(self, page: Path, number: int) -> subprocess.CompletedProcess[str]:
        """Run a block, and those before it that have not run yet."""
        done = self._done.setdefault(page, [])
        for language, text in blocks(page)[len(done) : number + 1]:
            done.append(self._run(page, language, text, self._folder / f"{page.parent.name}-{page.stem}"))
        return done[number]

    def _run(self, page: Path, language: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
        ready = self._ready_for(page)
        if not folder.exists():
            folder.mkdir()
            (folder / "bin").mkdir()
            ready.command(folder / "bin" / "stretto")  # the one under test, installed or not
        environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        if language == "python":
            block = folder / f"block{len(self._done[page])}.py"  # a file: a loop's source is read where Python keeps it
            block.write_text(text, encoding="utf-8")
            return ready.run(block, cwd=folder, env=environment)
        command = ["bash", "-euo", "pipefail", "-c", text]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    def _ready_for(self, page: Path) -> Ready:
        """With PyTorch already imported where the page wants it."""
        if "\nimport torch\n" not in page.read_text(encoding="utf-8"):
            return self._with_models
        if page not in self._ready:
            self._ready[page] = self._stack.enter_context(Ready(*TORCH))
        return self._ready[page]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, with_models: Ready) -> Iterator[Pages]:
    with ExitStack() as stack:
        yield Pages(tmp_path_factory.mktemp("pages"), with_models, stack)


@pytest.mark.timeout(3600)  # against blocks that hang; with an empty cache on a busy machine compiling takes minutes
@pytest.mark.parametrize(("page", "number"), CASES)
def test_marked_blocks_run_as_written(page: Path, number: int, pages: Pages) -> None:
    done = pages.run(page, number)
    assert done.returncode == 0, f"{blocks(page)[number][1]}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_says_why_not(page: Path) -> None:
    for above, _, text in all_blocks(page):
        assert above == RUN or NOT_RUN.fullmatch(above), f"{page.name}: mark the block that begins\n{text[:200]}"
        for test in re.findall(r"tests/\S+\.py", above):
            assert (ROOT / test).exists(), f"{page.name}: {test}, which a mark names, does not exist"


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [*PAGES, ROOT / "CONTRIBUTING.md"]
    named = {name for page in pages for name in re.findall(r"^make ([a-z][a-z-]*)", _code(page), re.M)}
    assert {"run", "test"} <= set(re.findall(r"^make ([a-z-]+)", "\n".join(FENCED.findall(README.read_text())), re.M))
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


def test_the_packages_that_architecture_describes_are_those_of_the_source() -> None:
    """Each package and subpackage has one row, and what a row calls a module is one."""
    source = ROOT / "src" / "stretto"
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z_/]+)/` \| (.*) \|$", text, re.MULTILINE)
    packages = {path.parent.relative_to(source).as_posix() for path in source.rglob("__init__.py")} - {"."}
    assert sorted(name for name, _ in rows) == sorted(packages)
    for name, row in rows:
        modules = {path.stem for path in (source / name).rglob("*.py")}
        assert set(re.findall(r"`([a-z_]+)`", row)) <= modules | {"lasso_path"}, name
