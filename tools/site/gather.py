"""Gather the source of the site into one folder: pages with their links rewritten, the reference, charts, programs."""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path

from tools.reference import cell
from tools.site import charts, programs, reference
from tools.site.contents import toctrees
from tools.site.diagrams import with_pictures
from tools.site.links import rewritten
from tools.site.places import ROOT, place_of, sources

# The front page of the site takes parts of README.md, which has no page of its own.
INCLUDED = {"README.md": "readme.md"}
GALLERY = ROOT / "examples" / "gallery"
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def gather(folder: Path, gallery: bool) -> dict[str, str]:
    """Write the source of the site; returns the text of every page by its place.

    Parameters
    ----------
    folder : Path
        Where to.
    gallery : bool
        Whether the gallery is a part of the site; its pages are written by sphinx-gallery.
    """
    pages = repository_pages(folder) | programs.pages() | reference.pages(gallery)
    pages["benchmarks/charts.md"] = charts.page(folder)
    pages["benchmarks/results.md"] = _list("Tables of measurements", "benchmarks/results/", pages)
    pages["reproductions/results.md"] = _list("Tables of reproductions", "reproductions/results/", pages)
    names = {place.rpartition(".")[0] for place in pages if place not in INCLUDED.values()} | (
        {"gallery/index"} if gallery else set()
    )
    for place in pages:
        if place.endswith(".md"):
            pages[place] += toctrees(place.removesuffix(".md"), names)
    _write(folder, pages)
    return pages


def repository_pages(folder: Path) -> dict[str, str]:
    """Pages of the repository by their place on the site; pictures are copied into `folder`."""
    pages: dict[str, str] = {}
    known = reference.anchors()
    for name in [*sources(), *site_pages()]:
        place = INCLUDED.get(name) or place_of(name)
        assert place is not None
        if not name.endswith(".md"):
            _copy(ROOT / name, folder / place)
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        pages[place] = with_pictures(rewritten(text, name, place, lambda page, anchor: known.get((page, anchor))))
    return pages


def site_pages() -> list[str]:
    """Pages that only the site has."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs" / "site").rglob("*.md"))


def _list(title: str, folder: str, pages: dict[str, str]) -> str:
    """A page that lists the pages of a folder by their titles."""
    lines = [f"# {title}", "", "| page | what it has |", "|---|---|"]
    for place in sorted(place for place in pages if place.startswith(folder)):
        head, *rest = [line for line in pages[place].splitlines() if line.strip()]
        about = _LINK.sub(r"\1", rest[0]) if rest and rest[0][:1].isalpha() else ""
        lines.append(
            f"| [{head.lstrip('# ')}]({posixpath.relpath(place, posixpath.dirname(folder[:-1]))}) | {cell(about)} |"
        )
    return "\n".join([*lines, ""])


def _copy(path: Path, to: Path) -> None:
    if not to.exists() or to.stat().st_mtime_ns < path.stat().st_mtime_ns:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def _write(folder: Path, pages: dict[str, str]) -> None:
    for place, text in pages.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in [*folder.rglob("*.md"), *folder.rglob("*.rst")]:
        place = path.relative_to(folder).as_posix()
        if place not in pages and not (place.startswith("gallery/") and _is_of_an_example(path)):
            path.unlink()


def _is_of_an_example(path: Path) -> bool:
    """Whether a page that sphinx-gallery wrote is still that of an example; it writes its other pages every time."""
    return path.stem.startswith("plot_") and bool(list(GALLERY.glob(f"*/{path.stem}.py")))
