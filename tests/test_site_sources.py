"""What the documentation site is made of, checked without Sphinx: every public name, every link and every anchor."""

from __future__ import annotations

import importlib
import posixpath
from pathlib import Path

import pytest
from tools import reference as markdown
from tools.public_names import SPACES
from tools.site import check, contents, gather, links, places, programs, reference
from tools.site.extension import by_spelling, goal_of

import stretto

pytest.importorskip("torch")  # the names of st.memory need it
ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "bench" / "results").glob("*.md")),
    *sorted((ROOT / "reproductions" / "results").glob("*.md")),
]


def public() -> list[str]:
    """Every public name as users write it, from the modules themselves."""
    found = {f"st.{key}" for key in [*stretto.__all__, *stretto._SHELF]} - SPACES.keys()
    for space, module in SPACES.items():
        found |= {f"{space}.{key}" for key in getattr(importlib.import_module(module), "__all__", []) if space != "st"}
    return sorted(found - SPACES.keys())


def test_every_public_name_is_in_the_sources_of_the_reference() -> None:
    pages = reference.pages(gallery=False)
    listed = "\n".join(markdown.pages().values())
    for name in public():
        assert f"reference/{name}.rst" in pages, name
        assert f"[`{name}`]" in pages["reference/index.md"], name
        assert f"\n## {name}\n" in listed, name
    assert len(public()) > 140


def missing_targets(page: Path, text: str) -> list[str]:
    """Links of a page to files that do not exist, and to anchors that the file does not have."""
    wrong = []
    for target in links.targets(text):
        to, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = page if not to else (page.parent / to).resolve()
        if not file.exists():
            wrong.append(f"{target}: no such file")
        elif anchor and file.suffix == ".md" and anchor not in links.anchors(file.read_text(encoding="utf-8")):
            wrong.append(f"{target}: no such heading")
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    assert missing_targets(page, page.read_text(encoding="utf-8")) == []


def test_what_leads_nowhere_is_found() -> None:
    page = ROOT / "docs" / "tour.md"
    text = (
        "[a](nowhere.md) [b](glossary.md#nothing) [c](glossary.md#glossary) `[d](code.md)`\n\n```text\n[e](f.md)\n```\n"
    )
    assert missing_targets(page, text) == ["nowhere.md: no such file", "glossary.md#nothing: no such heading"]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The source of the site without its charts."""
    found = gather.repository_pages(tmp_path_factory.mktemp("site")) | programs.pages() | reference.pages(gallery=False)
    listed = {"benchmarks/charts.md", "benchmarks/results.md", "reproductions/results.md"}
    return found | dict.fromkeys(listed, "")


def test_links_of_the_site_lead_to_pages_of_the_site(pages: dict[str, str], tmp_path: Path) -> None:
    for place, text in pages.items():
        for target in links.targets(text):
            to = target.partition("#")[0]
            if to and "://" not in to and to.endswith((".md", ".rst")):
                assert posixpath.normpath(posixpath.join(posixpath.dirname(place), to)) in pages, (place, target)


def test_every_page_is_in_the_contents(pages: dict[str, str]) -> None:
    """A page of the repository that nobody lists is found by its folder; one in a new folder is not."""
    names = {place.rpartition(".")[0] for place in pages} - {"readme"}
    listed = {"index"}
    for page in contents.CONTENTS:
        listed |= set(contents.entries(page, names))
    apart = {name for name in names if name.startswith(("reference/", "examples/"))}  # these list their own
    assert names - apart - listed == set()
    named = {name for groups in contents.CONTENTS.values() for _, group in groups for name in group.split()}
    assert {name for name in named if "*" not in name} - names == {"gallery/index"}


def test_links_are_rewritten() -> None:
    def place(target: str) -> str:
        return links.target_on_site(target, "docs/how-to/loops.md", "how-to/loops.md", lambda page, anchor: None)

    assert place("../loops-reference.md#order") == "../loops-reference.md#order"
    assert place("../../bench/results/als.md") == "../benchmarks/results/als.md"
    assert place("../../examples") == "../examples/index.md"
    assert place("../../examples/mf.py") == "../examples/mf.md"
    assert place("../../src/stretto/entry.py") == f"{places.REPOSITORY}/blob/main/src/stretto/entry.py"
    assert place("../../tests") == f"{places.REPOSITORY}/tree/main/tests"
    assert place("#a-heading") == "#a-heading"
    with pytest.raises(links.BrokenLinkError, match=r"no docs/how-to/nowhere\.md"):
        place("nowhere.md")


def test_a_link_to_the_reference_leads_to_the_page_of_the_name(pages: dict[str, str]) -> None:
    known = reference.anchors()
    assert known["reference/models.md", "stlasso"] == "reference/st.Lasso.rst"
    assert known["reference/models.md", "matrixfactorizationrecommend"] == "reference/st.MatrixFactorization.rst"
    assert set(known.values()) <= pages.keys()


def test_code_that_names_something_public_is_known() -> None:
    spellings = by_spelling([name for found in reference.by_group().values() for name in found])
    assert goal_of("st.Cluster(nodes=4)", spellings) == "reference/st.Cluster"
    assert goal_of("Lasso", spellings) == goal_of("stretto.Lasso", spellings) == "reference/st.Lasso"
    assert goal_of("fit", spellings) is goal_of("a b", spellings) is None


def test_what_is_wrong_with_a_built_site_is_found(tmp_path: Path) -> None:
    (tmp_path / "reference").mkdir()
    (tmp_path / "a.html").write_text('<h1 id="x">A</h1><a href="b.html#y">b</a><script src="https://cdn.example/a.js">')
    (tmp_path / "b.html").write_text(
        '<a href="a.html#x">a</a><a href="c.html">c</a><img src="https://example.org/a.png">'
    )
    (tmp_path / "s.css").write_text("@font-face { src: url(https://fonts.example/f.woff) }")
    (tmp_path / "reference" / "st.Lasso.html").write_text('<dt id="stretto.Lasso">')
    found = check.problems(tmp_path)
    assert "a.html: b.html#y leads nowhere" in found
    assert "b.html: c.html leads nowhere" in found
    assert "a.html: loads https://cdn.example/a.js from another host" in found
    assert "b.html: loads https://example.org/a.png from another host" in found
    assert any(line.startswith("s.css: loads https://fonts.example") for line in found)
    assert not any("a.html#x" in line for line in found)
    assert "st.Lasso has no page" not in found
    assert "st.Program has no page" in found
