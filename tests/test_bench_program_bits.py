"""The table of bits: which cells it has, and that a difference or a failure is shown."""

from __future__ import annotations

import pytest
from bench.program_bits import cells, page, schedules

import stretto as st


def test_every_schedule_loss_and_storage_is_a_cell() -> None:
    found = set(cells())
    for name in schedules():
        for how in ("squared, dense", "squared, sparse", "logistic, dense", "logistic, sparse"):
            assert (f"SparseRegression, {name}", how) in found
        for how in ("parts", "parts with state"):
            assert (f"program, {name}", how) in found
    assert {"Lasso", "ElasticNet", "LassoCV", "LatentDirichletAllocation"} <= {what for what, _ in found}


def test_a_difference_is_shown() -> None:
    bits = dict.fromkeys(["serial", "hosts"], "ab")
    rows = [("Lasso", "dense", bits), ("Lasso", "sparse", {**bits, "hosts": "hosts failed: RunError: lost"})]
    text = page({"rows": rows, "seconds": {"serial": 1.0, "hosts": 2.0}, "start": 3.0})
    assert "| Lasso | dense: same; sparse: DIFFERENT |" in text
    assert "1 of 2 cells" in text
    assert "hosts failed: RunError: lost" in text


@pytest.mark.parametrize("cell", [("program, working sets", "parts with state"), ("Lasso", "dense")])
def test_cells_give_the_same_bits_here(cell: tuple[str, str]) -> None:
    run = cells()[cell]
    assert run(st.Serial()) == run(st.Threads(2))
