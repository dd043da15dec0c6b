"""Fixtures of the laboratory."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from lab import Lab
from machines import missing


@pytest.fixture(scope="session")
def allowed() -> None:
    """Skips where no namespaces can be made, with the reason."""
    reason = missing()
    if reason:
        pytest.skip(f"the laboratory cannot be built here: {reason}")


@pytest.fixture(scope="module")
def lab(allowed: None) -> Iterator[Lab]:
    """Two hosts on 100 Mbit, without Ray."""
    with Lab(hosts=2, link="100Mbit", cpus=0.5) as made:
        yield made


@pytest.fixture(scope="module")
def cluster(allowed: None) -> Iterator[Lab]:
    """Four hosts on 1 Gbit with a Ray node each: started once for a whole file of tests.

    Each may use all processors: quotas make measurements fair, and here would only make everyone wait.
    """
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'stretto[cluster]'")
    with Lab(hosts=4, link="1Gbit", cpus=float(os.cpu_count() or 1)) as made:
        made.start_ray()
        yield made
