"""Coordinate descent in rounds: the gather, update and apply tasks of a round.

The objective is Σ loss(y, z) + l1·‖β‖₁ + ½·l2·‖β‖², z = Xβ + intercept. The *pull* v of a row is the negative
derivative of its loss: y − z for the squared loss, y·σ(−y z) for the logistic one. A round updates jobs (columns j):

    gather    partial sums of x_j · v over a block of rows (or over all rows, for some of the jobs)
    renew     add them by a fixed tree; new = soft(h·old + x_j·v, l1) / (h + l2), h the curvature of column j
    apply     add the changes to the rows of a block

Round t gathers from v after round t − s, and `old` is β after round t − s; the change goes to β after round t − 1.

With an intercept, columns count as centred, but the stored columns do not change: one number per round, `level`, takes
the mean's part off x_j·v. Squared: v holds y − Xβ, and level is its mean, the best intercept. Logistic: z holds Xβ, and
level is the intercept; the mean of v updates it.

p columns, n rows, B row blocks, ring buffers of D rounds: the data of round t is at index t mod D.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stretto.kernels.core.compile import kernel, merged
from stretto.kernels.factorization.loss_codes import LOGISTIC
from stretto.kernels.numeric import vector
from stretto.kernels.numeric.scalar import exp, log

# Slots of `CoordinateProblem.facts`.
ROWS, DENSE, LOSS, INTERCEPT, BLOCKS = range(5)
FACTS = 5
PENALTY_1, PENALTY_2 = range(2)  # slots of `CoordinateProblem.penalty`
# Slots of `CoordinateProblem.counts`.
SAMPLES, UPDATES, FAILED = range(3)
COUNTS = 3


class CoordinateProblem(NamedTuple):
    """The data, the coefficients, and the rounds in progress. Dense: `values` by columns, the next three empty."""

    facts: Any  # [5] int64: see the slots above
    penalty: Any  # [2] l1, l2
    values: Any  # [entries]
    indices: Any  # [entries] int32
    indptr: Any  # [p + 1] int64
    cuts: Any  # [p, B + 1] int32: entries of a column before each row block
    bounds: Any  # [B + 1] int64 rows
    y: Any  # [n]; logistic: −1 or 1
    curvature: Any  # [p] h
    mean: Any  # [p] mean of a column; 0 without an intercept
    beta: Any  # [p]
    moved: Any  # [p] int64: the last round that updated the column
    z: Any  # [n] Xβ; logistic only
    v: Any  # [n] pulls
    touched: Any  # [n] int64: the last round that changed the row; logistic only
    jobs: Any  # [D, width] int64: columns of each round
    count: Any  # [D] int64: how many columns
    partial: Any  # [D, parts, width] partial sums of x_j · v
    change: Any  # [D, width] change of β
    before: Any  # [D, width] β before the change
    level: Any  # [D] see above
    pulls: Any  # [D, B] sums of v; logistic with an intercept only
    counts: Any  # [3] int64: entries of the columns updated, updates, first round with a non-finite number


@merged
def _dot_dense(values, start, v, low, high):
    kind = np.float64(0.0)
    total, other = vector.splat(kind), vector.splat(kind)
    at = low
    while at + 32 <= high:
        x = vector.cast(vector.load(values, start + at), kind)
        total = vector.fma(x, vector.load(v, at), total)
        x = vector.cast(vector.load(values, start + at + 16), kind)
        other = vector.fma(x, vector.load(v, at + 16), other)
        at += 32
    dot = vector.total(vector.add(total, other))
    while at < high:
        dot += np.float64(values[start + at]) * v[at]
        at += 1
    return dot


@merged
def _dot_sparse(values, indices, begin, end, v):
    a, b, c, d = 0.0, 0.0, 0.0, 0.0  # four independent sums
    e = begin
    while e + 4 <= end:
        a += vector.get(values, e) * vector.get(v, np.int64(vector.get(indices, e)))
        b += vector.get(values, e + 1) * vector.get(v, np.int64(vector.get(indices, e + 1)))
        c += vector.get(values, e + 2) * vector.get(v, np.int64(vector.get(indices, e + 2)))
        d += vector.get(values, e + 3) * vector.get(v, np.int64(vector.get(indices, e + 3)))
        e += 4
    while e < end:
        a += vector.get(values, e) * vector.get(v, np.int64(vector.get(indices, e)))
        e += 1
    return (a + b) + (c + d)


@merged
def gather_rows(problem, slot, b):
    """Compute the partial sums of all jobs over the rows of block b."""
    values, indices, indptr, cuts = problem.values, problem.indices, problem.indptr, problem.cuts
    jobs, partial, v = problem.jobs, problem.partial, problem.v
    rows, low, high = problem.facts[ROWS], problem.bounds[b], problem.bounds[b + 1]
    dense = problem.facts[DENSE] != 0
    for k in range(problem.count[slot]):
        j = jobs[slot, k]
        if dense:
            partial[slot, b, k] = _dot_dense(values, j * rows, v, low, high)
        else:
            begin, end = indptr[j] + cuts[j, b], indptr[j] + cuts[j, b + 1]
            partial[slot, b, k] = _dot_sparse(values, indices, begin, end, v)


@merged
def gather_columns(problem, slot, first, step):
    """Compute the whole sums of the jobs first, first + step, …"""
    values, indices, indptr = problem.values, problem.indices, problem.indptr
    jobs, partial, v = problem.jobs, problem.partial, problem.v
    rows, dense = problem.facts[ROWS], problem.facts[DENSE] != 0
    for k in range(first, problem.count[slot], step):
        j = jobs[slot, k]
        if dense:
            partial[slot, 0, k] = _dot_dense(values, j * rows, v, 0, rows)
        else:
            partial[slot, 0, k] = _dot_sparse(values, indices, indptr[j], indptr[j + 1], v)


@merged
def _fold(partial, slot, parts, k):
    """Add the parts by a fixed binary tree, in place: neighbours first."""
    step = 1
    while step < parts:
        for b in range(0, parts - step, 2 * step):
            partial[slot, b, k] += partial[slot, b + step, k]
        step *= 2
    return partial[slot, 0, k]


@merged
def _value_before(problem, j, t, depth):
    """Return β_j after round t − depth, for a j that a later round has changed."""
    ring = problem.count.shape[0]
    for u in range(max(1, t - depth + 1), t):
        for k in range(problem.count[u % ring]):
            if problem.jobs[u % ring, k] == j:
                return problem.before[u % ring, k]
    return problem.beta[j]


@merged
def renew(problem, t, depth):
    """Add up the sums of round t, update β and record the changes."""
    facts, jobs, partial, change, before = problem.facts, problem.jobs, problem.partial, problem.change, problem.before
    beta, moved, curvature, mean, indptr = problem.beta, problem.moved, problem.curvature, problem.mean, problem.indptr
    ring, rows, parts = problem.count.shape[0], facts[ROWS], partial.shape[1]
    slot, seen = t % ring, max(0, t - depth)
    l1, l2 = problem.penalty[PENALTY_1], problem.penalty[PENALTY_2]
    level, total = problem.level[(t - 1) % ring], 0.0
    if facts[INTERCEPT] != 0:
        if facts[LOSS] == LOGISTIC:
            pulls = problem.pulls
            for b in range(facts[BLOCKS]):
                total += pulls[seen % ring, b]
            level += 4.0 * total / rows  # one step for the intercept: its curvature is at most n/4
        else:
            total = problem.level[seen % ring] * rows
    for k in range(problem.count[slot]):
        j = jobs[slot, k]
        old = beta[j]
        late = moved[j] > seen
        if late:
            old = _value_before(problem, j, t, depth)
        pull = _fold(partial, slot, parts, k) - mean[j] * total
        h = curvature[j]
        new = 0.0
        if h > 0.0:
            u = h * old + pull
            if u > l1:
                new = (u - l1) / (h + l2)
            elif u < -l1:
                new = (u + l1) / (h + l2)
        d = new - old
        before[slot, k] = beta[j]
        change[slot, k] = d
        beta[j] = beta[j] + d if late else new
        moved[j] = t
        level -= mean[j] * d
        problem.counts[SAMPLES] += rows if facts[DENSE] != 0 else indptr[j + 1] - indptr[j]
        if not np.isfinite(d) and problem.counts[FAILED] == 0:
            problem.counts[FAILED] = t
    problem.counts[UPDATES] += problem.count[slot]
    problem.level[slot] = level


@merged
def _logistic_pull(y, z):
    return y / (1.0 + exp(y * z))


@merged
def apply_changes(problem, t, b):
    """Add the changes of round t to the rows of block b."""
    values, indices, indptr, cuts = problem.values, problem.indices, problem.indptr, problem.cuts
    jobs, change, v, facts = problem.jobs, problem.change, problem.v, problem.facts
    slot = t % problem.count.shape[0]
    rows, low, high = facts[ROWS], problem.bounds[b], problem.bounds[b + 1]
    dense, logistic = facts[DENSE] != 0, facts[LOSS] == LOGISTIC
    target = problem.z if logistic else v
    met = 0
    for k in range(problem.count[slot]):
        d = change[slot, k] if logistic else -change[slot, k]
        if d == 0.0:
            continue
        j = jobs[slot, k]
        if dense:
            kind = np.float64(0.0)
            factor = vector.splat(d)
            at = low
            while at + 16 <= high:
                x = vector.cast(vector.load(values, j * rows + at), kind)
                vector.store(target, at, vector.fma(factor, x, vector.load(target, at)))
                at += 16
            while at < high:
                target[at] += d * np.float64(values[j * rows + at])
                at += 1
            met += high - low
        else:
            begin, end = indptr[j] + cuts[j, b], indptr[j] + cuts[j, b + 1]
            for e in range(begin, end):
                row = np.int64(vector.get(indices, e))
                vector.put(target, row, vector.get(target, row) + d * vector.get(values, e))
            met += end - begin
    if logistic:
        _refresh(problem, t, b, met)


@merged
def _refresh(problem, t, b, met):
    """Recompute the pulls of the rows of block b after round t, and their sum for the intercept.

    `met` is the number of entries that changed.
    """
    indices, indptr, cuts = problem.indices, problem.indptr, problem.cuts
    y, z, v, touched = problem.y, problem.z, problem.v, problem.touched
    facts, jobs, change = problem.facts, problem.jobs, problem.change
    slot, low, high = t % problem.count.shape[0], problem.bounds[b], problem.bounds[b + 1]
    level = problem.level[slot]
    if facts[INTERCEPT] != 0 or met >= high - low:
        total = 0.0
        for row in range(low, high):
            pull = _logistic_pull(y[row], z[row] + level)
            v[row] = pull
            total += pull
        if facts[INTERCEPT] != 0:
            problem.pulls[slot, b] = total
        return
    if met == 0:
        return
    for k in range(problem.count[slot]):
        if change[slot, k] != 0.0:
            j = jobs[slot, k]
            for e in range(indptr[j] + cuts[j, b], indptr[j] + cuts[j, b + 1]):
                row = indices[e]
                if touched[row] != t:
                    touched[row] = t
                    v[row] = _logistic_pull(y[row], z[row])


@kernel
def pull_rows(problem):
    """Compute v and its sums before the first round."""
    for b in range(problem.facts[BLOCKS]):
        total = 0.0
        for row in range(problem.bounds[b], problem.bounds[b + 1]):
            pull = _logistic_pull(problem.y[row], problem.z[row] + problem.level[0])
            problem.v[row] = pull
            total += pull
        problem.pulls[0, b] = total


@kernel
def losses(problem, support, z, level, out):
    """out [B, 2]: Σ loss and Σ (y − z) of each block, computed anew from β.

    support: the j with β_j ≠ 0; z [n]: scratch.

    Squared losses are (y − Xβ − level)²/2, logistic ones log(1 + exp(−y(Xβ + level))).
    """
    facts, beta, values, indices, indptr = problem.facts, problem.beta, problem.values, problem.indices, problem.indptr
    rows, dense = facts[ROWS], facts[DENSE] != 0
    z[:] = level
    for k in range(support.shape[0]):
        j = support[k]
        if dense:
            for row in range(rows):
                z[row] += beta[j] * np.float64(values[j * rows + row])
        else:
            for e in range(indptr[j], indptr[j + 1]):
                z[indices[e]] += beta[j] * np.float64(values[e])
    for b in range(facts[BLOCKS]):
        loss, rest = 0.0, 0.0
        for row in range(problem.bounds[b], problem.bounds[b + 1]):
            if facts[LOSS] == LOGISTIC:
                m = problem.y[row] * z[row]
                loss += log(1.0 + exp(-m)) if m > 0.0 else log(1.0 + exp(m)) - m
            else:
                r = problem.y[row] - z[row]
                loss += 0.5 * r * r
                rest += r
        out[b, 0], out[b, 1] = loss, rest
