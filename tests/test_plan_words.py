"""What a plan says of itself: explain, draw, cost, and the refusal when it does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jobs import job_on, some_ratings
from stretto.checks import parse_bytes
from stretto.errors import NotEnoughMemory, PlanError
from stretto.plan.cost import refuse_if_over
from stretto.plan.plan import Physical, Plan
from stretto.runtime.runtimes import Serial
from stretto.solvers.factorization.problem import FactorizationProblem
from stretto.text import show_bytes


@pytest.fixture(scope="module")
def plan() -> Iterator[Plan]:
    with job_on(Serial(), FactorizationProblem(4), some_ratings()) as (job, _):
        yield replace(job.plan, physical=Physical("threads", 2))


def test_explain_says_what_runs_where_and_what_is_promised(plan: Plan) -> None:
    text = plan.explain()
    lines = {line.split()[0]: line.strip() for line in text.splitlines()[1:] if line[:14].strip()}
    assert text.splitlines()[0] == f"plan {plan.fingerprint}: mf/sgd/2 on 300 × 200, 12,000 entries"
    assert lines["grade"] == "grade       identical: same fingerprint, same bits: serially and at any number of workers"
    assert lines["profile"].startswith("profile     exact: ")
    for said in ("rank=4", "loss=squared", "reg_of_noise=0.055", "biases=True", "optimizer=sgd", "seed=7"):
        assert said in " ".join(text.split())
    side = plan.order.rows
    assert lines["grid"].startswith(f"grid        {side} × {side} blocks from width 4, cut by histogram")
    assert lines["order"].startswith(f"order       rotation/exchange: {side * side} visits a pass, no barrier")
    assert re.match(r"bound       2 workers can be busy \d+% of the time", lines["bound"])
    assert "array       W [300×16] float32: owned, cut by rows, written, 18.8 KiB" in text
    assert "array       H [200×16] float32: rotating, cut by columns, written, 12.5 KiB" in text
    assert lines["runs"] == "runs on     threads, 2 workers"


def test_explain_of_rows_that_wait_for_nobody() -> None:
    with job_on(Serial(), FactorizationProblem(4, solver="als"), some_ratings()) as (job, _):
        text = job.plan.explain()
    assert "none waits for another" in text
    assert "mf/als" in text


def test_explain_of_a_streamed_plan(plan: Plan) -> None:
    streamed = replace(plan, physical=Physical("threads", 1, memory=2**20, tile=2))
    assert "threads, 1 worker, streamed from disk within 1.0 MiB: 2 × 2 blocks" in streamed.explain()


def test_the_cost_counts_what_is_held(plan: Plan) -> None:
    # Two 2-byte indices and a float for each rating; 16 floats and a bias for each row and column.
    assert plan.cost.entry_bytes == 12_000 * 8
    assert plan.cost.state_bytes == (300 + 200) * 17 * 4 == sum(plan.arrays[name].nbytes for name in "WHbc")
    assert plan.cost.memory == plan.cost.entry_bytes + plan.cost.state_bytes
    assert int(plan.weight.sum()) == plan.cost.entries == 12_000


def test_draw_colours_every_visit(plan: Plan, tmp_path: Path) -> None:
    text = plan.draw(str(tmp_path / "grid.svg"), workers=4)
    assert (tmp_path / "grid.svg").read_text(encoding="utf-8") == text
    root = ElementTree.fromstring(text)
    blocks = [rect for rect in root.iter("{http://www.w3.org/2000/svg}rect") if len(rect)]
    assert len(blocks) == len(plan.order)
    titles = [rect[0].text or "" for rect in blocks]
    assert {int(t.split(":")[0].split()[1]) for t in titles} == set(range(len(plan.order)))
    assert {t.rsplit(" ", 1)[1] for t in titles} == {"0", "1", "2", "3"}, "all four workers have work"
    assert len({rect.get("fill") for rect in blocks}) > 4
    assert plan.draw() != text, "without a number it is drawn for the plan's own workers"


def test_draw_writes_png_and_refuses_other_suffixes(plan: Plan, tmp_path: Path) -> None:
    plan.draw(str(tmp_path / "grid.png"))
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(PlanError, match=r"cannot draw a plan as \.pdf; use \.svg or \.png"):
        plan.draw(str(tmp_path / "grid.pdf"))


@pytest.mark.parametrize(
    ("text", "bytes_"),
    [
        (10, 10),
        ("10", 10),
        ("10B", 10),
        ("1k", 1000),
        ("1 KB", 1000),
        ("1KiB", 1024),
        ("1.5 MB", 1_500_000),
        (" 2GiB ", 2**31),
        ("0.5g", 500_000_000),
        (".5 TiB", 2**39),
        ("3tb", 3 * 10**12),
    ],
)
def test_bytes_are_read(text: str | int, bytes_: int) -> None:
    assert parse_bytes(text) == bytes_


@pytest.mark.parametrize("text", ["", "GiB", "2 GiBs", "-1GB", "0", 0, -5, "1e3", "two", "1.2.3MB"])
def test_bytes_that_cannot_be_read(text: str | int) -> None:
    with pytest.raises(PlanError, match="as an amount of memory; write for example '2GiB'"):
        parse_bytes(text)


def test_bytes_are_shown() -> None:
    assert [show_bytes(n) for n in (0, 1023, 1024, 1536, 2**20, 3 * 2**30, 2**40, 2**50)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "1.0 MiB",
        "3.0 GiB",
        "1.0 TiB",
        "1024.0 TiB",
    ]


def test_a_plan_that_does_not_fit_is_refused() -> None:
    refuse_if_over(5, 5, "never said")
    refuse_if_over(2**60, None, "never said")
    with pytest.raises(NotEnoughMemory, match=r"needs 31\.00 GiB and may use 24\.00 GiB; stream from disk") as caught:
        refuse_if_over(31 * 2**30, 24 * 2**30, "stream from disk with memory=…")
    assert (caught.value.need, caught.value.budget) == (31 * 2**30, 24 * 2**30)
