"""FlexPS's figures on simulated nodes: small versions of what the reproductions measure."""

from __future__ import annotations

import numpy as np
import pytest
from reproductions import flexps, flexps_flexible, flexps_jobs, flexps_models, flexps_widths

import stretto as st

pytestmark = pytest.mark.slow  # reproductions are no part of `make test`

SMALL = flexps_jobs.SparseSet("small", 960, 20_000, 10)


def test_every_figure_has_a_function() -> None:
    import importlib

    for name, (module, _, _) in flexps.FIGURES.items():
        assert callable(getattr(importlib.import_module(f"reproductions.flexps_{module}"), name))


def test_the_best_width_moves_with_the_batch() -> None:
    took = {
        (batch, width): flexps_jobs.run_sgd(flexps_jobs.KDD, batch, 2, workers=width).stages[0].seconds
        for batch in (96, 9_600)
        for width in (12, 96)
    }
    assert took[96, 12] < took[96, 96]
    assert took[9_600, 96] < took[9_600, 12]


@pytest.mark.parametrize("width", [12, 48, "auto"])
def test_svrg_has_the_same_bits_at_any_width_and_learns(width: int | str) -> None:
    job = flexps_flexible.svrg_job(SMALL, 96, 1, 1e-5)
    found = []
    for widths in ({"full": 96, "svrg": 12}, {"full": 12, "svrg": width}):
        task, w = job.make(widths, 20, 2)
        st.run(task, runtime=flexps_jobs.cluster())
        found.append(w.array)
    assert found[0].tobytes() == found[1].tobytes()
    assert flexps_jobs.loss(SMALL, found[0]) < np.log(2.0)


def test_scaled_features_leave_the_expected_step_as_it_is() -> None:
    scale = flexps_jobs.scales(SMALL)
    columns = SMALL.arrays[0]
    mean = np.bincount(columns.ravel(), scale[columns].ravel(), minlength=SMALL.features) / SMALL.samples
    assert np.allclose(mean[np.unique(columns)], 1.0)


def test_random_widths_are_interpolated_between_those_measured() -> None:
    assert flexps_widths._uniform({1: 9.0, 12: 2.0, 96: 2.0}) == pytest.approx(2.0)
    assert 1.0 < flexps_widths._uniform({1: 9.0, 12: 3.0, 96: 1.0}) < 3.0


def test_rows_one_by_one_are_the_same_rows() -> None:
    def work(w: st.tables.Worker) -> None:
        keys = np.array([5, 1, 3])
        assert (flexps_models.OneByOne(w.table("t")).read(keys) == w.table("t").read(keys)).all()

    table = st.tables.Table(rows=8, cols=2, start=np.arange(16.0).reshape(8, 2))
    st.run(work, tables={"t": table}, workers=2, runtime=st.Simulated(nodes=2, threads=1))
