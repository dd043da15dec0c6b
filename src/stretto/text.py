"""Text for people: pages of facts as `explain()` prints them, and numbers with their units.

print(fact_page("plan 12ab: lasso", [("grade", "identical"), ("memory", show_bytes(3 * 2**20))]))
"""

from __future__ import annotations

import html
import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 118  # of lines, which terminals of 120 characters do not break
WIDE = 120  # of lines of programs and loops, which quote source text
_MARGIN = " " * 14  # as wide as the column of names
_SUBSCRIPT = re.compile(r"\[[^][]*\]")  # not a place for the end of a line


def fact_page(heading: str, facts: Iterable[tuple[str, str]], width: int = WIDTH) -> str:
    """A heading and the lines of `fact_lines` below it."""
    return "\n".join([heading, *fact_lines(facts, width)])


def fact_lines(facts: Iterable[tuple[str, str]], width: int | None = None) -> list[str]:
    """Lines of (name, text), the names in a column of their own; texts longer than `width` go on below themselves.

    >>> fact_lines([("grade", "identical"), ("", "and more")])
    ['  grade       identical', '              and more']
    """
    lines = []
    for name, text in facts:
        bare = _SUBSCRIPT.sub(lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text.lstrip())
        inner = " " * (len(text) - len(bare))  # a text that is indented goes on a little further in
        room = len(text) + 1 if width is None else width - len(_MARGIN)
        parts = textwrap.wrap(
            bare, room, initial_indent=inner, subsequent_indent=f"{inner}  ", break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip
        first, *more = [part.replace("\N{NO-BREAK SPACE}", " ") for part in parts] or [""]
        lines += [f"  {name:<11} {first}".rstrip(), *(f"{_MARGIN}{part}" for part in more)]
    return lines


def plural(noun: str, n: int) -> str:
    """The form of a regular noun that goes with a number.

    >>> plural("worker", 1), plural("worker", 2)
    ('worker', 'workers')
    """
    return noun if n == 1 else f"{noun}s"


def counted(n: int, noun: str) -> str:
    """A number of things.

    >>> counted(1, "visit"), counted(1200, "visit")
    ('1 visit', '1,200 visits')
    """
    return f"{n:,} {plural(noun, n)}"


def show_bytes(n: float) -> str:
    """A number of bytes in the largest binary unit that leaves at least 1.

    >>> show_bytes(3 * 2**30)
    '3.0 GiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} B" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def show_mib(n: float, digits: int = 1) -> str:
    """A number of bytes in MiB, for lines whose numbers are compared with each other.

    >>> show_mib(3 * 2**30)
    '3072.0 MiB'
    """
    return f"{n / 2**20:.{digits}f} MiB"


def show_gib(n: float, digits: int = 1) -> str:
    """A number of bytes in GiB, for amounts that are always large.

    >>> show_gib(2**30, 0)
    '1 GiB'
    """
    return f"{n / 2**30:.{digits}f} GiB"


def show_traffic(n: float) -> str:
    """A number of bytes sent, in decimal units as networks have them.

    >>> show_traffic(950), show_traffic(2.5e9)
    ('950 B', '2.5 GB')
    """
    return _scaled(n, ("B", "kB", "MB"), "GB")


def show_flops(n: float) -> str:
    """A number of floating-point operations.

    >>> show_flops(7_700), show_flops(2.5e9)
    ('7.7 kflop', '2.5 Gflop')
    """
    return _scaled(n, ("flop", "kflop", "Mflop", "Gflop"), "Tflop")


def _scaled(n: float, units: tuple[str, ...], largest: str) -> str:
    for unit in units:
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} {largest}"


def amount(value: float) -> str:
    """A count in thousands, millions or billions.

    >>> [amount(v) for v in (950, 45_200_000)]
    ['950', '45.2 M']
    """
    for size, name in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.1f}{name}"
    return f"{value:.0f}"


def duration(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> [duration(s) for s in (0.0123, 4.2, 75, 7322)]
    ['12 ms', '4.2 s', '1:15', '2:02:02']
    """
    if seconds < 0.9995:  # the bounds are those of rounding: never "1000 ms" or "60.0 s"
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def show_ms(seconds: float) -> str:
    """A duration in milliseconds, for lines whose numbers are compared with each other.

    >>> show_ms(0.0123)
    '12.3 ms'
    """
    return f"{seconds * 1e3:.1f} ms"


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as lines: the heads, a rule, the rows.

    >>> print(text_table(["topics", "score"], [["10", "0.5"]]))
    topics  score
    -------------
    10      0.5
    """
    widths = [max(len(line[c]) for line in [heads, *rows]) for c in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
             for line in [heads, *rows]]  # fmt: skip
    return "\n".join([lines[0], "-" * sum(widths, 2 * (len(widths) - 1)), *lines[1:]])


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> str:
    """The same table as HTML, with a note below."""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in heads)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{html.escape(note)}</p>"
