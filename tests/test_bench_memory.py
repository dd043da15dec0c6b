"""The benches of memory at toy size: what they write, that plans share a model, how largest batches are looked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs torch: pip install 'stretto[memory]'")

import torch
from bench import memory_batches, memory_chunks
from bench.memory_runs import STEPS, WARM, Trial, items, made, unseen
from reproductions import memory_chapter

from stretto.memory.planner.planner import PlannerSettings

GPT: memory_chapter.Case = ("gpt", "fp32", {"batch": 2, "length": 32, "width": 64, "layers": 1, "words": 128})


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for results; tiny models."""
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setenv("STRETTO_TOY", "1")
    for name in ("STRETTO_CASES", "STRETTO_FROM", "STRETTO_BATCHES", "STRETTO_PLACE", "STRETTO_SECONDS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def chapter(out: Path) -> tuple[list[dict[str, Any]], str]:
    memory_chapter.main()
    rows = json.loads((out / "memory_chapter.json").read_text())
    return rows, (out / "memory_chapter.md").read_text()


@pytest.mark.slow  # a reproduction
def test_the_chapter_is_planned_without_a_gpu(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_chapter, "TOY", {"table_6_4": [GPT], "figure_6_7": [GPT]})
    rows, page = chapter(out)
    ablation = {row["method"]: row for row in rows if row["experiment"] == "table_6_4"}
    assert {row["how"] for row in rows} == {"planned"}
    assert ablation["dissertation: + placement"]["peak"] < ablation["dissertation: + partition"]["peak"]
    assert ablation["dissertation: + partition"]["seconds"] > ablation["eager"]["seconds"]
    assert ablation["ours: + placement"]["peak"] <= memory_chapter.SHARE * ablation["eager"]["peak"]
    assert all(row["peak"] <= row["budget"] for method, row in ablation.items() if method.startswith("ours"))
    peaks = [row["peak"] for row in rows if row["experiment"] == "figure_6_7" and row["method"] != "eager"]
    assert len(peaks) == len(memory_chapter.SIZES)
    assert peaks[0] < peaks[-1]  # larger partitions take more
    assert "## Table 6.4" in page
    assert "## Figure 6.7" in page
    assert "**planned** (gpt)" in page
    assert "| dissertation: + placement |" in page


@pytest.mark.slow
def test_experiments_under_a_cap_give_speeds_and_lengths(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ladder = (*GPT[:2], {**GPT[2], "batch": (8, 4)})
    monkeypatch.setattr(memory_chapter, "TOY", {"table_6_6": [ladder], "table_6_9": [GPT]})
    rows, page = chapter(out)
    methods = [row["method"] for row in rows]
    assert methods[:3] == ["eager, batch 8", "ours, batch 8", "ours, batch 32"]
    assert methods[3:] == ["eager, length 32", *(f"{who}, length 64" for who in ("eager", "ours", "dissertation"))]
    assert rows[4]["peak"] > rows[3]["peak"] >= rows[5]["peak"]  # ours has what eager takes for the length
    assert "tokens/s (" in page
    assert "× eager, for the length" in page


@pytest.mark.slow
def test_the_first_batch_that_fits_is_eagers_largest(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [made_peak(batch) for batch in (8, 4)]
    monkeypatch.setattr("bench.memory_runs.CAP", (sizes[0] + sizes[1]) // 2)
    monkeypatch.setattr("bench.memory_runs.SPARE", 0)
    monkeypatch.setattr(memory_chapter, "TOY", {"table_6_6": [(*GPT[:2], {**GPT[2], "batch": (8, 4)})]})
    rows, page = chapter(out)
    assert [row["method"] for row in rows] == ["eager, batch 8", "eager, batch 4", "ours, batch 4", "ours, batch 16"]
    assert rows[0]["failed"].startswith("out of memory")
    assert rows[3]["peak"] <= (sizes[0] + sizes[1]) // 2
    assert "out of memory" in page


def made_peak(batch: int) -> int:
    return int(Trial(*GPT[:2], {**GPT[2], "batch": batch}).eager()["peak"])


def test_plans_on_one_model_go_on_training_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four eager steps and four with each of two plans are twelve steps, wherever parameters were meanwhile."""
    monkeypatch.setenv("STRETTO_PLACE", "cpu")
    trial = Trial(*GPT)
    eager = trial.eager()
    rows = [trial.dissertation(order="program"), trial.plan(PlannerSettings(int(0.4 * eager["peak"])))]
    assert [row["how"] for row in rows] == ["measured"] * 2
    assert all(row["host"] > 0 and row["seconds"] > 0 and row["peak"] == row["predicted_peak"] for row in rows)
    plain = made(*GPT)
    for _ in range(3 * (WARM + STEPS)):
        plain.step(plain.batch)
    for one, other in zip(trial.job.modules[0].parameters(), plain.modules[0].parameters(), strict=True):
        torch.testing.assert_close(one.detach(), other.detach())


def test_after_steps_that_failed_the_model_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_PLACE", "cpu")
    trial = Trial(*GPT)
    with monkeypatch.context() as broken:
        broken.setattr("bench.memory_runs.timed", _out_of_memory)
        row = trial.dissertation()
    assert row["failed"] == "RuntimeError: no room"
    assert "peak" not in row
    assert trial.dissertation()["seconds"] > 0


def _out_of_memory(*args: Any) -> Any:
    raise RuntimeError("no room")


@pytest.mark.slow  # a reproduction
def test_an_experiment_that_breaks_leaves_the_others(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_chapter, "TOY", {"table_6_9": [GPT], "figure_6_7": [GPT]})
    monkeypatch.setitem(memory_chapter.EXPERIMENTS, "table_6_9", _out_of_memory)
    rows, page = chapter(out)
    assert [row["method"] for row in rows] == ["all", "eager", *map(str, memory_chapter.SIZES)]
    assert "| all | RuntimeError: no room |" in page


def test_a_failed_plan_is_a_row() -> None:
    row = Trial(*GPT).plan(PlannerSettings(1000))
    assert row["failed"].startswith("Infeasible: no plan fits")
    assert row["items"] == 64  # tokens


def test_items_are_counted_by_model() -> None:
    for name, dtype, options in memory_chapter.TINY:
        job = unseen(name, dtype, options)
        assert items(name, job.batch) == (64 if name == "gpt" else options["batch"])
        assert next(job.modules[0].parameters()).device.type == "meta"


@pytest.mark.slow  # a reproduction
def test_later_files_replace_experiments(tmp_path: Path) -> None:
    row = {"experiment": "figure_6_6", "model": "moe", "method": "levels"}
    planned = [{**row, "how": "planned"}, {**row, "model": "gpt", "how": "planned"}, {**row, "experiment": "table_6_4"}]
    for name, rows in (("a", planned), ("b", [{**row, "how": "measured"}])):
        (tmp_path / name).write_text(json.dumps(rows))
    found = memory_chapter.joined([str(tmp_path / "a"), str(tmp_path / "b")])
    assert [one["experiment"] for one in found] == ["table_6_4", "figure_6_6", "figure_6_6"]
    assert {one["model"]: one["how"] for one in found[1:]} == {"moe": "measured", "gpt": "planned"}


def test_the_largest_batch_is_found_in_few_tries() -> None:
    tried: list[int] = []

    def need(batch: int) -> int:
        tried.append(batch)
        return 1000 + 7 * batch + batch // 50 * 3  # not quite a line

    found = memory_batches.largest(need, 20_000, 8)
    exact = max(b for b in range(1, 4000) if 1000 + 7 * b + b // 50 * 3 <= 20_000)
    assert exact * 31 // 32 - 1 <= found <= exact
    assert len(tried) <= 6
    assert memory_batches.largest(lambda batch: 10**9, 1, 64) == 1


def test_round_numbers_are_little_smaller() -> None:
    for number in range(1, 5000):
        assert number * 31 / 32 <= memory_batches.smaller(number) <= number
    assert memory_batches.between(lambda b: b <= 700, 100, 3000) in range(500, 701)


@pytest.mark.slow
def test_batches_are_predicted_and_then_made_true(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_CASES", "gpt")
    memory_batches.main()
    rows = json.loads((out / "memory_batches.json").read_text())
    assert [row["model"] for row in rows] == ["gpt"]
    assert rows[0]["ours"]["batch"] > rows[0]["eager"]["batch"]
    assert max(rows[0]["ours"]["peak"], rows[0]["eager"]["peak"]) <= 2 << 20
    (out / "predicted.json").write_text(json.dumps(rows))
    monkeypatch.setenv("STRETTO_BATCHES", str(out / "predicted.json"))
    monkeypatch.setenv("STRETTO_PLACE", "cpu")
    memory_batches.main()
    (row,) = json.loads((out / "memory_batches.json").read_text())
    assert row["how"] == "measured"
    assert row["predicted"]["ours"] == rows[0]["ours"]
    assert row["ours"]["batch"] <= rows[0]["ours"]["batch"]
    assert row["ours"]["predicted_peak"] <= 2 << 20
    assert "| gpt fp32, length 16" in (out / "memory_batches.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("cases", "cut"), [("images", 1), ("attention images experts", 5)])
def test_pieces_are_tried_at_toy_size(cases: str, cut: int, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_CASES", cases)
    monkeypatch.setattr(memory_chunks, "GIB", 1)  # or all would be about nothing
    memory_chunks.main()
    rows = json.loads((out / "memory_chunks.json").read_text())
    assert [row["model"] for row in rows if row["how"] == "eager"] == cases.split()
    for row in rows:
        if "loss" in row:
            eager = next(one for one in rows if one["model"] == row["model"])
            assert row["loss"] == pytest.approx(eager["loss"], abs=2e-4), row
        if "budget GiB" in row and "predicted GiB" in row:
            assert 0 < row["predicted GiB"] <= row["budget GiB"]
    assert sum(row.get("note", "").startswith("chunks: ") for row in rows) >= cut
    assert "| images |" in (out / "memory_chunks.md").read_text()


def test_chunks_are_estimated_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    small = memory_chunks.CASES["images"][0]
    monkeypatch.setitem(memory_chunks.CASES, "images", (lambda device, _: small(device, True), "batch"))
    monkeypatch.setattr(memory_chunks, "GIB", 1)
    whole, cut = memory_chunks.estimated("images")
    assert cut["how"] == 'chunks={"batch": 4}, nothing moves, estimated'
    assert cut["predicted GiB"] < 0.6 * whole["predicted GiB"]
    assert cut["predicted ms"] > 0
