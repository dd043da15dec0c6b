"""Check the built site: links and anchors lead somewhere, nothing is loaded from other hosts, every name has a page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser loads by itself when it shows a page.
LOADED = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src",
    "object": "data", "input": "src",
}  # fmt: skip
LOADED_LINKS = {"stylesheet", "icon", "shortcut", "preload", "modulepreload", "preconnect", "dns-prefetch", "manifest"}
_IN_CSS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


@dataclass
class Page(HTMLParser):
    """A page of the site.

    Attributes
    ----------
    links : list of str
        What it links to.
    loads : list of str
        What a browser loads for it.
    anchors : set of str
        Names that a link may end in.
    """

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag refers to."""
        given = {key: value or "" for key, value in attrs}
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link":
            loaded = bool(LOADED_LINKS & set(given.get("rel", "").split()))
            (self.loads if loaded else self.links).append(given.get("href", ""))
        elif tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])
        self.loads += [one.strip().split()[0] for one in given.get("srcset", "").split(",") if one.strip()]
        self.loads += [first or second for first, second in _IN_CSS.findall(given.get("style", ""))]


def read(site: Path) -> dict[Path, Page]:
    """Every page of the site by its path."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.parts:
            continue
        page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        pages[path] = page
    return pages


def problems(site: Path) -> list[str]:
    """What is wrong with a built site, a line each."""
    pages = read(site)
    wrong = [] if pages else [f"{site}: there are no pages"]
    for path, page in pages.items():
        name = path.relative_to(site)
        wrong += [f"{name}: loads {to} from another host" for to in page.loads if _foreign(to)]
        for to in [*page.links, *page.loads]:
            if not _foreign(to) and not _leads_somewhere(to, path, pages, site):
                wrong.append(f"{name}: {to} leads nowhere")
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        wrong += [f"{style.relative_to(site)}: loads {a or b}" for a, b in _IN_CSS.findall(text) if _foreign(a or b)]
    return wrong + [f"{name} has no page" for name in missing_names(site)]


def missing_names(site: Path) -> list[str]:
    """Public names without a page, or whose page does not define them."""
    from tools.public_names import names
    from tools.site.reference import docname, full_name

    found = []
    for name in names():
        page = site / f"{docname(name)}.html"
        if not page.exists() or f'id="{full_name(name)}"' not in page.read_text(encoding="utf-8"):
            found.append(name.title)
    return found


def summary(site: Path) -> str:
    """How much was checked."""
    pages = read(site)
    links = sum(len(page.links) + len(page.loads) for page in pages.values())
    inside = sum(not _foreign(to) for page in pages.values() for to in [*page.links, *page.loads])
    return f"{len(pages)} pages, {links} links, of which {inside} are within the site and were followed"


def _foreign(to: str) -> bool:
    where = urlsplit(to)
    return bool(where.netloc) or where.scheme in ("mailto", "javascript")


def _leads_somewhere(to: str, path: Path, pages: dict[Path, Page], site: Path) -> bool:
    if to.startswith("data:") or to in ("", "#"):
        return True
    where = urlsplit(to)
    goal = path if not where.path else (path.parent / unquote(where.path)).resolve()
    if goal.is_dir():
        goal /= "index.html"
    if not goal.exists() or site.resolve() not in goal.resolve().parents:
        return False
    anchor = unquote(where.fragment)
    return not anchor or goal not in pages or anchor in pages[goal].anchors
