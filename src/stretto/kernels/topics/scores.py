"""Likelihood of Dirichlet priors given topic counts, and its gradient: histograms of the counts, and sums over them.

`histogram_worker`, `add_rows_worker` and `large_worker` read *rows of counts*: row r, of a document or of a word, holds
the number of tokens of each of K topics. rows [size] uint32 or uint16, flat; at [n] int64 where each row begins; length
[n] int32:

    length[r] ≥ 0    number of packed entries, topic << shift | count; entries with count 0 are ignored
    length[r] = −1   K counts, one for each topic

A visit v is the rows bounds[v] … bounds[v + 1].

`rises`, `pulls`, `length_fall` and `length_pull` are sums over a histogram: the log-likelihood of a Dirichlet prior and
its derivative. They need no table of lnΓ, since

    lnΓ(n + a) − lnΓ(a) = ln a + ln (a + 1) + … + ln (a + n − 1)
    ψ(n + a) − ψ(a)     = 1/a + 1/(a + 1) + … + 1/(a + n − 1)

and all counts of more than i share the term of a + i: one logarithm, or one division, for each i and topic. above
[C − 1, width] int64: how many counts, of those that are less than C, are more than i. topic, count [m] int64: the
larger ones, one by one. prior [width] float64; a width of 1 treats all topics as one.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.functions.gammas import digamma, lgamma
from stretto.kernels.numeric.scalar import log

_DENSE = -1


@kernel
def histogram_worker(pass_, worker, out, bounds, at, length, rows, shift, topics, mask, tally):
    """tally[worker, n, topic & mask] += the entries of a visit with count n; out [V]: those of C or more, skipped.

    tally [workers, C, width] int64. Sums of integers do not depend on which worker counts. A mask of −1 keeps topics
    separate, and width is K + 1 for the padding of packed rows, which is topic K. A small mask is for callers that need
    no topics; it still spreads neighbours over several counters, so that additions do not wait for each other.
    """
    mine = tally[worker]
    rare = mine.shape[0]
    low = (1 << shift) - 1
    v = next_visit(pass_, worker)
    while v >= 0:
        large = 0
        for r in range(bounds[v], bounds[v + 1]):
            first = at[r]
            if length[r] == _DENSE:
                for k in range(topics):
                    n = np.int64(rows[first + k])
                    if n < rare:
                        mine[n, k & mask] += 1
                    else:
                        large += 1
            else:
                for t in range(first, first + length[r]):
                    entry = np.int64(rows[t])
                    n = entry & low
                    if n < rare:
                        mine[n, (entry >> shift) & mask] += 1
                    else:
                        large += 1
        out[v] = large
        v = next_visit(pass_, worker, v)


@kernel
def add_rows_worker(pass_, worker, out, bounds, at, length, rows, shift, topics, sums):
    """sums[r, k] += the count of topic k in row r. sums [n, K] int64; a visit has its rows to itself."""
    low = (1 << shift) - 1
    v = next_visit(pass_, worker)
    while v >= 0:
        for r in range(bounds[v], bounds[v + 1]):
            first = at[r]
            if length[r] == _DENSE:
                for k in range(topics):
                    sums[r, k] += np.int64(rows[first + k])
            else:
                for t in range(first, first + length[r]):
                    entry = np.int64(rows[t])
                    sums[r, entry >> shift] += entry & low
        out[v] = bounds[v + 1] - bounds[v]
        v = next_visit(pass_, worker, v)


@kernel
def large_worker(pass_, worker, out, bounds, at, length, rows, shift, topics, rare, into, topic, count):
    """topic, count [into[V]] int64: the entries with a count of `rare` or more, those of visit v from into[v] on."""
    v = next_visit(pass_, worker)
    while v >= 0:
        to = into[v]
        if into[v + 1] > to:
            for r in range(bounds[v], bounds[v + 1]):
                first = at[r]
                packed = length[r] != _DENSE
                low = (1 << shift) - 1 if packed else -1
                for t in range(length[r] if packed else topics):
                    entry = np.int64(rows[first + t])
                    if entry & low >= rare:
                        topic[to] = entry >> shift if packed else t
                        count[to] = entry & low
                        to += 1
        out[v] = to - into[v]
        v = next_visit(pass_, worker, v)


@kernel
def rises(above, topic, count, prior, start, rise):
    """rise[k] = Σ lnΓ(n + prior[k]) − lnΓ(prior[k]) over all counts n of topic k. start [width] is scratch."""
    each = 1 if prior.shape[0] > 1 else 0
    for k in range(prior.shape[0]):
        rise[k] = 0.0
        start[k] = lgamma(prior[k])
    for i in range(above.shape[0]):
        for k in range(prior.shape[0]):
            if above[i, k] > 0:
                rise[k] += above[i, k] * log(prior[k] + i)
    for t in range(count.shape[0]):
        k = topic[t] * each
        rise[k] += lgamma(prior[k] + count[t]) - start[k]


@kernel
def pulls(above, topic, count, prior, start, pull):
    """pull[k] = Σ ψ(n + prior[k]) − ψ(prior[k]) over all counts n of topic k: the derivative of `rises`."""
    each = 1 if prior.shape[0] > 1 else 0
    for k in range(prior.shape[0]):
        pull[k] = 0.0
        start[k] = digamma(prior[k])
    for i in range(above.shape[0]):
        for k in range(prior.shape[0]):
            pull[k] += above[i, k] / (prior[k] + i)
    for t in range(count.shape[0]):
        k = topic[t] * each
        pull[k] += digamma(prior[k] + count[t]) - start[k]


@kernel
def length_fall(size, number, mass):
    """Σ_i number[i] (lnΓ(mass) − lnΓ(mass + size[i])); size, number [n] int64, mass the sum of a prior."""
    alone = lgamma(mass)
    total = 0.0
    for i in range(size.shape[0]):
        total += number[i] * (alone - lgamma(mass + size[i]))
    return total


@kernel
def length_pull(size, number, mass):
    """Σ_i number[i] (ψ(mass + size[i]) − ψ(mass)): the negative derivative of `length_fall` with respect to mass."""
    alone = digamma(mass)
    total = 0.0
    for i in range(size.shape[0]):
        total += number[i] * (digamma(mass + size[i]) - alone)
    return total
