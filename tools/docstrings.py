"""Read NumPy-style docstrings: a summary, text, and sections with one entry for each name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

# Sections whose lines are entries; the others hold text.
LISTED = ("Parameters", "Attributes", "Returns", "Raises")
_DEFAULT = re.compile(r"(?:^|, )default (?P<value>.+)$")


@dataclass(frozen=True)
class Item:
    """One entry of a section, such as `n : int, default 3` and the lines below it."""

    name: str
    kind: str
    text: str

    @property
    def default(self) -> str | None:
        """The default as it is written; None where there is none."""
        found = _DEFAULT.search(self.kind)
        return None if found is None else found["value"]


@dataclass(frozen=True)
class Docstring:
    """A docstring in parts.

    Attributes
    ----------
    summary : str
        The first line.
    text : str
        The paragraphs between the summary and the first section.
    listed : dict of list
        By section, its entries.
    sections : dict of str
        By section, its text as written.
    """

    summary: str
    text: str
    listed: dict[str, list[Item]] = field(default_factory=dict)
    sections: dict[str, str] = field(default_factory=dict)

    def names(self, *sections: str) -> list[str]:
        """Names of the entries of these sections, in order."""
        return [item.name for section in sections for item in self.listed.get(section, [])]


def parse(doc: str) -> Docstring:
    """The parts of a docstring, as `inspect.getdoc` returns it.

    >>> found = parse("Add.\\n\\nParameters\\n----------\\na : int, default 3\\n    A number.")
    >>> found.summary, found.names("Parameters"), found.listed["Parameters"][0].default
    ('Add.', ['a'], '3')
    """
    lines = doc.splitlines()
    ruled = [re.fullmatch(r"-{3,}", line) is not None for line in lines[1:]]
    heads = [k for k, below in enumerate(ruled) if below and lines[k][:1].strip()]
    before = lines[: heads[0]] if heads else lines
    summary, _, text = "\n".join(before).strip().partition("\n\n")
    sections: dict[str, str] = {}
    for at, end in pairwise([*heads, len(lines)]):
        sections[lines[at].strip()] = "\n".join(lines[at + 2 : end]).strip("\n")
    listed = {name: _items(body) for name, body in sections.items() if name in LISTED}
    return Docstring(" ".join(summary.split()), text.strip("\n"), listed, sections)


def _items(body: str) -> list[Item]:
    found: list[Item] = []
    texts: list[list[str]] = []
    for line in body.splitlines():
        if line and not line.startswith(" "):
            name, _, kind = line.partition(" : ")
            found.append(Item(name.strip(), kind.strip(), ""))
            texts.append([])
        elif texts:
            texts[-1].append(line.strip())
    return [Item(item.name, item.kind, " ".join(text).strip()) for item, text in zip(found, texts, strict=True)]
