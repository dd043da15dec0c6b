"""Strategies: well-known loops get the one they deserve, and random loops are never run in a wrong order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop_makers import ANY, RECORD, SIZE, WHOLE, access, dependent, index, number, random_accesses, random_dims
from stretto.errors import PlanError
from stretto.loops.analyse.dependence import vectors
from stretto.loops.analyse.facts import Access, ArrayExtent, Dim, Strategy
from stretto.loops.analyse.placement import placements
from stretto.loops.analyse.strategy.choose import choose
from stretto.loops.analyse.strategy.unimodular import apply

LINE = (Dim("i", 0, 1000),)
PLANE = (Dim("i", 0, 1000), Dim("j", 0, 400))
WIDTH = 16


def plan(
    accesses: Sequence[Access],
    dims: tuple[Dim, ...] = PLANE,
    *,
    ordered: bool | None = False,
    prefer: tuple[int, ...] | None = None,
    inspect: bool | None = False,
    serial: bool | None = None,
    shapes: dict[str, tuple[int, ...]] | None = None,
    kind: str = "grid",
) -> Strategy:
    """The strategy of a body; arrays are 1000 long along every axis unless given otherwise."""
    every = {a.array: (1000,) * len(a.subscripts) for a in accesses} | (shapes or {})
    return choose(
        vectors(accesses, dims, every),
        dims,
        accesses,
        {name: ArrayExtent(name, shape, 4) for name, shape in every.items()},
        ordered=ordered,
        buffered=any(a.mode == "buffer" for a in accesses),
        prefer=prefer,
        inspect=inspect,
        serial=serial,
        records=10_000,
        width=WIDTH,
        kind=kind,
    )


def why_not(strategy: Strategy) -> dict[str, str]:
    return {rejected.strategy: rejected.why for rejected in strategy.rejected}


# for (i, j), r in ratings: W[i], H[j] = ...
FACTORS = [
    access("read", "W", index(0), WHOLE, line=3, text="W[i]"),
    access("read", "H", index(1), WHOLE, line=3, text="H[j]"),
    access("fold", "loss", line=4, text="loss"),
    access("write", "W", index(0), WHOLE, line=5, text="W[i]"),
    access("write", "H", index(1), WHOLE, line=5, text="H[j]"),
]
FACTOR_SHAPES: dict[str, tuple[int, ...]] = {"W": (1000, 8), "H": (400, 8), "loss": ()}


def stencil(*offsets: tuple[int, int]) -> list[Access]:
    """A[i, j] from its neighbours, in place."""
    reads = [access("read", "A", index(0, a), index(1, b), line=3, text=f"A[i{a:+}, j{b:+}]") for a, b in offsets]
    return [*reads, access("write", "A", index(0), index(1), line=3, text="A[i, j]")]


FIVE = stencil((-1, 0), (1, 0), (0, -1), (0, 1))
NINE = stencil(*((a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0)))

# for (i, j), r in data: w[features] += ..., which nothing but the data can place
SPARSE = [
    access("read", "w", ANY, line=4, text="w[features[k]]"),
    access("write", "w", ANY, line=6, text="w[features[k]]"),
]


# --- which strategy -------------------------------------------------------------------------------------------------


def test_matrix_factorisation_rotates_the_smaller_factor() -> None:
    found = plan(FACTORS, shapes=FACTOR_SHAPES)
    assert (found.name, found.dims, found.waves) == ("2d unordered", (0, 1), False)
    assert found.moved == (("space i, time j", 400 * 8 * 15), ("space j, time i", 1000 * 8 * 15))
    assert list(why_not(found)) == ["independent", "1d"]
    assert why_not(found)["1d"] == (
        "i is not 0 in (+∞, 0): line 3 reads H[j], line 5 writes H[j]; "
        "j is not 0 in (0, +∞): line 3 reads W[i], line 5 writes W[i]"
    )
    assert [p[:2] for p in placements(found, FACTORS, PLANE)] == [
        ("W", "owned"),
        ("H", "rotating"),
        ("loss", "replicated"),
    ]


def test_the_other_factor_rotates_when_it_is_smaller() -> None:
    assert plan(FACTORS, shapes={"W": (1000, 8), "H": (400, 80), "loss": ()}).dims == (1, 0)


def test_ordered_matrix_factorisation_is_a_wavefront() -> None:
    found = plan(FACTORS, ordered=True, shapes=FACTOR_SHAPES)
    assert (found.name, found.dims) == ("2d ordered", (0, 1))
    assert "ordered=True" in why_not(found)["2d unordered"]


def test_one_array_alone_is_cut_along_its_index() -> None:
    found = plan([a for a in FACTORS if a.array != "H"], shapes=FACTOR_SHAPES)
    assert (found.name, found.dims) == ("1d", (0,))
    assert found.why == "i is 0 in every vector"


@pytest.mark.parametrize("ordered", [False, True])
def test_five_points(ordered: bool) -> None:
    found = plan(FIVE, ordered=ordered)
    # (1, 0) and (0, 1): a rotation is allowed too when any order will do.
    assert found.name == ("2d ordered" if ordered else "2d unordered")
    assert placements(found, FIVE, PLANE)[0][1] == "shared"


@pytest.mark.parametrize("ordered", [False, True])
def test_nine_points_need_a_skew(ordered: bool) -> None:
    found = plan(NINE, ordered=ordered)
    assert (found.name, found.transform, found.tiled) == ("2d transformed", ((1, 0), (1, 1)), True)
    assert found.why == "with time i and space i + j every vector is ≥ 0 in both"
    assert "(1, -1)" in why_not(found)["2d ordered"]
    assert placements(found, NINE, PLANE)[0][1] == "shared"


def test_a_wavefront_serves_an_unordered_loop_that_cannot_rotate() -> None:
    found = plan(stencil((-1, -1), (-1, 0), (0, -1)))
    assert found.name == "2d ordered"
    assert "i and j are both not 0 in (1, 1)" in why_not(found)["2d unordered"]


def test_rows_that_need_the_whole_row_before_run_one_at_a_time() -> None:
    found = plan([access("read", "A", index(0, -1), ANY), access("write", "A", index(0), index(1))])
    assert (found.name, found.tiled) == ("2d transformed", False)


def test_independent_loops_are_cut_where_least_moves() -> None:
    accesses = [access("write", "A", index(0), index(1)), access("read", "B", index(1), WHOLE)]
    found = plan(accesses)
    assert (found.name, found.dims, found.moved) == ("independent", (1,), (("j", 0), ("i", 15_000_000)))
    assert [p[1] for p in placements(found, accesses, PLANE)] == ["owned", "owned"]
    assert plan(accesses[:1]).dims == (0,)  # nothing moves either way: the longer one


def test_a_dimension_too_short_to_fill_the_width_comes_last() -> None:
    dims = (Dim("i", 0, 2), Dim("j", 0, 400))
    accesses = [access("write", "A", index(0), index(1)), access("read", "B", index(0), WHOLE)]
    assert plan(accesses, dims).dims == (1,)


def test_features_are_cut_in_one_dimension() -> None:
    # for f, n in product(range(features), range(rows)): histogram[f, bin[n, f]] += gradient[n]
    accesses = [
        access("read", "bin", index(1), index(0)),
        access("read", "gradient", index(1)),
        access("update", "histogram", index(0), ANY),
    ]
    found = plan(accesses)
    assert (found.name, found.dims) == ("1d", (0,))
    assert [p[1] for p in placements(found, accesses, PLANE)] == ["owned", "replicated", "owned"]


def test_last_of_a_row_is_one_dimensional() -> None:
    found = plan([access("write", "last", index(0), text="last[i]")])
    assert (found.name, found.dims) == ("1d", (0,))


def test_last_of_all_is_a_chain() -> None:
    last = [access("write", "last", number(0), line=3, text="last[0]")]
    found = plan(last)
    assert found.name == "chain"
    assert found.why.startswith("only stores over stores stand in the way: line 3 writes last[0]")
    # The visits of a chain follow the loop: the outermost range is cut, or the records as they come.
    assert [plan(last, ordered=ordered).dims for ordered in (None, True, False)] == [(0,)] * 3
    assert plan(last, kind="sparse").dims == ()
    assert plan(last, kind="sparse", ordered=True).dims == (0,)


def test_topics_keep_their_strategy_while_totals_are_buffered() -> None:
    accesses = [
        access("update", "D", index(0), ANY),
        access("update", "V", index(1), ANY),
        access("read", "N", WHOLE),
        access("buffer", "N", ANY),
    ]
    found = plan(accesses)
    assert (found.name, found.waves) == ("2d unordered", True)
    assert [p[1] for p in placements(found, accesses, PLANE)] == ["owned", "rotating", "served"]


def test_everything_buffered_is_data_parallel() -> None:
    accesses = [SPARSE[0], access("buffer", "w", ANY)]
    found = plan(accesses, LINE)
    assert (found.name, found.dims, found.waves) == ("buffered", (), True)
    assert placements(found, accesses, LINE) == (("w", "served", "its writes are buffered"),)


def test_a_plain_write_beside_buffers_keeps_a_cut() -> None:
    found = plan([access("write", "label", index(0)), access("buffer", "sums", ANY, WHOLE)], LINE)
    assert (found.name, found.dims, found.waves) == ("independent", (0,), True)
    by_record = plan([access("write", "label", RECORD), access("buffer", "sums", ANY, WHOLE)], LINE)
    assert by_record.name == "buffered"


def test_small_data_do_not_make_a_loop_fail() -> None:
    dims = (Dim("i", 0, 1), Dim("j", 0, 400))
    assert plan(FACTORS, dims, shapes=FACTOR_SHAPES).name == "1d"


def test_records_without_an_index() -> None:
    assert plan([access("write", "A", RECORD)], ()).name == "independent"
    with pytest.raises(PlanError, match="any two records"):
        plan([access("update", "A", number(0))], (), serial=False)


# --- refusals and overrides -----------------------------------------------------------------------------------------


def test_data_dependent_subscripts_are_refused_with_the_ways_out() -> None:
    with pytest.raises(PlanError) as caught:
        plan(SPARSE, LINE, serial=False)
    assert str(caught.value).splitlines() == [
        "no strategy runs this loop in parallel with the result of a serial one:",
        "  line 4 reads w[features[k]], line 6 writes w[features[k]]: iterations p and p + (+∞)",
        "ways out:",
        "  leave inspect=False out: the data are searched for iterations that do not meet",
        "  exempt the writes to w: pass dw = st.buffer(w) as one more argument and write dw[...] += …; "
        "other visits then see them later",
        "  split the loop in two, so that the accesses above are in different loops",
        "  leave serial=False out: the loop is compiled and runs in its order, on one worker",
    ]


def test_every_obstacle_is_told_at_once() -> None:
    with pytest.raises(PlanError) as caught:
        plan([*SPARSE, access("update", "count", number(0), line=7, text="count[0]")], LINE, serial=False)
    text = str(caught.value)
    assert "line 7 updates count[0] twice: iterations p and p + (+∞)" in text
    assert "pass dw = st.buffer(w)" in text
    assert "pass dcount = st.buffer(count)" in text
    assert "inspect=False" not in text


def test_serial_is_a_chain_where_nothing_else_applies() -> None:
    found = plan(SPARSE, LINE, serial=True)
    assert (found.name, found.dims) == ("chain", (0,))
    assert found.why.startswith("serial=True, and nothing runs in parallel: line 4 reads w[features[k]]")
    assert "chain" not in [r.strategy for r in found.rejected]
    assert plan(SPARSE, LINE, serial=True, kind="sparse").dims == ()  # the records as they come
    assert plan(SPARSE, LINE, serial=True, kind="sparse", ordered=True).dims == (0,)
    assert plan([access("update", "A", number(0))], (), serial=True).dims == ()
    assert plan(SPARSE, LINE, serial=True, inspect=True).name == "inspected"
    assert plan(FACTORS, serial=True, shapes=FACTOR_SHAPES).name == "2d unordered"


def test_without_options_the_data_are_inspected_and_then_the_order_is_kept() -> None:
    assert plan(SPARSE, LINE, inspect=None, serial=None).name == "inspected"
    assert plan(SPARSE, LINE, inspect=None, serial=False).name == "inspected"
    assert plan(SPARSE, LINE, inspect=None, serial=True).name == "chain"  # the user has said that this may be
    assert plan(FACTORS, inspect=None, serial=None, shapes=FACTOR_SHAPES).name == "2d unordered"
    counter = access("update", "count", number(0), line=7, text="count[0]")
    found = plan([*SPARSE, counter], LINE, inspect=None, serial=None)
    assert (found.name, found.dims) == ("chain", (0,))
    assert found.why == "nothing runs in parallel: line 4 reads w[features[k]], line 6 writes w[features[k]]: " + (
        "iterations p and p + (+∞)"
    )
    assert found.clashes[-1] == "line 7 updates count[0] twice: iterations p and p + (+∞)"
    assert any("pass dw = st.buffer(w)" in way for way in found.ways)
    assert why_not(found)["inspected"].startswith("whatever the data are, line 7 updates count")


def test_inspection_takes_over_where_only_the_data_know() -> None:
    found = plan(SPARSE, LINE, inspect=True)
    assert (found.name, found.dims) == ("inspected", ())
    assert plan(FACTORS, inspect=True, shapes=FACTOR_SHAPES).name == "2d unordered"  # nothing to inspect


def test_inspection_does_not_help_against_a_known_clash() -> None:
    counter = access("update", "count", number(0), line=7, text="count[0]")
    with pytest.raises(PlanError, match=r"inspect=True does not help: whatever the data are, line 7 updates count"):
        plan([*SPARSE, counter], LINE, inspect=True, serial=False)
    # Iterations in conflict keep the order of the loop: of records that is not the order of their indices.
    assert plan(SPARSE, LINE, inspect=True, ordered=True).name == "inspected"
    with pytest.raises(PlanError, match="keep the order of the records, not that of their indices"):
        plan(SPARSE, LINE, inspect=True, ordered=True, kind="sparse", serial=False)


def test_a_recurrence_is_refused_with_both_lines() -> None:
    accesses = [access("read", "A", index(0, -1), line=3, text="A[i - 1]"), access("write", "A", index(0), line=4)]
    with pytest.raises(PlanError, match=r"line 4 writes A, line 3 reads A\[i - 1\]: iterations p and p \+ \(1\)"):
        plan(accesses, LINE, serial=False)


def cube(*offsets: tuple[int, int, int]) -> list[Access]:
    """A[i, j, k] from other elements, in place."""
    reads = [access("read", "A", index(0, a), index(1, b), index(2, c), line=3) for a, b, c in offsets]
    return [access("write", "A", index(0), index(1), index(2), line=3), *reads]


# A step back, far to the right of either axis: no small skew helps.
FAR = cube((-1, 9, 0), (-1, 0, 9), (0, -1, 0), (0, 0, -1))
# Within a step, neither of the inner indices goes forward with the other.
ROUND = cube((-1, 9, 0), (0, -1, 1), (0, 0, -1))
CUBE = tuple(Dim(name, 0, 50) for name in "ijk")


def test_ranges_keep_their_order_unless_told_otherwise() -> None:
    assert plan(FACTORS, ordered=None, shapes=FACTOR_SHAPES).name == "2d ordered"
    assert plan(FACTORS, ordered=None, shapes=FACTOR_SHAPES, kind="sparse").name == "2d unordered"
    assert plan(FACTORS, ordered=None, shapes=FACTOR_SHAPES, kind="dense").name == "2d unordered"
    assert "ordered=False says that any" in why_not(plan(FACTORS, ordered=None, shapes=FACTOR_SHAPES))["2d unordered"]


@pytest.mark.parametrize("ordered", [None, True])
def test_where_no_cut_keeps_the_order_the_visits_follow_one_another(ordered: bool | None) -> None:
    assert (plan(ROUND, CUBE).name, set(plan(ROUND, CUBE).dims)) == ("2d unordered", {0, 2})
    found = plan(ROUND, CUBE, ordered=ordered)
    assert (found.name, found.dims) == ("chain", (0,))
    assert "with ordered=False, in another one, it runs as 2d unordered" in found.why
    with pytest.raises(PlanError, match=r"2d unordered: .* keeps? .*the order of the loop"):
        plan(ROUND, CUBE, ordered=ordered, prefer=(0, 2))


def test_inner_indices_run_in_blocks_within_the_steps_of_outer_ones() -> None:
    found = plan(FAR, CUBE, ordered=None)
    assert (found.name, found.dims, found.outer, found.tiled) == ("stepped", (1, 2), 1, True)
    assert found.why == "within one value of i, j and k are ≥ 0 in every vector"
    # A step that needs elements above and to the left of its own waits for the whole step before it.
    waits = plan([*FAR, *cube((-1, 9, 9))], CUBE, ordered=None)
    assert (waits.name, waits.tiled) == ("stepped", False)
    rows = plan(cube((-1, 9, 9), (0, -1, -9), (0, -1, 9)), CUBE, ordered=None)
    assert (rows.name, rows.dims, rows.outer) == ("stepped", (2,), 2)


# for (i, j, k), x in data: A[i], B[j], C[k] = ...
FACTORS_OF_THREE = [access("update", name, index(d), WHOLE, line=3, text=f"{name}[…]") for d, name in enumerate("ABC")]


def test_three_factors_rotate_together() -> None:
    found = plan(FACTORS_OF_THREE, CUBE, kind="sparse", ordered=None)
    assert (found.name, found.dims) == ("nd unordered", (0, 1, 2))
    assert plan(FACTORS_OF_THREE[:2], CUBE, kind="sparse", ordered=None).name == "2d unordered"
    four = (*CUBE, Dim("l", 0, 50))
    accesses = [*FACTORS_OF_THREE, access("update", "D", index(3), WHOLE, line=3, text="D[…]")]
    assert plan(accesses, four, kind="sparse", ordered=None).dims == (0, 1, 2, 3)
    assert "a rotation does not" in why_not(plan(FACTORS_OF_THREE, CUBE, ordered=None))["nd unordered"]


def test_three_ranges_may_be_skewed_along_two_of_them() -> None:
    heat = [access("write", "U", index(0, 1), index(1), index(2), line=3)] + [
        access("read", "U", index(0), index(1, b), index(2, c), line=3) for b, c in ((-1, 0), (1, 0), (0, -1), (0, 1))
    ]
    found = plan(heat, CUBE, ordered=None)
    assert (found.name, found.dims, found.tiled) == ("2d transformed", (0, 1), True)
    assert plan(heat, CUBE, kind="sparse", ordered=True).name == "chain"  # records have no places in between


def test_an_override_is_followed_or_refused_with_the_vector() -> None:
    assert plan(FACTORS, prefer=(1, 0), shapes=FACTOR_SHAPES).dims == (1, 0)
    with pytest.raises(PlanError, match=r"cut= asks:\n  1d: i is not 0 in \(\+∞, 0\): line"):
        plan(FACTORS, prefer=(0,), shapes=FACTOR_SHAPES)
    independent = [access("write", "A", index(0), index(1))]
    assert (plan(independent, prefer=(1,)).name, plan(independent, prefer=(1,)).dims) == ("independent", (1,))
    assert plan(independent, prefer=(1, 0)).dims == (1, 0)
    with pytest.raises(PlanError, match="they are 0: i, 1: j"):
        plan(independent, prefer=(2,))
    with pytest.raises(PlanError, match="2d unordered: i and j are both not 0"):
        plan([access("update", "A", number(0), line=3)], prefer=(0, 1))


def test_an_override_may_cut_a_buffered_loop() -> None:
    found = plan([SPARSE[0], access("buffer", "w", ANY)], LINE, prefer=(0,))
    assert (found.name, found.dims, found.waves) == ("independent", (0,), True)


# --- random loops ---------------------------------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_dependent_iterations_never_run_together_or_in_a_wrong_order(draw: random.Random) -> None:
    check(draw)


@pytest.mark.slow
def test_many_random_loops() -> None:
    names = [check(random.Random(seed)) for seed in range(5000)]
    # The sample is worth something only while it holds every strategy.
    assert {name for name in names if name} >= {
        "independent", "1d", "2d unordered", "2d ordered", "2d transformed", "buffered", "chain",
    }  # fmt: skip


def check(draw: random.Random) -> str:
    """Every dependence of a random loop against the finest cut its strategy allows; the name of the strategy."""
    dims = random_dims(draw, draw.choice((2, 2, 3)))
    accesses = random_accesses(draw, dims, draw.choice(("A", "AB")), 2)
    ordered = draw.choice((None, None, True, False, False))
    shapes = {a.array: (SIZE,) * len(a.subscripts) for a in accesses}
    try:
        found = plan(accesses, dims, ordered=ordered, shapes=shapes)
    except PlanError:
        return ""
    clashes = list(dependent(accesses, dims))
    for p, q, _, _ in clashes:  # p comes before q in the loop
        near, far = (tuple(point[d] for d in found.dims) for point in (p, q))
        if found.name in ("independent", "1d"):
            assert near == far
        elif found.name == "2d unordered":
            assert ordered is False
            assert near[0] == far[0] or near[1] == far[1]
        elif found.name == "nd unordered":
            assert any(x == y for x, y in zip(near, far, strict=True))
        elif found.name == "stepped":
            step, later = p[: found.outer], q[: found.outer]
            if step == later:
                assert all(x <= y for x, y in zip(near, far, strict=True))
            elif found.tiled:
                assert any(x <= y for x, y in zip(near, far, strict=True))
        elif found.name == "2d ordered":
            assert near[0] <= far[0]
            assert near[1] <= far[1]
        elif found.name == "2d transformed":
            (time, space), (then, place) = apply(found.transform, near), apply(found.transform, far)
            assert (time <= then and space <= place) if found.tiled else (time < then or near == far)
        elif found.name == "chain":
            assert found.dims == (0,)  # so that the visits are in the order of the loop
        else:
            assert found.name == "buffered"
            pytest.fail("a buffered loop has no dependences left")
    return found.name
