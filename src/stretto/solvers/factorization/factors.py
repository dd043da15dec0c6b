"""Predictions, top-n recommendations and similar items from fitted factors.

Every function takes factors in the user's numbering and a crew. The work is divided into fixed parts, so results do not
depend on the number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.data.records.ids import IdMap
from stretto.errors import DataError
from stretto.kernels.factorization import topn
from stretto.kernels.factorization.predict import numbered_worker, predict_worker
from stretto.kernels.numeric.lanes import padded
from stretto.plan.cost import refuse_if_over
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.step import BlockStep, make_step, parts
from stretto.runtime.cpus import available_memory
from stretto.schedule.orders.rotation import independent
from stretto.state.rows import BlockedRows

from .problem import Factors
from .rated_items import RatedItems, new_array

Floats = NDArray[np.float32]
_NONE = np.zeros(0, np.float32)
_PARTS, _LEAST = 64, 4096
_ROWS_AT_ONCE, _MOST_AT_ONCE = 64, 256
# From here on a search has bounds: rows, items and width, and the share of the width that a bound needs.
_BOUNDED_ROWS, _BOUNDED_ITEMS, _BOUNDED_WIDTH, _BOUND_SHARE = 2048, 4096, 32, 4
_LARGE = 1e30  # standard deviation of ratings from which on biases may overflow


def in_units(factors: Factors, scratch: Path | None, crew: Crew) -> dict[str, Any]:
    """Factors and biases in the user's numbering and the ratings' units: the attributes of a fitted estimator.

    Squared gradients stay in units of standardised ratings, like the learning rate.
    """
    root, scale = np.float32(math.sqrt(factors.scale)), np.float32(factors.scale)
    found: dict[str, Any] = {
        "user_factors_": _numbered(factors.W, root, scratch, crew),
        "item_factors_": _numbered(factors.H, root, scratch, crew),
        "user_bias_": _numbered(factors.b, scale, scratch, crew),
        "item_bias_": _numbered(factors.c, scale, scratch, crew),
    }
    if factors.scale > _LARGE and not all(np.isfinite(found[name]).all() for name in ("user_bias_", "item_bias_")):
        raise DataError("the ratings are too large for 32-bit floats; divide them by a constant first")
    kept = {name: state for name, state in factors.squares.items() if len(state.array)}
    return found | {
        "squares_": {name: _numbered(state, np.float32(1.0), scratch, crew) for name, state in kept.items()}
    }


def _numbered(state: BlockedRows, unit: np.float32, scratch: Path | None, crew: Crew) -> Floats:
    """[n, width] or [n] rows in the user's numbering, times a unit; zeros for missing rows."""
    place, array = state.cut.place, state.array
    shape = (len(place), state.width) if array.ndim > 1 else (len(place),)
    values = new_array(scratch, state.name, shape, np.float32)
    if not len(array):
        values[:] = 0.0
        return values
    if array.ndim == 1:
        np.multiply(array[place], unit, out=values)
        return values
    bounds = parts(len(place), _PARTS, _LEAST)
    args = (bounds, place, array, unit, values)
    crew.run_here(make_step("numbered", numbered_worker, independent(len(bounds) - 1), np.diff(bounds), *args), "exact")
    return values


_NOTHING = RatedItems(np.zeros(1, np.int64), np.zeros(0, np.int32))


@dataclass(frozen=True, eq=False)
class PaddedFactors:
    """Factors for the kernels: rows are padded to whole SIMD lanes."""

    W: Floats  # [m, padded]
    H: Floats  # [n, padded]
    b: Floats  # [m]
    c: Floats  # [n]
    mean: float


def whole_lanes(factors: Floats) -> Floats:
    """Pad the factors to whole SIMD lanes; no copy if they are padded already."""
    width = padded(factors.shape[1])
    if width == factors.shape[1]:
        return np.ascontiguousarray(factors)
    wide = np.zeros((len(factors), width), np.float32)
    wide[:, : factors.shape[1]] = factors
    return wide


