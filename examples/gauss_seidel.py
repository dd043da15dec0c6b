"""Gauss-Seidel with over-relaxation for the Poisson equation -Δu = f on the unit square, u = 0 on its edge.

python examples/gauss_seidel.py                        129 points a side
python examples/gauss_seidel.py 513                    as many as you like

A point is set from its neighbours; those above it and to its left have been set in the same sweep, so the order counts,
and these loops keep it. With 5 points, blocks along a diagonal of the grid run together. With 9 points a point also
needs the one above and to the right, and no cut of the grid would do; the planner finds a skew of it that does.
"""

import sys

import numpy as np

import stretto as st


@st.parallel(ordered=True)
def sweep5(u, f, h, omega, change):
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            mean = (h * h * f[i, j] + u[i + 1, j] + u[i, j + 1] + u[i - 1, j] + u[i, j - 1]) / 4
            step = omega * (mean - u[i, j])
            change += step * step
            u[i, j] += step


@st.parallel(ordered=True)
def sweep9(u, f, h, omega, change):
    for i in range(1, u.shape[0] - 1):
        for j in range(1, u.shape[1] - 1):
            load = 8 * f[i, j] + f[i + 1, j] + f[i, j + 1] + f[i - 1, j] + f[i, j - 1]
            far = u[i + 1, j + 1] + u[i + 1, j - 1] + u[i - 1, j + 1] + u[i - 1, j - 1]
            near = u[i + 1, j] + u[i, j + 1] + u[i - 1, j] + u[i, j - 1]
            step = omega * ((h * h * load / 2 + far + 4 * near) / 20 - u[i, j])
            change += step * step
            u[i, j] += step


def problem(n):
    """Zeros to start from, the right-hand side, the width of a cell, and the solution."""
    x = np.linspace(0, 1, n)
    exact = np.outer(np.sin(np.pi * x), np.sin(2 * np.pi * x))
    return st.zeros((n, n), "f8"), st.state(5 * np.pi**2 * exact), 1 / (n - 1), exact


def solve(sweep, n=129, sweeps=400, every=100):
    u, f, h, exact = problem(n)
    change, omega = st.accumulator(0.0), 2 / (1 + np.sin(np.pi * h))
    for t in range(sweeps):
        change.reset()
        sweep(u, f, h, omega, change)
        if (t + 1) % every == 0:
            error = np.abs(np.asarray(u) - exact).max()
            print(f"{sweep.__name__} {t + 1:4}: step {change.get() ** 0.5:.1e}, error {error:.1e}")
    return u


if __name__ == "__main__":
    for sweep in (sweep5, sweep9):
        solve(sweep, int(sys.argv[1]) if len(sys.argv) > 1 else 129)
