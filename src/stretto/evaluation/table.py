"""`Evaluation`: the metrics of one or several models, with confidence intervals, as text, a frame or HTML."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.text import html_table, text_table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """One metric of one model.

    Attributes
    ----------
    model : str
        Name of the model.
    metric : str
        Name of the metric, such as "ndcg@10".
    value : float
        Its mean over users; of rmse and mae that over ratings; coverage of all lists together.
    low : float
        Lower end of the confidence interval; NaN if there is none.
    high : float
        Upper end.
    users : int
        Users that it was measured on.
    """

    model: str
    metric: str
    value: float
    low: float
    high: float
    users: int


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What `st.evaluate` returns: metrics of models with confidence intervals. `print` shows them as a table.

    Attributes
    ----------
    scores : tuple of Score
        Every metric of every model.
    confidence : float
        Level of the intervals.
    users : dict of ndarray
        By model, the rows of the held-out data that were measured: those known to training, then new ones.
    per_user : dict
        By model and metric, the value of each of `users`; NaN where it is not defined.
    new_users : int
        Users without ratings in training, who were folded in.
    models : dict
        The fitted models.
    seconds : dict
        By model, seconds of fitting and of measuring.
    """

    scores: tuple[Score, ...]
    confidence: float
    users: dict[str, NDArray[Any]] = field(repr=False)
    per_user: dict[str, dict[str, Floats]] = field(repr=False)
    new_users: int = 0
    models: dict[str, Any] = field(default_factory=dict, repr=False)
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False)

    def __getitem__(self, metric: str) -> float:
        return self.score(metric).value

    def score(self, metric: str, model: str | None = None) -> Score:
        """A metric of a model.

        Parameters
        ----------
        metric : str
            Its name, such as "ndcg@10".
        model : str or None, default None
            Name of the model; None for the first.
        """
        wanted = self.scores[0].model if model is None else model
        for one in self.scores:
            if (one.model, one.metric) == (wanted, metric):
                return one
        raise DataError(f"there is no {metric!r} of {wanted!r}; there are {', '.join(self._metrics())} of "
                        f"{', '.join(self.users)}")  # fmt: skip

    def difference(self, metric: str, first: str, second: str) -> tuple[float, float, float]:
        """How much larger a metric is for one model than for another: (mean, low, high) over their common users.

        The interval is that of paired differences, which is narrower than two intervals suggest.

        Parameters
        ----------
        metric : str
            Its name, such as "ndcg@10".
        first : str
            A model.
        second : str
            The model that is subtracted.
        """
        found = []
        for model in (first, second):
            self.score(metric, model)
            if metric not in self.per_user[model]:
                raise DataError(f"{metric} is one number for all users, and has no paired difference")
            found.append(self.per_user[model][metric])
        _, mine, its = np.intersect1d(self.users[first], self.users[second], return_indices=True)
        gaps = found[0][mine] - found[1][its]
        value, low, high, _ = interval(gaps, self.confidence)
        return value, low, high

    def to_frame(self) -> Any:
        """A pandas frame with one line for each metric of each model: model, metric, value, low, high, users."""
        import pandas

        return pandas.DataFrame([vars(one) for one in self.scores])

    def _metrics(self) -> list[str]:
        return list(dict.fromkeys(one.metric for one in self.scores))

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows: one row for each metric, one column for each model."""
        names = list(dict.fromkeys(one.model for one in self.scores))
        rows = [[metric, *(_shown(self.score(metric, name)) for name in names)] for metric in self._metrics()]
        return ["metric", *names], rows

    def note(self) -> str:
        """The line below the table: users, and the level of the intervals."""
        counts = sorted({one.users for one in self.scores})
        users = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
        new = f", {self.new_users:,} of them new" if self.new_users else ""
        return f"{users} users{new}; {100 * self.confidence:g} % confidence intervals"

    def __str__(self) -> str:
        return f"{text_table(*self.cells())}\n{self.note()}"

    def _repr_html_(self) -> str:
        return html_table(*self.cells(), self.note())


def _shown(one: Score) -> str:
    if math.isnan(one.low):
        return f"{one.value:.4f}"
    return f"{one.value:.4f} [{one.low:.4f}, {one.high:.4f}]"


def interval(values: Floats, confidence: float) -> tuple[float, float, float, int]:
    """(mean, low, high, users) of values of users, by the central limit theorem; NaN are left out."""
    kept = values[~np.isnan(values)]
    if not len(kept):
        return math.nan, math.nan, math.nan, 0
    value = float(kept.mean())
    if len(kept) < 2:
        return value, math.nan, math.nan, 1
    half = _quantile(confidence) * float(kept.std(ddof=1)) / math.sqrt(len(kept))
    return value, value - half, value + half, len(kept)


def error_interval(
    users: NDArray[Any], errors: Floats, power: int, confidence: float
) -> tuple[float, float, float, int]:
    """(value, low, high, users) of rmse (power 2) or mae (power 1) of ratings; users are drawn, with all their ratings.

    The mean loss is a ratio of two sums over users; its variance is that of the linearised ratio.
    """
    _, at = np.unique(users, return_inverse=True)
    count = int(at.max(initial=-1)) + 1
    losses = np.abs(errors) ** power
    sizes, sums = np.bincount(at, minlength=count), np.bincount(at, losses, minlength=count)
    mean = float(losses.mean())
    value = math.sqrt(mean) if power == 2 else mean
    if count < 2:
        return value, math.nan, math.nan, count
    spread = float(np.std(sums - mean * sizes, ddof=1)) / math.sqrt(count) / float(sizes.mean())
    half = _quantile(confidence) * spread
    ends = [max(0.0, mean - half), mean + half]
    low, high = (math.sqrt(end) for end in ends) if power == 2 else ends
    return value, low, high, count


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(0.5 + confidence / 2)
