"""Words that we replaced by the field's own terms, and where they would be read.

Each pattern stands for a phrase of the project's early days; `docs/glossary.md` has the words that are used instead.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

# phrase: what to write instead
INSTEAD = {
    r"ma(de|ke|kes|king)( it| them)? again": "recomputed, recompute, repeated",
    r"what lasts|that lasts?": "persistent",
    r"what passes|passing memory": "temporary",
    r"(is|are|was|were|be|been) told(?! apart)|tells|told": "receives, reports, logs, notifies",
    r"(is|are) (not )?(there|here)(?! (a|an|any|no|more|less|some|one|several|two)\b)": "available, supported, present",
    r"looks? at|looked at|looking at|a look\b": "evaluates, reads, inspects",
    r"reckon(s|ed|ing)?": "estimates, estimated",
    r"foretells?|foretold": "predict",
    r"so many (workers|nodes|threads|epochs|rounds|rows|seconds|steps)": "n workers",
    r"no whole number": "not an integer",
    r"go(es)? round": "rotates, circulates",
    r"st(and|ands|ood) still": "stalls, makes no progress",
    r"nobody reads": "unused",
    r"in vain|for good\b|for ever": "without effect, permanently, always",
    r"whoever": "the caller, the process that",
    r"bears (a|the|with|any) ": "converges with",
    r"(lie|lies|lay) (by|in|on|where|beside|at|there)\b": "is stored",
    r"pieces?": "chunks",
    r"the truth": "the reference",
    r"(front |the )doors?\b|shel(f|ves)|rooms?": "front end, public names, package, space",
}
_ALL = "|".join(rf"(?P<p{number}>\b(?:{phrase})\b)" for number, phrase in enumerate(INSTEAD))
PATTERN = re.compile(_ALL, re.IGNORECASE)
CODE = re.compile(r"`[^`]*`|^ *>>> .*$", re.MULTILINE)


def found(text: str) -> list[str]:
    """Replaced phrases in a text, each with what to write instead."""
    words, lines = list(INSTEAD.values()), []
    for match in PATTERN.finditer(text):
        around = text[max(0, match.start() - 40) : match.end() + 40]
        lines.append(f"{match.group(0)!r} in {around!r}: write {words[int(str(match.lastgroup)[1:])]}")
    return lines


def source_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Strings, docstrings and comments of a module, without what is quoted as code: line and text."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, CODE.sub("", node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], CODE.sub("", token.string)


def prose(path: Path) -> str:
    """A page without its code."""
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"`[^`]*`", "", text)
