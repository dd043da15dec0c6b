"""What a loop says of itself: golden files of `explain`, of refusals, the pictures, and the command.

The golden files are in tests/golden/loops. After a change that is meant, write them anew and read the difference:

    STRETTO_GOLDEN=write pytest tests/test_loops_explain.py

Fingerprints are hashes and are left out; the number of workers is fixed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import explained_loops
import refused_calls
import stretto as st
from clirun import stretto
from examples_run import load
from stretto.cli.script import first_call
from stretto.errors import PlanError
from stretto.loops.parallel import Loop

GOLDEN = Path(__file__).parent / "golden" / "loops"
WRITE = os.environ.get("STRETTO_GOLDEN") == "write"
WORKERS = st.Threads(2)


def same_as_golden(name: str, text: str) -> None:
    found = re.sub(r"plan [0-9a-f]{16}", "plan FINGERPRINT", text) + "\n"
    path = GOLDEN / f"{name}.txt"
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert path.exists(), f"no golden file {path.name}; see the top of this module"
    assert found == path.read_text(encoding="utf-8")


def in_bounds(text: str) -> None:
    """Short lines, but for source lines of the user's and words that cannot be broken."""
    assert all(len(line) <= 120 for line in text.splitlines()), max(text.splitlines(), key=len)


# --- loops of our own -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", explained_loops.CALLS)
def test_explain(name: str) -> None:
    loop, arguments = explained_loops.CALLS[name]
    text = loop.using(runtime=WORKERS).explain(*arguments())
    in_bounds(text)
    same_as_golden(name, text)


@pytest.mark.parametrize("name", refused_calls.CALLS)
def test_refusal(name: str) -> None:
    loop, arguments = refused_calls.CALLS[name]
    with pytest.raises(PlanError) as caught:
        loop.explain(*arguments())
    same_as_golden(f"refused-{name}", str(caught.value))


def test_a_call_is_refused_in_the_words_of_explain() -> None:
    for name in ("running_sum", "scattered", "carried"):
        loop, arguments = refused_calls.CALLS[name]
        with pytest.raises(PlanError) as planned:
            loop.explain(*arguments())
        with pytest.raises(PlanError) as called:
            loop(*arguments())
        assert str(planned.value) == str(called.value)


def test_what_was_left_out_is_named_in_the_error() -> None:
    with pytest.raises(PlanError, match=r"W is not a number, so it cannot be left out; give W too"):
        explained_loops.factors.explain(explained_loops.ratings())
    with pytest.raises(PlanError, match=r"k was left out and taken for a float"):
        keyed.explain(np.zeros(5))


@st.parallel
def keyed(A: Any, k: int) -> None:
    for i in range(len(A)):
        A[i] = st.uniform(k, i)


def test_nothing_is_changed_by_explaining() -> None:
    loop, arguments = explained_loops.CALLS["factors"]
    args = arguments()
    args[1].array[...] = 1
    loop.explain(*args)
    assert np.all(args[1].array == 1)


# --- the examples ---------------------------------------------------------------------------------------------------


def small_ratings() -> Any:
    return st.generate_ratings(20_000, 600, 400, seed=0).data


# Each example: the loops it has, and how to start it on little data.
PROGRAMS: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "mf": (("epoch",), lambda module: module.train(small_ratings(), epochs=1)),
    "mf_adarevision": (("epoch",), lambda module: module.train(small_ratings(), epochs=1)),
    "logistic": (("epoch",), lambda module: module.train(module.generate(2000, 300), epochs=1)),
    "logistic_adarevision": (("epoch",), lambda module: module.train(module.generate(2000, 300), epochs=1)),
    "lda": (("begin", "sweep"), lambda module: module.train(module.generate(60, 200, 5, 30), topics=5, sweeps=1)),
    "kmeans": (("assign",), lambda module: module.kmeans(module.generate(3000, 4, 8), 4, passes=1)),
    "logistic_inspected": (("epoch",), lambda module: module.train(module.generate(3000, 30_000), epochs=1)),
    "gauss_seidel": (
        ("sweep5", "sweep9"),
        lambda module: [module.solve(sweep, 65, sweeps=1) for sweep in (module.sweep5, module.sweep9)],
    ),
    "shortest_paths": (("shortest_paths",), lambda module: module.shortest_paths(module.generate(60))),
    "tensors": (("cp_epoch",), lambda module: module.cp(module.generate(3000, (40, 30, 20)), epochs=1)),
    "gbt": (("histograms", "cuts"), lambda module: module.Boosted(trees=1).fit(*module.generate(2000))),
    "skipgram": (("epoch",), lambda module: module.train(module.pairs_of(module.generate(200))[0], width=8, epochs=1)),
    "pagerank": (("sweep",), lambda module: module.pagerank(module.generate(20_000, 2000), sweeps=1)),
}


