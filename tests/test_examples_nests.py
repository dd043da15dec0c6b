"""Examples with three indices and with dynamic programming: what they compute, and the same bits everywhere."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.sparse.csgraph import floyd_warshall

import stretto as st
from examples_run import load, strategies, three_ways

shortest_paths, alignment, heat, tensors = (load(name) for name in ("shortest_paths", "alignment", "heat", "tensors"))


@pytest.mark.parametrize(("n", "options"), [(30, {"blocks": 4}), (37, {"blocks": (5, 3)}), (48, {})])
def test_shortest_paths(n: int, options: dict[str, Any]) -> None:
    D = shortest_paths.generate(n)
    plan = three_ways(shortest_paths.shortest_paths.using(**options), lambda: (D.copy(),), rtol=0, atol=0)
    assert strategies(plan) == ["stepped"]
    found, plain = D.copy(), D.copy()
    shortest_paths.shortest_paths.using(runtime=st.Threads(3), **options)(found)
    shortest_paths.shortest_paths.plain(plain)
    assert found.tobytes() == plain.tobytes()
    np.testing.assert_allclose(found, floyd_warshall(np.where(np.isinf(D), 0, D)), rtol=1e-12)


def test_alignment() -> None:
    a, b = alignment.generate(300)
    best, one, two = alignment.align(a, b)
    pairs = [(x, y) for x, y in zip(one, two, strict=True)]
    same = sum(x == y for x, y in pairs)
    gaps = sum(-1 in pair for pair in pairs)
    assert best == alignment.SAME * same + alignment.OTHER * (len(pairs) - same - gaps) - alignment.GAP * gaps
    assert same >= 59
    letters = [x for x in one if x >= 0]
    assert any(letters == a[k : k + len(letters)].tolist() for k in range(len(a)))


def test_alignment_is_the_same_everywhere() -> None:
    a, b = alignment.generate(60)
    plan = three_ways(
        alignment.fill.using(blocks=(4, 3)), lambda: (np.zeros((61, 61), np.int32), a, b, 3, -3, 2), rtol=0, atol=0
    )
    assert strategies(plan) == ["2d ordered"]


def test_heat() -> None:
    steps, n = 30, 33
    U, V = np.zeros((steps + 1, n, n)), np.zeros((2, n, n))
    U[0] = V[0] = heat.start(n)
    heat.keep(U, 0.2)
    heat.swap(V, steps + 1, 0.2)
    np.testing.assert_array_equal(U[steps], V[steps % 2])
    np.testing.assert_allclose(U[steps], heat.solution(n, steps, 0.2), atol=1e-3)


def test_heat_is_the_same_everywhere() -> None:
    U = np.random.default_rng(0).random((7, 12, 15))
    assert strategies(three_ways(heat.keep.using(blocks=4), lambda: (U.copy(), 0.2), rtol=1e-13)) == ["2d transformed"]
    V = U[:2]
    assert strategies(three_ways(heat.swap.using(blocks=4), lambda: (V.copy(), 9, 0.2), rtol=1e-13)) == [
        "2d transformed"
    ]


def falls(errors: list[float]) -> bool:
    return all(after < 1.02 * before for before, after in pairwise(errors))


def test_tensor_factors_are_found() -> None:
    data = tensors.generate(8000, (40, 30, 20), rank=2)
    _, errors = tensors.cp(data, rank=3, epochs=40)
    assert falls(errors)
    assert errors[-1] < 0.1
    _, G, errors = tensors.tucker(data, (2, 2, 2), epochs=40)
    assert G.shape == (2, 2, 2)
    assert falls(errors)
    assert errors[-1] < 0.1


def factors(*ranks: int) -> tuple[Any, ...]:
    shape = (40, 30, 20)
    return tuple(st.random((n, r), dtype="f8", seed=k) for k, (n, r) in enumerate(zip(shape, ranks, strict=True)))


@pytest.mark.parametrize("options", [{}, {"blocks": 4}, {"blocks": 3, "width": 2}])
def test_tensor_loops_are_the_same_everywhere(options: dict[str, Any]) -> None:
    data = tensors.generate(500, (40, 30, 20))
    plan = three_ways(
        tensors.cp_epoch.using(**options),
        lambda: (data, *factors(3, 3, 3), 0.01, 0.001, st.accumulator(0.0)),
        rtol=1e-9,
    )
    assert strategies(plan) == ["nd unordered"]
    plan = three_ways(
        tensors.tucker_epoch.using(**options),
        lambda: (data, *factors(2, 3, 2), st.random((2, 3, 2), dtype="f8", seed=9), 0.01, 0.001, st.accumulator(0.0)),
        rtol=1e-9,
    )
    assert strategies(plan) == ["nd unordered"]


def test_a_rotation_along_three_axes_on_nodes() -> None:
    data = tensors.generate(600, (40, 30, 20))
    found = []
    for runtime in (st.Serial(), st.Simulated(nodes=2), st.Simulated(nodes=4)):
        given = factors(3, 3, 3)
        tensors.cp_epoch.using(runtime=runtime, blocks=5)(data, *given, 0.01, 0.001, st.accumulator(0.0))
        found.append(b"".join(np.asarray(one).tobytes() for one in given))
    assert found[0] == found[1] == found[2]
