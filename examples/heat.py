"""Heat in a plate: explicit time steps of the heat equation on the unit square, with edges that are kept at 0.

python examples/heat.py                                101 points a side, 200 time steps
python examples/heat.py 401 500                        as many as you like

`keep` has a plate for each time; `swap` has two that take turns. In both, a point needs its neighbours of the step
before. The planner skews the plate by the time, so that blocks run across several time steps, or runs one time step
after the other where it cannot know which of the two plates is which.
"""

import sys

import numpy as np

import stretto as st


@st.parallel
def keep(U, r):
    steps, n, m = U.shape
    for t in range(1, steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                around = U[t - 1, i - 1, j] + U[t - 1, i + 1, j] + U[t - 1, i, j - 1] + U[t - 1, i, j + 1]
                U[t, i, j] = U[t - 1, i, j] + r * (around - 4 * U[t - 1, i, j])


@st.parallel
def swap(U, steps, r):
    n, m = U.shape[1], U.shape[2]
    for t in range(1, steps):
        for i in range(1, n - 1):
            for j in range(1, m - 1):
                old = U[(t - 1) % 2, i, j]
                above, below = U[(t - 1) % 2, i - 1, j], U[(t - 1) % 2, i + 1, j]
                left, right = U[(t - 1) % 2, i, j - 1], U[(t - 1) % 2, i, j + 1]
                U[t % 2, i, j] = old + r * (above + below + left + right - 4 * old)


def start(n):
    """A plate with one wave along each axis, whose heat is known at any time."""
    x = np.linspace(0, 1, n)
    plate = np.outer(np.sin(np.pi * x), np.sin(np.pi * x))
    plate[[0, -1]] = plate[:, [0, -1]] = 0.0
    return plate


def solution(n, steps, r):
    """The heat after some steps, from the equation itself: a step is r / (n - 1)² long."""
    return start(n) * np.exp(-2 * np.pi**2 * steps * r / (n - 1) ** 2)


if __name__ == "__main__":
    n, steps = (int(given) for given in sys.argv[1:3]) if len(sys.argv) > 2 else (101, 200)
    U = np.zeros((2, n, n))
    U[0] = start(n)
    swap(U, steps + 1, 0.2)
    print(f"after {steps} steps: {U[steps % 2].max():.6f}, by the equation {solution(n, steps, 0.2).max():.6f}")
