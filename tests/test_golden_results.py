"""Golden values: fingerprints and results of every kind of plan, as they were before plans could be executed.

`python tests/test_golden_results.py` prints them anew; a difference is a change of what is computed, to be explained.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import stretto as st
from plan_cases import ESTIMATORS, LOOPS, data, digest, learned, run_loop

GOLDEN = Path(__file__).parent / "golden" / "results.json"


def fitted(name: str, **where: Any) -> list[str]:
    model = ESTIMATORS[name](**where).fit(data(name))
    return [model.fingerprint_, digest(learned(model))]


def called(name: str, runtime: Any) -> list[str]:
    function, options, make = LOOPS[name]
    plan = st.parallel(runtime=runtime, **options)(function).plan(**make())
    return [plan.fingerprint, digest(run_loop(name, runtime))]


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimators(name: str) -> None:
    assert fitted(name, runtime=st.Threads(2)) == json.loads(GOLDEN.read_text())["estimators"][name]


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    assert called(name, st.Threads(2)) == json.loads(GOLDEN.read_text())["loops"][name]


if __name__ == "__main__":
    estimators = {name: fitted(name, runtime=st.Serial()) for name in ESTIMATORS}
    loops = {name: called(name, st.Serial()) for name in LOOPS}
    json.dump({"estimators": estimators, "loops": loops}, sys.stdout, indent=1)
    print()
