"""Local alignment of two sequences, by Smith and Waterman: the most similar stretch of both.

python examples/alignment.py                           two sequences of 2,000 letters
python examples/alignment.py 10000                     as long as you like

An element of the score matrix needs those to its left, above, and above to the left. Blocks along a diagonal run
together; the scores are those of the loop as it is written.
"""

import sys
import time

import numpy as np

import stretto as st

SAME, OTHER, GAP = 3, -3, 2


@st.parallel
def fill(S, a, b, same, other, gap):
    n, m = S.shape
    for i in range(1, n):
        for j in range(1, m):
            step = same if a[i - 1] == b[j - 1] else other
            S[i, j] = max(0, S[i - 1, j - 1] + step, S[i - 1, j] - gap, S[i, j - 1] - gap)


def align(a, b):
    """The best score, and the aligned stretches as two lists of letters, -1 for a gap."""
    S = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    fill(S, a, b, SAME, OTHER, GAP)
    i, j = (int(k) for k in np.unravel_index(S.argmax(), S.shape))
    best, one, two = int(S[i, j]), [], []
    while S[i, j] > 0:
        step = SAME if a[i - 1] == b[j - 1] else OTHER
        if S[i, j] == S[i - 1, j - 1] + step:
            i, j = i - 1, j - 1
            one.append(int(a[i]))
            two.append(int(b[j]))
        elif S[i, j] == S[i - 1, j] - GAP:
            i -= 1
            one.append(int(a[i]))
            two.append(-1)
        else:
            j -= 1
            one.append(-1)
            two.append(int(b[j]))
    return best, one[::-1], two[::-1]


def generate(n, seed=0):
    """Two random sequences of four letters that share a stretch, with a letter missing in one of them."""
    draw = np.random.default_rng(seed)
    a, b = draw.integers(0, 4, n), draw.integers(0, 4, n)
    stretch = draw.integers(0, 4, n // 5)
    a[n // 4 : n // 4 + len(stretch)] = stretch
    b[n // 2 : n // 2 + len(stretch) - 1] = np.delete(stretch, len(stretch) // 2)
    return a, b


if __name__ == "__main__":
    align(*generate(100))  # compiles
    start = time.perf_counter()
    best, one, _ = align(*generate(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
    print(f"{time.perf_counter() - start:.2f} s; score {best} for a stretch of {len(one)} letters")
