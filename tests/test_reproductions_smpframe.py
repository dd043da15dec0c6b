"""Factorisation of STRADS: a rotation has the error of a serial epoch, whatever the number of workers."""

from __future__ import annotations

import numpy as np
import pytest
from reproductions import smpframe_factorise


def test_a_rotation_learns_at_any_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smpframe_factorise, "EPOCHS", 3)
    rng = np.random.default_rng(0)
    users, items = rng.integers(0, 60, 2000), rng.integers(0, 50, 2000)
    part = users, items, rng.standard_normal(60)[users] + rng.standard_normal(50)[items]
    curves = [
        smpframe_factorise.epochs(smpframe_factorise.Rotated(part, (60, 50), workers, 0.05)) for workers in (1, 4)
    ]
    for curve in curves:
        assert len(curve) == 4
        assert curve[3] < 0.98 * curve[0]
    assert curves[0][3] == pytest.approx(curves[1][3], rel=0.05)
