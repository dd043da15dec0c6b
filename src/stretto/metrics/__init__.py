"""Ranking metrics of recommenders, for lists that any of them made.

    found = st.metrics.ranking(recommended, relevant, ["ndcg@10", "recall@20"])

`st.evaluate` computes them for a model; the names are the same.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .each import auc, coverage, hit_rate, map, mrr, ndcg, novelty, popularity_bias, precision, recall
    from .lists import ranking

__all__ = [
    "auc",
    "coverage",
    "hit_rate",
    "map",
    "mrr",
    "ndcg",
    "novelty",
    "popularity_bias",
    "precision",
    "ranking",
    "recall",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'stretto.metrics' has no attribute {name!r}")
    module = importlib.import_module(f"stretto.metrics.{'lists' if name == 'ranking' else 'each'}")
    return globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
