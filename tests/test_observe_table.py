"""The epoch table and its plot."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import numpy as np
import pytest

from stretto.observe import plots
from stretto.observe.convergence_svg import convergence_svg
from stretto.observe.table import EpochTable

SVG = "{http://www.w3.org/2000/svg}"


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


def drawn(table: EpochTable, title: str = "a run") -> tuple[Element, list[str]]:
    """The picture, and its texts."""
    picture = fromstring(convergence_svg(table.columns(), title))
    return picture, [str(one.text) for one in picture.iter(f"{SVG}text")]


@pytest.mark.parametrize("epochs", [1, 4, 200, 30_000])
def test_the_picture_has_a_curve_for_each_column_and_axis(epochs: int) -> None:
    picture, texts = drawn(filled(epochs))
    curves = [one.attrib["points"].split() for one in picture.iter(f"{SVG}polyline")]
    assert [len(curve) for curve in curves[:2]] == [epochs if epochs < 2000 else 1001] * 2
    assert len(curves) == (2 if epochs == 1 else 4)
    assert {"a run", "objective", "epochs", "seconds in epochs"} <= set(texts)
    assert ("RMSE" in texts) == (epochs > 1)


def test_curves_go_where_their_values_are() -> None:
    table = EpochTable()
    for epoch, value in enumerate([4.0, 2.0, 3.0], start=1):
        table.add(epoch, seconds=epoch, items=1, objective=value)
    picture, texts = drawn(table)
    left, right = ([tuple(map(float, pair.split(","))) for pair in one.attrib["points"].split()]
                   for one in picture.iter(f"{SVG}polyline"))  # fmt: skip
    assert left[1][0] - left[0][0] == pytest.approx(left[2][0] - left[1][0], abs=0.2)
    assert 2 * (right[2][0] - right[1][0]) == pytest.approx(3 * (right[1][0] - right[0][0]), abs=0.5)  # 1, 3, 6 seconds
    assert left[0][1] < left[2][1] < left[1][1]  # downwards in a picture
    assert {"1", "2", "3", "2.5", "4"} <= set(texts)


def test_the_picture_bears_odd_values_and_names() -> None:
    table = EpochTable()
    for epoch, value in enumerate([math.nan, math.inf, -1.0, 0.0, 1e300], start=1):
        table.add(epoch, seconds=0.0, items=0, objective=value, metrics={"<b>&": math.nan, "a\x00b": 1e-300})
    _, texts = drawn(table, "<script>\x01")
    assert {"<script>\ufffd", "<b>&", "no finite values"} <= set(texts)
    drawn(EpochTable())


def test_the_plot_leaves_the_users_figures_alone(tmp_path: Path) -> None:
    import matplotlib
    import matplotlib.pyplot as plt

    backend = matplotlib.get_backend()
    plots.comparison({"one": filled().columns()}, tmp_path / "plot.png")
    assert plt.get_fignums() == []
    assert matplotlib.get_backend() == backend
