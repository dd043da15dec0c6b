"""`Explanation`: why an item is recommended, as parts that add up to its score."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .frames import frame_kind, make_frame

_SHOWN = 5  # lines of `print`


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why an item has its score: score = mean + item_bias + Σ contributions + rest.

    Attributes
    ----------
    user : int or str
        Id of the user.
    item : int or str
        Id of the item.
    score : float
        Its score, as `recommend` and `predict` give it.
    mean : float
        Mean of the ratings that the model was fitted on.
    item_bias : float
        Bias of the item: how it is rated, or how often it is used, by everyone.
    items : array [n]
        Ids of the user's items, that with the largest contribution first.
    values : array [n]
        Their ratings, or counts.
    contributions : array [n] of float64
        What each of them adds to the score; also to the user's bias, which follows from them.
    rest : float
        What no single rating explains: how far the user's learned factors are from those that follow from the ratings
        alone.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp, stretto as st
    >>> X = sp.random(50, 40, density=0.3, format="csr", random_state=0)
    >>> model = st.MatrixFactorization(4, solver="als", random_state=0).fit(X)
    >>> why = model.explain_recommendation(0, 7)
    >>> bool(abs(why.mean + why.item_bias + why.contributions.sum() + why.rest - why.score) < 1e-6)
    True
    """

    user: Any
    item: Any
    score: float
    mean: float
    item_bias: float
    items: NDArray[Any]
    values: NDArray[np.float32]
    contributions: NDArray[np.float64]
    rest: float

    def to_frame(self, as_frame: bool | str = True) -> Any:
        """The user's items as a data frame: item, value, contribution.

        Parameters
        ----------
        as_frame : {True, "pandas", "polars", "arrow"}, default True
            Its library; True takes the first that is installed.
        """
        kind = frame_kind(as_frame, owner="to_frame") or "pandas"
        return make_frame(kind, {"item": self.items, "value": self.values, "contribution": self.contributions})

    def __str__(self) -> str:
        lines = [("mean of all ratings", self.mean), (f"item {self.item}", self.item_bias)]
        for item, value, part in list(zip(self.items.tolist(), self.values, self.contributions, strict=True))[:_SHOWN]:
            lines.append((f"{item}, {value:g}", part))
        if len(self.items) > _SHOWN:
            others = float(self.contributions[_SHOWN:].sum())
            lines.append((f"{len(self.items) - _SHOWN} other items", others))
        lines.append(("rest", self.rest))
        width = max(len(name) for name, _ in lines)
        head = f"item {self.item} for user {self.user}: score {self.score:.4f}"
        return "\n".join([head, *(f"  {name.ljust(width)}  {part:+9.4f}" for name, part in lines)])


def explanation(
    user: Any,
    item: Any,
    score: float,
    fixed: tuple[float, float],
    past: tuple[NDArray[Any], NDArray[np.float32], NDArray[np.float64]],
) -> Explanation:
    """From the parts of a score, in any order.

    fixed : mean and bias of the item
    past : ids, values and contributions of the user's items; an item may occur more than once
    """
    items, values, parts = past
    order = np.argsort(-parts, kind="stable")
    rest = score - fixed[0] - fixed[1] - float(parts.sum())
    return Explanation(user, item, score, *fixed, items[order], values[order], parts[order], rest)
