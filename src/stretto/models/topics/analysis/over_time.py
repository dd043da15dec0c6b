"""Shares of topics by period or by group of documents, with intervals.

The share of topic k in a period is the mean of θ_dk over its D documents, each counted once. The interval is the one of
the central limit theorem, mean ± z s / √D with s the standard deviation over the documents (divided by D − 1), cut to
0 … 1; it covers which documents the period happens to have, not how surely a document's shares are known. A period of
one document has no interval, one without documents no share: both are NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.models import checks
from stretto.models.topics.analysis.tables import write_csv

Floats = NDArray[np.float64]

FREQUENCIES = {"day": "D", "week": "W", "month": "M", "quarter": "Q", "year": "Y"}
_MOST = 100_000  # periods: more are a mistake in a date
_MONDAY = np.datetime64("1970-01-05", "D")


@dataclass(frozen=True, eq=False)
class TopicShares:
    """Shares of topics by period or group.

    Attributes
    ----------
    periods : list of str
        The periods in order, such as "2024-03", "2024-Q1" or a week's Monday; or the groups.
    shares : ndarray of float64 [periods, topics]
        Mean share of each topic in the documents of each period.
    low : ndarray of float64 [periods, topics]
        Lower ends of the confidence intervals.
    high : ndarray of float64 [periods, topics]
        Upper ends.
    documents : ndarray of int64 [periods]
        Documents of each period.
    names : list of str
        Names of the topics.
    confidence : float
        Level of the intervals.
    left_out : int
        Documents without a date.
    """

    periods: list[str]
    shares: Floats
    low: Floats
    high: Floats
    documents: NDArray[np.int64]
    names: list[str]
    confidence: float
    left_out: int

    def rows(self) -> list[dict[str, Any]]:
        """A dict for each period and topic: period, topic, name, share, low, high, documents."""
        return [
            {
                "period": period, "topic": k, "name": name, "share": float(self.shares[p, k]),
                "low": float(self.low[p, k]), "high": float(self.high[p, k]), "documents": int(self.documents[p]),
            }
            for p, period in enumerate(self.periods)
            for k, name in enumerate(self.names)
        ]  # fmt: skip

    def to_frame(self) -> Any:
        """A pandas frame with one line for each period and topic, columns as in `rows`."""
        import pandas

        return pandas.DataFrame(self.rows())

    def write(self, path: Any) -> None:
        """Write the lines of `rows` to a CSV file; what is not defined is left empty.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        write_csv(Path(path), self.rows())

    def largest(self, n: int = 6) -> list[int]:
        """The n topics with the largest shares over all documents, largest first.

        Parameters
        ----------
        n : int, default 6
            Topics.
        """
        weight = np.where(np.isnan(self.shares), 0.0, self.shares) * self.documents[:, None]
        return [int(k) for k in np.argsort(-weight.sum(axis=0), kind="stable")[:n]]

    def plot(self, path: Any, topics: Sequence[int] | None = None, title: str = "") -> None:
        """Draw the shares of some topics against the periods.

        Parameters
        ----------
        path : str or Path
            The file; its ending chooses the format.
        topics : sequence of int or None, default None
            The topics, at most six; None for the six largest.
        title : str, default ""
            Title of the figure; "" for "Shares of topics".
        """
        from stretto.observe.topic_plots import MOST, draw_shares

        chosen = self.largest(MOST) if topics is None else [int(k) for k in topics]
        if not 0 < len(chosen) <= MOST or min(chosen) < 0 or max(chosen) >= len(self.names):
            raise DataError(f"topics is {chosen}; name 1 to {MOST} topics, from 0 to {len(self.names) - 1}")
        bands = [(self.names[k], self.shares[:, k], self.low[:, k], self.high[:, k]) for k in chosen]
        draw_shares(self.periods, bands, Path(path), title or "Shares of topics", self.confidence)


