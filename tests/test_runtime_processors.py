"""Profile exact: the same bits whatever instructions the processor has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import isa_sgd


@pytest.mark.parametrize(
    ("cpu", "runs"),
    [
        pytest.param("generic", ["sgd", "logistic"], id="generic"),
        pytest.param("haswell", ["sgd", "logistic"], id="haswell", marks=pytest.mark.slow),
        pytest.param("haswell", ["adagrad", "als", "ccd"], id="haswell, the others", marks=pytest.mark.slow),
        pytest.param("generic", ["adagrad", "als", "ccd"], id="generic, the others", marks=pytest.mark.slow),
    ],
)
def test_the_instruction_set_does_not_matter(cpu: str, runs: list[str], tmp_path: Path) -> None:
    """`generic` has no fused multiply-add and 128-bit registers; this process has whatever the machine offers."""
    settings = {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": "", "STRETTO_CACHE": str(tmp_path)}
    command = [sys.executable, str(Path(__file__).with_name("isa_sgd.py")), *runs]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == isa_sgd.hashes(runs)
    assert list(tmp_path.rglob("*.nbc")), "kernels are kept in the folder that was named"
