"""Names of metrics: `"ndcg@10"` is NDCG of the first ten places.

>>> parse("ndcg@10"), str(parse("recall")), str(parse("rmse"))
(Metric(name='ndcg', k=10), 'recall@10', 'rmse')
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stretto.checks import shown
from stretto.errors import PlanError

PLACES = 10
# Of each user's list, of all lists together, and of single ratings.
RANKED = ("precision", "recall", "ndcg", "map", "mrr", "hit_rate", "auc", "novelty", "popularity_bias")
TOGETHER = ("coverage",)
ERRORS = ("rmse", "mae")
LOWER_IS_BETTER = frozenset(ERRORS)


@dataclass(frozen=True)
class Metric:
    """A metric, and the number of places that it counts; 0 for the error of ratings."""

    name: str
    k: int

    def __str__(self) -> str:
        return f"{self.name}@{self.k}" if self.k else self.name

    @property
    def sign(self) -> float:
        """1 where more is better, −1 where less is."""
        return -1.0 if self.name in LOWER_IS_BETTER else 1.0


def parse(text: Any, owner: str = "metrics") -> Metric:
    """The metric of a name; without `@k` it counts ten places."""
    if isinstance(text, Metric):
        return text
    name, at, places = text.partition("@") if isinstance(text, str) else ("", "", "")
    if name in ERRORS and not at:
        return Metric(name, 0)
    if name in RANKED + TOGETHER and (not at or (places.isdecimal() and 1 <= int(places) <= 10**6)):
        return Metric(name, int(places) if at else PLACES)
    known = ", ".join((*RANKED, *TOGETHER))
    raise PlanError(
        f"{owner}: there is no metric {shown(text)}; there are {known}, each with @k for the first k places, such as "
        f"'ndcg@10', and {' and '.join(ERRORS)}"
    )


def parse_all(metrics: Any, owner: str = "metrics") -> tuple[Metric, ...]:
    """Metrics from one name or several, each once, in their order."""
    given: Iterable[Any] = (metrics,) if isinstance(metrics, str | Metric) else metrics
    try:
        found = tuple(dict.fromkeys(parse(one, owner) for one in given))
    except TypeError:
        raise PlanError(f"{owner}: metrics are names such as ('ndcg@10', 'recall@20'); got {shown(metrics)}") from None
    if not found:
        raise PlanError(f"{owner}: name at least one metric, such as 'ndcg@10'")
    return found