def shares_by(
    theta: NDArray[Any], by: Any, freq: str | None, names: list[str], confidence: float = 0.95
) -> TopicShares:
    """Mean shares [documents, topics] of the documents of each period or group; `by` has a value for each document."""
    from scipy.sparse import csr_array

    if freq is not None:
        checks.choice("freq", freq, FREQUENCIES)
    checks.number("confidence", confidence, above=0, below=1)
    number, periods = _groups(by, len(theta), freq)
    known = number >= 0
    P = len(periods)
    count = np.bincount(number[known], minlength=P)
    share, number = theta[known].astype(np.float64), number[known]
    member = csr_array((np.ones(len(number)), (number, np.arange(len(number)))), shape=(P, len(number)))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (member @ share) / count[:, None]
        squares = member @ (share - mean[number]) ** 2
        spread = np.sqrt(squares / np.where(count > 1, count - 1, np.nan)[:, None])
        half = NormalDist().inv_cdf(0.5 + confidence / 2) * spread / np.sqrt(count)[:, None]
    low, high = np.clip(mean - half, 0, 1), np.clip(mean + half, 0, 1)
    return TopicShares(periods, mean, low, high, count, names, float(confidence), int(np.sum(~known)))


def _groups(by: Any, documents: int, freq: str | None) -> tuple[NDArray[np.int64], list[str]]:
    """(number of the group of each document, −1 without one; names of the groups in order)."""
    given = np.asarray(by)
    if given.shape != (documents,):
        raise DataError(f"by has shape {list(given.shape)} for {documents} documents; give one date or label for each")
    if freq is None:
        if given.dtype.kind == "f" and np.isnan(given).any():
            raise DataError("by holds NaN; give every document a label, or give dates and freq=")
        labels, number = np.unique(given if given.dtype.kind != "O" else given.astype(str), return_inverse=True)
        return number.astype(np.int64), [str(label) for label in labels]
    days = _days(given)
    known = ~np.isnat(days)
    if not known.any():
        raise DataError("by holds no date; give one for each document, such as 2024-03-31")
    number = np.full(documents, -1, np.int64)
    number[known] = _number(days[known], freq)
    first, last = int(number[known].min()), int(number[known].max())
    if last - first >= _MOST:
        raise DataError(
            f"by spans {days[known].min()} to {days[known].max()}, {last - first + 1:,} periods by {freq}; correct the "
            "dates, or choose a longer freq"
        )
    number[known] -= first
    return number, [_name(p, freq) for p in range(first, last + 1)]


def _days(given: NDArray[Any]) -> NDArray[np.datetime64]:
    """Dates as days; missing ones are NaT."""
    if given.dtype.kind == "M":
        return given.astype("M8[D]")
    found = np.full(len(given), np.datetime64("NaT"), "M8[D]")
    for d, value in enumerate(given.tolist()):
        # None, "", NaN and pandas' NaT, which differ from themselves, are missing dates.
        if value is None or value == "" or value != value:  # noqa: PLR0124
            continue
        try:
            found[d] = np.datetime64(str(value)[:10] if isinstance(value, str) else value, "D")
        except (ValueError, TypeError) as error:
            raise DataError(
                f"by[{d}] is {value!r}, not a date; give dates such as 2024-03-31, datetime objects, or leave freq out "
                "to group by the values themselves"
            ) from error
    return found


def _number(days: NDArray[np.datetime64], freq: str) -> NDArray[np.int64]:
    """The number of the period of each day."""
    if freq == "week":
        return (days - _MONDAY).astype(np.int64) // 7
    if freq == "quarter":
        return days.astype("M8[M]").astype(np.int64) // 3
    return days.astype(f"M8[{FREQUENCIES[freq]}]").astype(np.int64)


def _name(period: int, freq: str) -> str:
    if freq == "week":
        return str(_MONDAY + np.timedelta64(7 * period, "D"))
    if freq == "quarter":
        return f"{1970 + period // 4}-Q{period % 4 + 1}"
    return str(np.array(period).astype(f"M8[{FREQUENCIES[freq]}]"))
