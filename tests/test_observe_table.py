"""The epoch table and its plot."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import numpy as np
import pytest

from stretto.observe import plots
from stretto.observe.table import EpochTable


def filled(epochs: int = 4) -> EpochTable:
    table = EpochTable()
    for epoch in range(1, epochs + 1):
        metrics = {"test_rmse": 1 / epoch} if epoch % 2 == 0 else {}
        table.add(epoch, seconds=0.5, items=10, objective=100 / epoch**2, metrics=metrics)
    return table


def test_columns_add_up_and_missing_metrics_are_nan() -> None:
    columns = filled().columns()
    assert columns["epoch"].tolist() == [1, 2, 3, 4]
    assert columns["seconds"].tolist() == [0.5, 1.0, 1.5, 2.0]
    assert columns["items"].tolist() == [10, 20, 30, 40]
    assert np.isnan(columns["test_rmse"]).tolist() == [True, False, True, False]


def test_an_epoch_done_again_replaces_the_one_before() -> None:
    table = filled()
    table.add(3, seconds=1.0, items=10, objective=1.0)
    assert table.columns()["epoch"].tolist() == [1, 2, 3]
    assert table.columns()["seconds"].tolist() == [0.5, 1.0, 2.0]
    table.rewind(0)
    assert len(table) == 0
    assert table.last == {}
    assert list(table.columns()) == ["epoch", "seconds", "items", "objective"]


def test_a_metric_cannot_hide_a_column() -> None:
    table = EpochTable()
    table.add(1, seconds=1.0, items=1, objective=2.0, metrics={"objective": 9.0, "seconds": 9.0})
    assert table.last["objective"] == 2.0
    assert table.last["seconds"] == 1.0


def test_csv_reads_back_exactly() -> None:
    table = filled()
    table.add(5, seconds=0.1, items=10**12, objective=math.inf, metrics={'odd, "name"': 0.1 + 0.2})
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    for name, column in table.columns().items():
        got = [float(row[name]) if row[name] else math.nan for row in rows]
        np.testing.assert_array_equal(got, column)
    assert rows[4]["items"] == "1000000000040"


@pytest.mark.parametrize("epochs", [1, 4, 200])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_plot_is_drawn(tmp_path: Path, epochs: int, ending: str) -> None:
    path = tmp_path / f"plot.{ending}"
    plots.convergence(filled(epochs).columns(), path, "a run")
    assert path.stat().st_size > 5_000


def test_the_plot_bears_odd_values(tmp_path: Path) -> None:
    table = EpochTable()
    for epoch, value in enumerate([math.nan, math.inf, -1.0, 0.0], start=1):
        table.add(epoch, seconds=0.0, items=0, objective=value, metrics={"gain": math.nan})
    plots.convergence(table.columns(), tmp_path / "odd.png")
    assert (tmp_path / "odd.png").stat().st_size > 5_000
    plots.convergence(EpochTable().columns(), tmp_path / "empty.png")


def test_the_plot_leaves_the_users_figures_alone(tmp_path: Path) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    backend = matplotlib.get_backend()
    plots.convergence(filled().columns(), tmp_path / "plot.png")
    assert plt.get_fignums() == []
    assert matplotlib.get_backend() == backend
