"""Fixtures every test may use."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import realdata
from browser import Browser, opened_browser

# Compiling a kernel inside an example takes seconds and says nothing about the example.
hypothesis.settings.register_profile(
    "stretto",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
    # The same examples every time, so that no change fails by bad luck; the full suite seeks new ones.
    derandomize=not os.environ.get("STRETTO_TEST_FULL"),
)
hypothesis.settings.load_profile("stretto")

# Files run side by side, a process for each processor: threads of BLAS and PyTorch would only wait for one another, and
# Inductor would start processes to compile a handful of chains. Set here, before anything of theirs is imported, it
# holds for processes that tests start, too.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TORCHINDUCTOR_COMPILE_THREADS"):
    os.environ.setdefault(name, "1")

# What is said while kernels are compiled depends on the cache, and tests must not.
os.environ.setdefault("STRETTO_COMPILE_NOTICE", "0")

# A shell that runs us in the background makes us ignore Ctrl-C, and our children too; the tests mean the real thing.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Files of half a minute and more, the longest first: one that begins late keeps one process busy while others are done.
LONGEST = (
    # Of `make test-full`:
    *("test_loops_bodies.py", "test_cluster_ctrl_c.py", "cluster/test_jobs.py", "test_loops_order.py"),
    *("test_hostile_arrays.py", "test_store_schedules.py", "test_store_cache_model.py", "test_cluster_ring_loops.py"),
    *("test_models_logistic_grid.py", "test_cluster_fuzz.py"),
    # Of `make test`:
    *("test_readme.py", "test_bench_memory.py", "test_kernels_softmax.py", "test_cluster_lda.py"),
    *("test_loops_schedule.py", "test_models_linear_sklearn.py", "test_cluster_driver.py", "test_loops_cache.py"),
    *("test_loops_traps.py", "test_examples_one.py", "test_cli_runs.py", "test_cli_errands.py", "test_cli_lda.py"),
    *("test_memory_planner.py", "test_models_sklearn.py"),
)


def pytest_configure(config: pytest.Config) -> None:
    """Files side by side are begun in the order below, not with those that hold the most tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first; everything else as it is."""
    here = Path(__file__).parent
    places = {here / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Leave a line for `make test` to end with: which tests did not run, and what they lack."""
    skipped = [report.longrepr for report in terminalreporter.stats.get("skipped", [])]
    found = [told[2].removeprefix("Skipped: ") for told in skipped if isinstance(told, tuple)]
    reasons = Counter("data sets that are absent" if "among the data sets" in why else why for why in found)
    said = "; ".join(f"{count} ({reason})" for reason, count in reasons.most_common())
    cache = config.rootpath / ".pytest_cache"
    cache.mkdir(exist_ok=True)
    (cache / "not-run").write_text(f"not run: {said}\n" if said else "every test ran\n", encoding="utf-8")


@pytest.fixture(scope="module")
def one_torch_thread() -> Iterator[None]:
    """For tiny tensors: threads would only wait for one another on a busy machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def shared_data() -> Callable[..., Path]:
    """shared_data("movielens-1m", "ratings.dat"): the path of a real data set, or a skip that says what is missing."""
    return realdata.find


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, with one page."""
    with opened_browser() as made:
        yield made


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse names with an address: they differ between the processes that share the tests."""
    if " at 0x" in item.nodeid:
        raise pytest.UsageError(f"{item.nodeid}: this name has an address in it; give the parameters an id")