@pytest.mark.parametrize(("name", "loop"), [(name, loop) for name, (loops, _) in PROGRAMS.items() for loop in loops])
def test_explain_of_the_examples(name: str, loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = load(name)
    found = first_call(loop, lambda: PROGRAMS[name][1](module), others=False)
    assert found is not None
    text = found[0].using(runtime=WORKERS).explain(*found[1][0], **found[1][1])
    same_as_golden(f"example-{name}-{loop}", text)


# --- pictures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["independent", "factors", "chain", "wavefront", "transformed", "time-steps", "buffered"]
)
def test_every_visit_is_drawn_once(name: str, tmp_path: Path) -> None:
    loop, arguments = explained_loops.CALLS[name]
    plan = loop.plan(*arguments())
    root = ElementTree.fromstring(plan.draw(str(tmp_path / "plan.svg"), workers=3))
    blocks = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if len(rect)]
    assert len(blocks) == len(plan.plans[0].order)
    assert len({(rect.get("x"), rect.get("y")) for rect in blocks}) == len(blocks), "no block hides another"
    if name in ("independent", "chain"):
        plan.draw(str(tmp_path / "plan.png"))


def test_a_picture_names_the_indices() -> None:
    loop, arguments = explained_loops.CALLS["transformed"]
    text = loop.plan(*arguments()).draw()
    assert "blocks of i " in text
    assert "blocks of i + j " in text
    assert "wavefront" in text


# --- the command ----------------------------------------------------------------------------------------------------

SCRIPT = """
import numpy as np
import stretto as st

@st.parallel
def epoch(ratings, W, H, lr):
    for (i, j), r in ratings:
        W[i] += lr * r * H[j]
        H[j] += lr * r * W[i]

@st.parallel
def other(A, n):
    for i in range(n):
        A[i] = i

def example_other():
    return st.zeros(50), 40

def plain():
    pass

if __name__ == "__main__":
    ratings = st.Data.from_arrays([0, 1, 2], [0, 1, 0], [1.0, 2.0, 3.0], (3, 2))
    epoch(ratings, st.zeros((3, 2)), st.zeros((2, 2)), 0.1)
    raise SystemExit("ran on")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_the_command_takes_arguments_in_words(script: Path, tmp_path: Path) -> None:
    specs = ["-a", "ratings=data:60x40:900", "-a", "W=f4:60x8", "--arg", "H=f4:40x8"]
    said = stretto("explain", f"{script}:epoch", *specs, "--workers", "3", "--draw", tmp_path / "plan.svg")
    assert "strategy    2d unordered" in said.out
    assert "900 sparse records; i 0 to 59, j 0 to 39" in said.out
    assert "threads, 3 workers" in said.out
    assert (tmp_path / "plan.svg").exists()
    assert "strategy    2d ordered" in stretto("explain", f"{script}:epoch", *specs, "--ordered").out


def test_the_command_takes_an_example_or_the_first_call(script: Path) -> None:
    assert "i 0 to 39: 40 iterations" in stretto("explain", f"{script}:other").out
    assert "i 0 to 9: 10 iterations" in stretto("explain", f"{script}:other", "-a", "n=10").out
    assert "3 sparse records" in stretto("explain", f"{script}:epoch", "--run").out


@pytest.mark.parametrize(
    ("function", "more", "said"),
    [
        (":epoch", [], "epoch needs ratings, W, H: give each with --arg"),
        (":epoch", ["-a", "ratings"], "write name=SPEC"),
        (":epoch", ["-a", "ratings=dta:3"], "cannot be read"),
        (":epoch", ["-a", "x=3"], "epoch has no parameter x; it has ratings, W, H, lr"),
        (":nothing", [], "has no loop called nothing; it has epoch, other"),
        (":plain", [], "plain in train.py is not decorated with @st.parallel"),
        ("", [], "it has epoch, other. Write train.py:NAME"),
        (":other", ["--run"], "ran on"),
    ],
)
def test_the_command_says_what_is_missing(script: Path, function: str, more: list[str], said: str) -> None:
    if said == "ran on":
        with pytest.raises(SystemExit, match="ran on"):
            first_call_in(script)
        return
    assert said in " ".join(stretto("explain", f"{script}{function}", *more, code=2).err.split())


def first_call_in(script: Path) -> None:
    from stretto.cli.script import first_call_of_script

    first_call_of_script(script, "other")


def test_the_specs_make_what_they_say() -> None:
    from stretto.cli.specs import read_specs

    drawing = "matplotlib.pyplot" in sys.modules  # another test may have drawn something
    made = read_specs(["b=buffer:w", "w=f8:30", "s=samples:20x30:90", "d=dense:3x4", "n=3", "x=1e-3", "t=true",
                       "a=accumulator"])  # fmt: skip
    assert list(made) == ["b", "w", "s", "d", "n", "x", "t", "a"]
    assert made["b"].target is made["w"].array
    assert (made["w"].dtype, len(made["s"]), made["d"].shape) == (np.float64, 20, (3, 4))
    assert (made["n"], made["x"], made["t"], made["a"].get()) == (3, 0.001, True, 0.0)
    assert isinstance(explained_loops.factors, Loop)
    assert ("matplotlib.pyplot" in sys.modules) == drawing
