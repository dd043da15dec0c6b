"""Compiled loops of server functions: the built-in update rules, and loops around users' row functions.

A batch is slots [n] int64 and deltas [n, cols]; a slot may occur more than once, and entries are applied in order. For
entry i: row w = values[slots[i]], states state[slots[i]] [states, cols], and old[i], the state's snapshot for the
version of the row from which the change was computed (versioned rules; otherwise old has no rows):

    ADD           w += g
    AVERAGE       w += g / params[0]
    ADAGRAD       z += g²,  w −= α / √z · g                              α = params[0]; state: z
    PROXIMAL      w = soft(w − α g, params[1]) / params[2]               α = params[0]
    ADAREVISION   b = G − old,  η₀ = α / √z′,  z += g² + 2gb,  z′ = max(z′, z),  η = α / √z′,
                  w += −ηg + (η₀ − η)b,  G += g                          α = params[0]; states: G, z, z′

where soft(x, t) moves x towards zero by t. All arithmetic is in the dtype of the arrays, one operation after the other,
so a NumPy implementation has the same bits. params have the dtype of state. scale [cap] receives the mean factor of the
last change; moved [cap] float64 is increased by the distance that the row moved, Σ|w after − w before|; size [cap]
receives Σ|w|. Unused outputs are empty: scale, or moved and size.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from stretto.kernels.core.compile import inner, kernel
from stretto.kernels.core.scratch import empty

ADD, AVERAGE, ADAGRAD, PROXIMAL, ADAREVISION = range(5)


@inner
def _adagrad(values, state, s, deltas, i, rate):
    for k in range(values.shape[1]):
        g = deltas[i, k]
        z = state[s, 0, k] + g * g
        state[s, 0, k] = z
        values[s, k] = values[s, k] - rate / np.sqrt(z) * g


@inner
def _proximal(values, s, deltas, i, rate, shrink, divide):
    zero = rate - rate
    for k in range(values.shape[1]):
        x = values[s, k] - rate * deltas[i, k]
        values[s, k] = (max(x - shrink, zero) + min(x + shrink, zero)) / divide


@inner
def _adarevision(values, state, s, deltas, i, old, rate):
    for k in range(values.shape[1]):
        g = deltas[i, k]
        total = state[s, 0, k]
        b = total - old[i, k]
        gb = g * b
        largest = state[s, 2, k]
        before = rate / np.sqrt(largest)
        z = state[s, 1, k] + (g * g + (gb + gb))
        largest = max(largest, z)
        after = rate / np.sqrt(largest)
        state[s, 0, k] = total + g
        state[s, 1, k] = z
        state[s, 2, k] = largest
        values[s, k] = values[s, k] + ((before - after) * b - after * g)


@inner
def _mean_step(state, s, which, rate):
    total = 0.0
    for k in range(state.shape[2]):
        total += rate / np.sqrt(state[s, which, k])
    return total / state.shape[2]


@kernel(allocates=True)
def apply_rows(kind, values, state, slots, deltas, old, params, scale, moved, size):
    """Apply one of the rules above to every entry in order."""
    cols = values.shape[1]
    scaled, tracked = scale.shape[0] > 0, moved.shape[0] > 0
    before = empty(cols, values.dtype)
    for i in range(slots.shape[0]):
        s = slots[i]
        if tracked:
            for k in range(cols):
                before[k] = values[s, k]
        factor = 1.0
        if kind == ADD:
            for k in range(cols):
                values[s, k] += deltas[i, k]
        elif kind == AVERAGE:
            for k in range(cols):
                values[s, k] += deltas[i, k] / params[0]
            factor = 1.0 / params[0]
        elif kind == ADAGRAD:
            _adagrad(values, state, s, deltas, i, params[0])
            if scaled:
                factor = _mean_step(state, s, 0, params[0])
        elif kind == PROXIMAL:
            _proximal(values, s, deltas, i, params[0], params[1], params[2])
            factor = params[0]
        else:
            _adarevision(values, state, s, deltas, i, old, params[0])
            if scaled:
                factor = _mean_step(state, s, 2, params[0])
        if scaled:
            scale[s] = factor
        if tracked:
            far, total = 0.0, 0.0
            for k in range(cols):
                far += abs(float(values[s, k]) - float(before[k]))
                total += abs(float(values[s, k]))
            moved[s] += far
            size[s] = total


# Users' functions. A subscript out of range must not write into another row, so they are recompiled with bounds checks,
# whatever their own decorator requests.


def _row_function(function: Callable[..., Any]) -> Any:
    plain = getattr(function, "py_func", function)
    return numba.njit(nogil=True, error_model="numpy", boundscheck=True)(plain)


@functools.lru_cache(maxsize=256)
def user_apply(function: Callable[..., Any]) -> Callable[..., None]:
    """Build apply(values, state, slots, deltas, old, params, scale [n]): the row function for every entry in order.

    deltas, old and params are read-only, so a function that writes to them does not compile.
    """
    row = _row_function(function)

    def each(values, state, slots, deltas, old, params, scale):
        nothing = old.reshape(old.size)[:0]
        for i in range(slots.shape[0]):
            s = slots[i]
            seen = old[i] if old.shape[0] > 0 else nothing
            scale[i] = row(values[s], state[s], deltas[i], seen, params)

    return numba.njit(nogil=True, error_model="numpy")(each)  # type: ignore[no-any-return]


@functools.lru_cache(maxsize=256)
def user_create(function: Callable[..., Any]) -> Callable[..., None]:
    """Build create(values, state, keys): the row function for every new row."""
    row = _row_function(function)

    def each(values, state, keys):
        for i in range(keys.shape[0]):
            row(values[i], state[i], keys[i])

    return numba.njit(nogil=True, error_model="numpy")(each)  # type: ignore[no-any-return]
