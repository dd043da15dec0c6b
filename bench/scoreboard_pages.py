"""Estimators of other measurements on the scoreboard: rows of their pages, with ratios in one direction.

pages = [Page("libmf", "matrix factorisation", ("set", "threads"), "ratio", inverse=True, against="peer")]
other_rows(pages)          # one row for each of the page's, the best peer's time over ours
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import report


@dataclass(frozen=True)
class Page:
    """A page of results. labels: columns that name a row. inverse: the page's ratio is our time over the peer's."""

    name: str
    work: str
    labels: tuple[str, ...]
    ratio: str
    inverse: bool = False
    against: str = ""  # the peer's name; "peer": each row has it in a column of this name


PAGES = (
    Page("libmf", "factorisation: time to LIBMF's best RMSE", ("set", "threads"), "ratio", True, "peer"),
    Page("als", "implicit ALS: time to its NDCG@10", ("threads",), "ratio", True, "implicit"),
    Page("recommend", "top 10 of every user", ("set", "threads"), "faster", False, "implicit"),
    Page("lda_perplexity", "topics: time to a perplexity", ("corpus", "K", "threads"), "faster", False, "tomotopy"),
    Page("linear_svc", "LinearSVC: time to an objective", ("set", "threads", "loss", "C"), "ratio", True, "liblinear"),
    Page("loops", "loops: a whole call", ("set", "threads"), "time call / hand", True, "kernel written by hand"),
    Page("loops", "loops: a whole call", ("set", "threads"), "loop / plain Numba", False, "plain Numba"),
    Page("loops_speed", "loops: one call", ("loop",), "strict / exact", False, "Numba by hand, strict"),
    Page("loop_corpus", "loops from textbooks: one call", ("loop",), "strict / ours", False, "Numba by hand, strict"),
)
COLUMNS = ["work", "cell", "peer", "ratio", "page", "date"]


def tables(text: str) -> Iterator[dict[str, str]]:
    """The rows of all tables of a Markdown page, by the names of their columns."""
    names: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|"):
            names = []
            continue
        fields = [field.strip() for field in line.strip().strip("|").split("|")]
        if not names:
            names = fields
        elif set(line) - set("|-: "):
            yield dict(zip(names, fields, strict=False))


def number(shown: str) -> float | None:
    """The first number in a field: 1.6 of "1.6×", 34 of "> 34"; None where there is none."""
    found = re.search(r"\d+(?:\.\d+)?", shown.replace(",", ""))
    return float(found.group()) if found else None


def other_rows(pages: Sequence[Page] = PAGES, results: Path | None = None) -> list[list[str]]:
    """Rows for `COLUMNS` of the pages that are present; ratios below one are marked."""
    rows = []
    for page in pages:
        file = (results or report.RESULTS) / f"{page.name}.md"
        if not file.exists():
            continue
        text = file.read_text(encoding="utf-8")
        date = re.search(r"^- date: (\S+)", text, re.MULTILINE)
        for row in tables(text):
            value = number(row.get(page.ratio, ""))
            if not value:
                continue
            ratio = 1.0 / value if page.inverse else value
            shown = f"{ratio:.2f}" if ratio >= 1.0 else f"**▼ {ratio:.2f}**"
            cell = ", ".join(f"{label} {row[label]}" if row[label].isdigit() else row[label] for label in page.labels)
            peer = row["peer"] if page.against == "peer" else page.against
            rows.append([page.work, cell, peer, shown, f"[{page.name}]({page.name}.md)", date.group(1) if date else ""])
    return rows
