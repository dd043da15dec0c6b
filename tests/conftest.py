"""Fixtures every test may use."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import hypothesis
import pytest

import realdata

# Compiling a kernel inside an example takes seconds and says nothing about the example.
hypothesis.settings.register_profile(
    "stretto",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("stretto")

# A shell that runs us in the background makes us ignore Ctrl-C, and our children too; the tests mean the real thing.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared_data() -> Callable[..., Path]:
    """shared_data("movielens-1m", "ratings.dat"): the path of a real data set, or a skip that says what is missing."""
    return realdata.find
