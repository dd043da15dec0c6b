"""Profile exact: the same bits whatever instructions the processor has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import isa_linear
import isa_loops
import isa_sgd
import isa_topics
from stretto.paths import cache_root

pytestmark = pytest.mark.timeout(0)  # everything is compiled for a processor that nothing was compiled for before
OTHERS = ["adagrad", "adarevision", "als", "ccd"]
# Code for other processors is kept, like that for this one; compiling it takes far longer than running it.
KEPT = cache_root() / "other-processors"


def printed(script: str, arguments: list[str], cpu: str) -> str:
    """What a script beside this file says when it runs for another processor."""
    settings = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": "", "STRETTO_CACHE": str(KEPT)}
    command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("cpu", "runs"),
    [
        pytest.param("generic", ["sgd", "logistic"], id="generic"),
        pytest.param("haswell", ["sgd", "logistic"], id="haswell", marks=pytest.mark.slow),
        pytest.param("haswell", OTHERS, id="haswell, the others", marks=pytest.mark.slow),
        pytest.param("generic", OTHERS, id="generic, the others", marks=pytest.mark.slow),
    ],
)
def test_the_instruction_set_does_not_matter(cpu: str, runs: list[str]) -> None:
    """`generic` has no fused multiply-add and 128-bit registers; this process has whatever the machine offers."""
    assert printed("isa_sgd.py", runs, cpu) == isa_sgd.hashes(runs)
    assert list((KEPT / "kernels").glob("sgd.sgd_worker-*.bin")), "kernels are kept in the folder that was named"


@pytest.mark.parametrize(
    ("cpu", "width"),
    [
        pytest.param("generic", 21, id="generic, chunks and a rest"),
        pytest.param("generic", 150, id="generic, looped over", marks=pytest.mark.slow),
        pytest.param("haswell", 21, id="haswell, chunks and a rest", marks=pytest.mark.slow),
        pytest.param("haswell", 32, id="haswell, whole chunks", marks=pytest.mark.slow),
    ],
)
def test_loops_give_the_same_bits_on_every_instruction_set(cpu: str, width: int) -> None:
    assert printed("isa_loops.py", [str(width)], cpu) == isa_loops.digest([width])


@pytest.mark.parametrize(
    ("cpu", "fits"),
    [
        pytest.param("generic", ["sparse lasso", "rows"], id="generic, sparse"),
        pytest.param("generic", ["few features"], id="generic, few features", marks=pytest.mark.slow),
        pytest.param("haswell", ["few features", "rows"], id="haswell, few features", marks=pytest.mark.slow),
        pytest.param("generic", ["dense lasso", "swept"], id="generic, dense", marks=pytest.mark.slow),
        pytest.param("generic", ["logistic", "dense logistic"], id="generic, logistic", marks=pytest.mark.slow),
        pytest.param("generic", ["dense moments", "sparse moments"], id="generic, moments", marks=pytest.mark.slow),
        pytest.param("haswell", ["dense moments", "sparse moments"], id="haswell, moments", marks=pytest.mark.slow),
        pytest.param("haswell", ["sparse lasso", "logistic"], id="haswell, sparse", marks=pytest.mark.slow),
        pytest.param(
            "haswell", ["dense lasso", "swept", "dense logistic"], id="haswell, dense", marks=pytest.mark.slow
        ),
    ],
)
def test_regressions_give_the_same_bits_on_every_instruction_set(cpu: str, fits: list[str]) -> None:
    assert printed("isa_linear.py", fits, cpu) == isa_linear.hashes(fits)


@pytest.mark.parametrize(
    ("cpu", "runs"),
    [
        pytest.param("generic", ["packed"], id="generic, packed"),
        pytest.param("generic", ["plain", "proposals"], id="generic, the others", marks=pytest.mark.slow),
        pytest.param("haswell", ["plain", "packed", "proposals"], id="haswell", marks=pytest.mark.slow),
    ],
)
def test_topic_models_give_the_same_bits_on_every_instruction_set(cpu: str, runs: list[str]) -> None:
    assert printed("isa_topics.py", runs, cpu) == isa_topics.hashes(runs)