def served(model: Any) -> PaddedFactors:
    """The factors of a fitted estimator."""
    return PaddedFactors(
        whole_lanes(model.user_factors_),
        whole_lanes(model.item_factors_),
        model.user_bias_,
        model.item_bias_,
        model.mean_,
    )


def predict(model: PaddedFactors, rows: NDArray[Any], cols: NDArray[Any], crew: Crew) -> Floats:
    """[n] predictions of pairs; an index outside the factors contributes nothing."""
    result = np.empty(len(rows), np.float32)
    bounds = parts(len(rows), _PARTS, _LEAST)
    args = (bounds, rows, cols, model.W, model.H, model.b, model.c, np.float32(model.mean), result)
    run(crew, make_step("predict", predict_worker, independent(len(bounds) - 1), np.diff(bounds), *args))
    return result


def run(crew: Crew, step: BlockStep) -> BlockStep:
    """Run a step of a fitted model; DataError if its numbers overflow."""
    if crew.run(step, "exact").failed is not None:
        raise DataError(
            f"{step.name}: a number became infinite or NaN: the values are too large for 32-bit floats, or too far "
            "from those of training; check them, and divide them by a constant if they are right"
        )
    return step


@dataclass(frozen=True, eq=False)
class BoundedItems:
    """Column factors, the longest first, and upper bounds of their scores."""

    panels: Floats
    bias: Floats
    heads: Floats
    basis: Floats
    reach: np.float32
    order: NDArray[np.int32]

    @classmethod
    def over(cls, H: Floats, c: Floats, crew: Crew) -> BoundedItems | None:
        """The bounds of H [n, padded] and the column biases c; None where squares might overflow or vanish."""
        largest = max(float(np.abs(H).max()), float(np.abs(c).max(initial=0.0)))
        if not 1e-15 < largest < 1e15:
            return None
        heads, basis = topn.bounds_of(H, H.shape[1] // _BOUND_SHARE)
        length = np.sqrt(np.einsum("ik,ik->i", heads, heads))
        order = np.argsort(-length, kind="stable").astype(np.int32)
        panels, bias = _packed(H[order], c[order] if len(c) else c, crew)
        rounding = max(1.0, H.shape[1] / 64) ** 1.5
        reach = np.float32(1.01 * rounding * max(float(length.max()), largest))
        return cls(panels, bias, _packed(heads[order], _NONE, crew)[0], basis, reach, order)


def _packed(H: Floats, c: Floats, crew: Crew) -> tuple[Floats, Floats]:
    """Panels of H [n, width] and of the biases c [n] (or length 0)."""
    panels, bias = topn.panels_for(*H.shape)
    bounds = parts(len(bias), _PARTS, 16)
    order = independent(len(bounds) - 1)
    run(crew, make_step("pack", topn.pack_worker, order, np.diff(bounds), bounds, H, c, panels, bias))
    return panels, bias


@dataclass(frozen=True, eq=False)
class TopNIndex:
    """Column factors, stored for the search of the best n."""

    H: Floats  # [items, padded]
    c: Floats  # [items] or [0]
    items: int

    @classmethod
    def over(cls, H: Floats, c: Floats, crew: Crew) -> TopNIndex:
        """An index of H [n, padded] and the column biases c [n] (or length 0)."""
        found = cls(H, c, len(H))
        if len(H) < _BOUNDED_ITEMS or H.shape[1] < _BOUNDED_WIDTH:
            found.packed(crew)
        return found

    def packed(self, crew: Crew) -> tuple[Floats, Floats]:
        """Panels and biases of the kernel; a large index makes them for the first search without bounds."""
        if "_packed" not in self.__dict__:
            self.__dict__["_packed"] = _packed(self.H, self.c, crew)
        found: tuple[Floats, Floats] = self.__dict__["_packed"]
        return found

    def bounded(self, rows: int, crew: Crew) -> BoundedItems | None:
        """Upper bounds of scores for the kernel, or None where a search of `rows` rows would not repay making them.

        They are made once. They decide which scores are computed, and never change one.
        """
        if "_bounded" not in self.__dict__:
            if rows < _BOUNDED_ROWS or self.items < _BOUNDED_ITEMS or self.H.shape[1] < _BOUNDED_WIDTH:
                return None
            self.__dict__["_bounded"] = BoundedItems.over(self.H, self.c, crew)
        found: BoundedItems | None = self.__dict__["_bounded"]
        return found

    def best(
        self,
        W: Floats,
        rows: NDArray[Any],
        n: Any,
        crew: Crew,
        *,
        base: Floats = _NONE,
        seen: RatedItems | None = None,
        allowed: NDArray[np.bool_] | None = None,
        blank: bool = False,
    ) -> tuple[NDArray[np.int32], Floats]:
        """(ids, scores) [len(rows), n] of the best columns for rows of W; −1 and −inf where there are fewer.

        n : at least 1; limited to the number of columns
        blank : rows without factors get nothing: every item would have the score 0
        """
        n = min(int(n), self.items)
        need = len(rows) * n * (np.dtype(np.int32).itemsize + np.dtype(np.float32).itemsize)
        refuse_if_over(need, available_memory(), "ask for fewer items, or for some rows at a time")
        ids, scores = np.full((len(rows), n), -1, np.int32), np.full((len(rows), n), -np.inf, np.float32)
        if blank and not (some := W[rows].any(axis=1)).all():
            ids[some], scores[some] = self.best(W, rows[some], n, crew, base=base, seen=seen, allowed=allowed)
            return ids, scores
        # Blocks of this many rows share each panel while it is in cache.
        at_once = min(_MOST_AT_ONCE, max(1, len(rows) >> 11) * _ROWS_AT_ONCE)
        bounds = np.append(np.arange(0, len(rows), at_once), len(rows)).astype(np.int64)
        seen = seen or _NOTHING
        shown: tuple[Any, ...]
        if (found := self.bounded(len(rows), crew)) is None:
            shown = *self.packed(crew), *topn.NO_BOUNDS
        else:
            shown = found.panels, found.bias, found.heads, found.basis, found.reach, found.order
            allowed = None if allowed is None else allowed[found.order]
        words = topn.allowed_words(self.items, allowed)
        args = (bounds, rows, W, base, *shown, words, seen.indptr, seen.indices, ids, scores)
        order = independent(len(bounds) - 1)
        run(crew, make_step("recommend", topn.recommend_worker, order, np.diff(bounds), *args))
        return ids, scores


def similar(
    factors: Floats, cols: NDArray[Any], n: int, crew: Crew, metric: str = "cosine"
) -> tuple[NDArray[np.int32], Floats]:
    """(ids, similarities) [len(cols), n] of the columns nearest in direction, without the column itself.

    A column without ratings has no factors: it is similar to no other column.

    metric : "cosine", or "dot" for inner products
    """
    H = whole_lanes(factors)
    unit = H
    if metric == "cosine":
        unit = np.empty_like(H)
        bounds = parts(len(H), _PARTS, _LEAST)
        order = independent(len(bounds) - 1)
        run(crew, make_step("normalise", topn.normalise_worker, order, np.diff(bounds), bounds, H, unit))
    itself = RatedItems(np.arange(len(H) + 1, dtype=np.int64), np.arange(len(H), dtype=np.int32))
    return TopNIndex.over(unit, _NONE, crew).best(
        unit, cols, n, crew, seen=itself, allowed=np.asarray(factors.any(axis=1)), blank=True
    )


def names(found: NDArray[np.int32], ids: IdMap | None) -> NDArray[Any]:
    """Convert indices to the users' ids; −1 (no item) becomes an empty string if ids are text."""
    if ids is None:
        return found
    named_ids = np.where(found >= 0, found, 0)
    decoded = ids.decode(named_ids.ravel()).reshape(found.shape)
    if ids.is_text:
        decoded = decoded.astype(object)
    decoded[found < 0] = "" if ids.is_text else -1
    return decoded
