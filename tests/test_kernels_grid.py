"""Inspecting data and laying it out in blocks: nothing lost, nothing moved elsewhere, with any number of workers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import digest, small_data, some_ratings
from stretto.data.partition import cut
from stretto.data.records.data import Data
from stretto.errors import DataError
from stretto.kernels.factorization.grid import ROWS_DEALT
from stretto.runtime.blocks.compressed import by_rows, compress
from stretto.runtime.blocks.layout import Blocks, arrange, lay_out, scatter, tally
from stretto.runtime.blocks.source import GRAIN, InMemory, Spool
from stretto.runtime.blocks.survey import Survey, survey
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.schedule.orders.order import Order
from stretto.schedule.orders.rotation import rotation

SERIAL = Serial()


def laid_out(
    data: Data, blocks: int, *, seed: int = 0, runtime: Runtime = SERIAL, **units: float
) -> tuple[Blocks, Order, Any, Any]:
    order = rotation(blocks, "exchange" if blocks & (blocks - 1) == 0 else "ring")
    counts = [np.bincount(index, minlength=n) for index, n in zip((data.rows, data.cols), data.shape, strict=True)]
    rows, cols = (cut(count, blocks, seed=seed, axis=axis) for axis, count in enumerate(counts))
    with runtime.open() as crew:
        tallied = tally((data.rows, data.cols, data.values), rows, cols, order, crew)
        found = lay_out(data, rows, cols, order, tallied, crew, **units)
    assert np.array_equal(tallied.weight, found.weight)
    return found, order, rows, cols


def entries_of(found: Blocks, order: Order, rows: Any, cols: Any) -> list[tuple[int, int, float]]:
    """Back to (row, column, value), checking that every entry is in the block its visit says."""
    row_at, col_at = np.argsort(rows.place), np.argsort(cols.place)
    entries = []
    for v in range(len(order)):
        part = slice(found.ptr[v], found.ptr[v + 1])
        u, i = found.u[part].astype(np.int64), found.i[part].astype(np.int64)
        assert np.all(u < rows.sizes[order.row_block[v]])
        assert np.all(i < cols.sizes[order.col_block[v]])
        x, y = row_at[u + found.row_base[v]], col_at[i + found.col_base[v]]
        entries += list(zip(x.tolist(), y.tolist(), found.r[part].tolist(), strict=True))
    return entries


@settings(max_examples=60)
@given(small_data(), st.sampled_from([1, 2, 3, 4, 7, 8, 64]), st.integers(0, 10**6))
def test_every_entry_lands_in_its_block(data: Data, blocks: int, seed: int) -> None:
    """Also with more blocks than rows or columns."""
    found, order, rows, cols = laid_out(data, blocks, seed=seed)
    wanted = sorted(zip(data.rows.tolist(), data.cols.tolist(), data.values.tolist(), strict=True))
    assert sorted(entries_of(found, order, rows, cols)) == wanted
    assert found.repeats == 0
    assert found.ptr[-1] == len(data)


@settings(max_examples=30)
@given(small_data(), st.sampled_from([1, 2, 4]), st.integers(0, 10**6))
def test_the_order_of_the_input_does_not_matter(data: Data, blocks: int, seed: int) -> None:
    shuffled = data.take(np.random.default_rng(seed).permutation(len(data)))
    one, two = laid_out(data, blocks)[0], laid_out(shuffled, blocks)[0]
    assert digest([one.ptr, one.u, one.i, one.r]) == digest([two.ptr, two.u, two.i, two.r])


@settings(max_examples=40)
@given(
    st.integers(1, 3000),
    st.sampled_from([(1, 1), (3, 900), (40, 7), (500, 600), (66, 65_536), (4097, 2)]),
    st.sampled_from([1, 2, 3, 8]),
    st.integers(0, 10**6),
)
def test_packed_entries_give_the_blocks_of_plain_ones(n: int, shape: tuple[int, int], blocks: int, seed: int) -> None:
    """With repeated pairs, negative values, more rows than entries and the reverse."""
    rng = np.random.default_rng(seed)
    rows, cols = (rng.integers(0, size, n) for size in shape)
    data = Data.from_arrays(rows, cols, rng.integers(-3, 4, n).astype(np.float32), shape)
    found, order, by_row, by_col = laid_out(data, blocks, seed=seed, mean=0.5, scale=3.0)
    chunk = (data.rows, data.cols, data.values)
    with Serial().open() as crew:
        tallied = tally(chunk, by_row, by_col, order, crew)
        plain = scatter(chunk, by_row, by_col, order, tallied, crew, 0.5, 3.0)
        repeats = arrange(plain[0], by_row, by_col, order, *plain[1:], crew)
    assert found.repeats == repeats == n - len(set(zip(rows.tolist(), cols.tolist(), strict=True)))
    assert digest([found.ptr, found.u, found.i, found.r]) == digest(list(plain))


@pytest.mark.parametrize("runtime", [Threads(1), Threads(3), Threads(8)], ids=str)
def test_the_number_of_threads_does_not_matter(runtime: Runtime) -> None:
    data = some_ratings(150_000, 900, 400)  # several parts
    one, two = laid_out(data, 8)[0], laid_out(data, 8, runtime=runtime)[0]
    assert digest([one.ptr, one.u, one.i, one.r]) == digest([two.ptr, two.u, two.i, two.r])
    with Serial().open() as crew, runtime.open() as other:
        assert _plain(survey(InMemory(data), crew)) == _plain(survey(InMemory(data), other))


def test_chunks_do_not_matter(tmp_path: Path) -> None:
    """Read whole, in chunks, or from files: the same survey to the last bit."""
    data = some_ratings(3 * GRAIN + 1000, 900, 600)
    data = replace(data, values=data.values * np.float32(np.pi))  # sums that do round
    spool = Spool(tmp_path, data.shape, 2 * GRAIN).write(InMemory(data, GRAIN).chunks())
    with Threads(2).open() as crew:
        wanted = _plain(survey(InMemory(data), crew))
        assert _plain(survey(InMemory(data, GRAIN), crew)) == wanted
        assert _plain(survey(spool, crew)) == wanted
    assert len(spool) == len(data)


def _plain(seen: Survey) -> tuple[Any, ...]:
    return seen.shape, seen.entries, digest([seen.row_counts, seen.col_counts]), seen.mean, seen.std, seen.digest


def test_rows_are_dealt_in_turn() -> None:
    """Inside a block sixteen rows at a time, one entry of each, in other columns: neighbours never wait."""
    m, n = 40, 30
    data = Data.from_arrays(*np.divmod(np.arange(m * n), n), np.ones(m * n, np.float32), (m, n))
    found = laid_out(data, 1)[0]
    u, i = found.u.tolist(), found.i.tolist()
    assert u[: 2 * ROWS_DEALT] == list(range(ROWS_DEALT)) * 2
    assert i[: 2 * ROWS_DEALT] == [*range(ROWS_DEALT), *range(1, ROWS_DEALT + 1)]
    assert sum(one == two for one, two in pairwise(i)) < m
    assert all(one != two for one, two in pairwise(u))


def test_values_are_standardised() -> None:
    data = some_ratings(1000, 50, 60)
    found, order, rows, cols = laid_out(data, 2, mean=3.0, scale=2.0)
    wanted = sorted((r, c, (v - 3.0) / 2.0) for (r, c), v in data)
    assert sorted(entries_of(found, order, rows, cols)) == wanted


def test_small_blocks_use_two_bytes_and_large_ones_four() -> None:
    wide = Data.from_arrays([0, 1, 69_999], [0, 1, 2], [1.0, 2.0, 3.0], (70_000, 3))
    found, order, rows, cols = laid_out(wide, 1)
    assert found.u.dtype == np.int32
    assert found.i.dtype == np.uint16
    assert found.nbytes == 3 * (4 + 2 + 4)
    assert sorted(entries_of(found, order, rows, cols)) == [(0, 0, 1.0), (1, 1, 2.0), (69_999, 2, 3.0)]
    edge = Data.from_arrays([65_535, 0], [0, 0], [1.0, 2.0], (65_536, 1))
    found, order, rows, cols = laid_out(edge, 1)
    assert found.u.dtype == np.uint16
    assert sorted(entries_of(found, order, rows, cols)) == [(0, 0, 2.0), (65_535, 0, 1.0)]


def test_repeated_pairs_are_counted() -> None:
    data = Data.from_arrays([0, 1, 0, 0, 1], [2, 2, 2, 2, 2], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert laid_out(data, 1)[0].repeats == 3
    assert by_rows(data).repeats == 3


@settings(max_examples=40)
@given(small_data())
def test_the_survey_counts(data: Data) -> None:
    with Threads(2).open() as crew:
        seen = survey(InMemory(data), crew)
    assert seen.row_counts.tolist() == np.bincount(data.rows, minlength=data.shape[0]).tolist()
    assert seen.col_counts.tolist() == np.bincount(data.cols, minlength=data.shape[1]).tolist()
    assert seen.mean == pytest.approx(np.mean(data.values, dtype=np.float64), rel=1e-7)
    assert seen.std == pytest.approx(np.std(data.values.astype(np.float64)), rel=1e-6, abs=1e-7)
    assert seen.farthest == pytest.approx(np.abs(data.values - seen.mean).max(), rel=1e-6)
    assert seen.entries == len(data)


def test_bad_data_is_refused() -> None:
    none = Data.from_arrays([], [], [], (3, 3))
    bad = replace(some_ratings(100, 10, 20), values=np.full(100, np.nan, np.float32))
    with Serial().open() as crew:
        with pytest.raises(DataError, match="there are no ratings to learn from"):
            survey(InMemory(none), crew)
        with pytest.raises(DataError, match="a rating is NaN or infinite"):
            survey(InMemory(bad), crew)


@settings(max_examples=60)
@given(small_data())
def test_compressed_rows_and_columns_are_those_of_scipy(data: Data) -> None:
    m, n = data.shape
    rows, cols = compress(data, np.bincount(data.rows, minlength=m), np.bincount(data.cols, minlength=n))
    for found, matrix in ((rows, data.to_csr()), (cols, data.to_csr().tocsc())):
        matrix.sort_indices()
        assert found.indptr.tolist() == matrix.indptr.tolist()
        assert found.indices.tolist() == matrix.indices.tolist()
        assert found.values.tolist() == matrix.data.tolist()
        assert found.counts.tolist() == np.diff(matrix.indptr).tolist()
        assert found.repeats == 0
