"""Expand entries (document, word, count), grouped by visit, to tokens in runs of one word.

Inside a visit tokens are sorted by word and, for each word, by document, for any order of the input; a word that occurs
five times in a document is five tokens.
"""

from __future__ import annotations

import numpy as np

from stretto.kernels.core.claims import next_visit
from stretto.kernels.core.compile import kernel
from stretto.kernels.core.scratch import empty, zeros
from stretto.kernels.factorization.grid import _sort_by as sort_by


@kernel(allocates=True)
def measure_worker(pass_, worker, out, ptr, words_in, word, count, tokens, runs, longest):
    """Count what the entries of each visit need: tokens [V], runs [V], tokens of the longest run [V] (int64).

    ptr [V + 1]: entries of each visit; words_in [V]: words of its column block.
    """
    widest = 0
    for v in range(words_in.shape[0]):
        widest = max(widest, words_in[v])
    seen = zeros(widest, np.int64)
    v = next_visit(pass_, worker)
    while v >= 0:
        seen[: words_in[v]] = 0
        whole = np.int64(0)
        for e in range(ptr[v], ptr[v + 1]):
            n = np.int64(count[e])
            seen[np.int64(word[e])] += n
            whole += n
        several = np.int64(0)
        most = np.int64(0)
        for w in range(words_in[v]):
            several += np.int64(seen[w] > 0)
            most = max(most, seen[w])
        tokens[v], runs[v], longest[v] = whole, several, most
        out[v] = whole
        v = next_visit(pass_, worker, v)


@kernel(allocates=True)
def spread_worker(
    pass_, worker, out, ptr, docs_in, words_in, doc, word, count, token_ptr, run_ptr, tokens, run_word, run_length
):
    """Write the tokens and runs of each visit; tokens [n]: their documents, counted within the row block."""
    longest = 0
    widest = 0
    for v in range(ptr.shape[0] - 1):
        longest = max(longest, ptr[v + 1] - ptr[v])
        widest = max(widest, docs_in[v], words_in[v])
    one = empty(longest, np.int32)
    two = empty(longest, np.int32)
    first = empty(widest + 1, np.int32)
    v = next_visit(pass_, worker)
    while v >= 0:
        lo, n = ptr[v], ptr[v + 1] - ptr[v]
        for e in range(n):
            one[e] = e
        sort_by(doc[lo : lo + n], docs_in[v], one, n, first, two)
        sort_by(word[lo : lo + n], words_in[v], two, n, first, one)
        t, run = token_ptr[v], run_ptr[v]
        last = np.int64(-1)
        for e in range(n):
            at = lo + np.int64(one[e])
            w = np.int64(word[at])
            if np.int64(count[at]) == 0:
                continue  # a stored zero gives no token, and no run was counted for it
            if w != last:
                if last >= 0:
                    run += 1
                run_word[run] = w
                run_length[run] = 0
                last = w
            for _ in range(np.int64(count[at])):
                tokens[t] = doc[at]
                t += 1
                run_length[run] += 1
        out[v] = t - token_ptr[v]
        v = next_visit(pass_, worker, v)
