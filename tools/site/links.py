"""Links of a page, from where they lead in the repository to where they lead on the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

from tools.site.places import ROOT, address, place_of

# The target of a link or picture, and of a link definition.
_TARGET = re.compile(r"(?<=\]\()([^)\s]+)(?=[)\s])")
_MARK = re.compile(r"^ *<!-- (?:test: .*|[\w ]+: (?:begin|end)|measured: .*|end|Generated .*) -->\n", re.MULTILINE)
_FENCE = re.compile(r" *(`{3,}|~{3,})")
_HEADING = re.compile(r"#{1,6} +(.+?) *#* *$")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_SPAN = re.compile(r"(`+)(?:(?!\1).)+?\1")


class BrokenLinkError(Exception):
    """A page links to a file that does not exist."""


def outside_code(text: str) -> Iterator[tuple[str, bool]]:
    """The lines of a page, each with whether it is prose: not of a fenced block."""
    fence = ""
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line)
        if fence:
            closes = found is not None and found[1].startswith(fence) and not line.strip().strip(fence[0])
            fence = "" if closes else fence
            yield line, False
        elif found:
            fence = found[1]
            yield line, False
        else:
            yield line, True


def targets(text: str) -> list[str]:
    """What a page links to, pictures included; code is left out."""
    found: list[str] = []
    for line, prose in outside_code(text):
        if prose:
            found += _TARGET.findall(_SPAN.sub("", line))
    return found


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page.

    >>> sorted(anchors("# A `b`\\n\\n## What, exactly?\\n\\n## What, exactly?\\n"))
    ['a-b', 'what-exactly', 'what-exactly-1']
    """
    found: set[str] = set()
    for line, prose in outside_code(text):
        heading = _HEADING.match(line) if prose else None
        if heading:
            words = _LINK.sub(r"\1", heading[1]).strip().lower()
            slug = "".join(letter for letter in words if letter.isalnum() or letter in "-_ ").replace(" ", "-")
            number = sum(1 for one in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", one)) if slug in found else 0
            found.add(f"{slug}-{number}" if number else slug)
    return found


def rewritten(text: str, path: str, place: str, own: Callable[[str, str], str | None]) -> str:
    """A page of the repository as a page of the site.

    Parameters
    ----------
    text : str
        The page.
    path : str
        Where it is in the repository.
    place : str
        Where it is on the site.
    own : callable
        Of a page of the site and an anchor, the page that has what the anchor names; None where it is that page.
    """

    def replaced(found: re.Match[str]) -> str:
        return target_on_site(found[1], path, place, own)

    text = _MARK.sub("", text)
    return "".join(_TARGET.sub(replaced, line) if prose else line for line, prose in outside_code(text))


def target_on_site(target: str, path: str, place: str, own: Callable[[str, str], str | None]) -> str:
    """Where a link of the page `path` leads on the site, seen from `place`."""
    to, hash_, anchor = target.partition("#")
    if not to or re.match(r"[a-z]+:", to):
        return target
    file = posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
    if not (ROOT / file).exists():
        raise BrokenLinkError(f"{path} links to {target}; there is no {file}")
    goal = place_of(file)
    if goal is None:
        return address(file) + hash_ + anchor
    page = own(goal, anchor) if anchor else None
    if page is not None:
        goal, hash_, anchor = page, "", ""
    return posixpath.relpath(goal, posixpath.dirname(place) or ".") + hash_ + anchor
