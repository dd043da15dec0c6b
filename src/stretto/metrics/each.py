"""One function for each ranking metric; `ranking` computes several in one pass."""

from __future__ import annotations

from typing import Any

from .lists import ranking


def _one(name: str, k: int, recommended: Any, relevant: Any, **more: Any) -> float:
    (value,) = ranking(recommended, relevant, f"{name}@{k}", **more).values()
    return float(value)


def precision(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Share of the first k places that are relevant: h(k) / k, the mean over users.

    h(k) is the number of relevant items among the first k.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.

    Examples
    --------
    >>> import stretto as st
    >>> st.metrics.precision([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=2)
    0.25
    """
    return _one("precision", k, recommended, relevant)


def recall(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Share of the relevant items R that are among the first k: `h(k) / |R|`, the mean over users.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.

    Examples
    --------
    >>> import stretto as st
    >>> st.metrics.recall([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=2)
    0.25
    """
    return _one("recall", k, recommended, relevant)


def hit_rate(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Share of the users who have a relevant item among the first k.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.

    Examples
    --------
    >>> import stretto as st
    >>> st.metrics.hit_rate([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=2)
    0.5
    """
    return _one("hit_rate", k, recommended, relevant)


def mrr(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Mean reciprocal rank: 1 / place of the first relevant item, 0 if it is not among the first k.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.

    Examples
    --------
    >>> import stretto as st
    >>> st.metrics.mrr([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=3)
    0.25
    """
    return _one("mrr", k, recommended, relevant)


def map(recommended: Any, relevant: Any, k: int = 10) -> float:
    """Mean average precision: Σ over relevant places i ≤ k of h(i) / i, divided by `min(k, |R|)`.

    With k = all items it is the mean of scikit-learn's `average_precision_score`.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.

    Examples
    --------
    >>> import stretto as st
    >>> round(st.metrics.map([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=3), 4)
    0.2917
    """
    return _one("map", k, recommended, relevant)


def ndcg(recommended: Any, relevant: Any, k: int = 10, *, graded: bool = False) -> float:
    """Normalised discounted cumulative gain: Σ_i g(i) / log₂(i + 1) of the first k, divided by its largest value.

    g(i) is 1 for a relevant item in place i, or its value with `graded`, and 0 for others. scikit-learn's `ndcg_score`
    has the same definition, and averages over tied scores.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.
    graded : bool, default False
        The gain of an item is its value in `relevant`, not 1.

    Examples
    --------
    >>> import stretto as st
    >>> round(st.metrics.ndcg([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=3), 4)
    0.3467
    """
    return _one("ndcg", k, recommended, relevant, graded=graded)


def auc(recommended: Any, relevant: Any, k: int = 10, *, items: int | None = None) -> float:
    """Share of the pairs (relevant, other item) that are in the right order.

    Items after place k are taken to be in random order; with k = all items it is the area under the ROC curve.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.
    items : int or None, default None
        Items that could have been recommended; None for the columns of `relevant`.

    Examples
    --------
    >>> import stretto as st
    >>> round(st.metrics.auc([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=3, items=10), 4)
    0.6042
    """
    return _one("auc", k, recommended, relevant, items=items)


def coverage(recommended: Any, relevant: Any, k: int = 10, *, items: int | None = None) -> float:
    """Share of the items that are among the first k of some user.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.
    items : int or None, default None
        Items that could have been recommended; None for the columns of `relevant`.

    Examples
    --------
    >>> import stretto as st
    >>> st.metrics.coverage([[3, 1, 2], [0, 1, 2]], [[1, 2], [3]], k=2, items=10)
    0.3
    """
    return _one("coverage", k, recommended, relevant, items=items)


def novelty(recommended: Any, relevant: Any, k: int = 10, *, train: Any) -> float:
    """Mean information of the recommended items in bits: −log₂ of the share of users who had the item.

    An item that half of the users had counts 1, one that an eighth had counts 3. One user more is counted, so that new
    items have a finite value.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.
    train : sparse matrix [users, items]
        Who had which item before.

    Examples
    --------
    >>> import scipy.sparse as sp, stretto as st
    >>> train = sp.csr_matrix([[1, 1, 0], [1, 0, 0], [1, 0, 1]])
    >>> taken = sp.csr_matrix([[0, 0, 1], [0, 1, 0], [0, 1, 0]])
    >>> round(st.metrics.novelty([[0], [0], [1]], taken, k=1, train=train), 4)
    0.3333
    """
    return _one("novelty", k, recommended, relevant, train=train)


def popularity_bias(recommended: Any, relevant: Any, k: int = 10, *, train: Any) -> float:
    """How much more popular recommended items are than relevant ones, in bits.

    The mean information (see `novelty`) of a user's relevant items, minus that of the recommended ones. 0: recommended
    items are as popular as those that users take; 1: twice as popular, in the geometric mean.

    Parameters
    ----------
    recommended : array [m, n]
        Ranked items of each user, best first; −1 (or "") for none.
    relevant : sparse matrix [m, items], or m collections of items
        What each user took.
    k : int, default 10
        Places that count.
    train : sparse matrix [users, items]
        Who had which item before.

    Examples
    --------
    >>> import scipy.sparse as sp, stretto as st
    >>> train = sp.csr_matrix([[1, 1, 0], [1, 0, 0], [1, 0, 1]])
    >>> taken = sp.csr_matrix([[0, 0, 1], [0, 1, 0], [0, 1, 0]])
    >>> round(st.metrics.popularity_bias([[0], [0], [1]], taken, k=1, train=train), 4)
    0.6667
    """
    return _one("popularity_bias", k, recommended, relevant, train=train)
