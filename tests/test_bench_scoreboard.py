"""The scoreboard: ratios and marks, halves of the sets, one objective for all programs."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from bench import (
    same_objective,
    scoreboard,
    scoreboard_jobs,
    scoreboard_linear,
    scoreboard_paths,
    scoreboard_programs,
    scoreboard_sets,
    scoreboard_store,
    scoreboard_summary,
)
from bench.peak_memory import growth_of_a_call
from bench.process_copy import in_copy
from bench.same_objective import Finish, Race
from bench.scoreboard_pages import PAGES, Page, number, other_rows
from bench.scoreboard_rows import OURS, Options, Row, slow_everywhere, slow_peers


def _row(ours: float, *peers: float | None, reached: bool = True) -> Row:
    finishes = {OURS: Finish(ours, 0.1 if reached else None, 1.00005)}
    for place, seconds in enumerate(peers):
        finishes[f"peer {place}"] = Finish(seconds or 9.0, None if seconds is None else 0.01, 1.0)
    return Row("lasso", "some set", scoreboard_sets.SECOND, "λ_max / 10", finishes, 1.0)


def test_the_ratio_is_the_best_peers_time_over_ours() -> None:
    assert _row(2.0, 5.0, 1.0).ratio == 0.5
    assert _row(2.0, 5.0, None).ratio == 2.5
    assert _row(2.0, 9.0, None).ratio == 4.5
    assert not _row(2.0, 9.0, None).bound
    assert _row(2.0, 5.0, reached=False).ratio == 0.0
    assert _row(2.0, None, reached=False).ratio is None


def test_where_no_peer_reaches_the_objective_the_ratio_is_a_bound() -> None:
    alone = _row(2.0, None, None)
    assert alone.bound
    assert alone.ratio == 4.5  # the peers had 9 seconds
    assert scoreboard.cells(alone)[4] == "> 4.50"


def test_peers_that_threads_cannot_make_fast_enough_are_left_out_with_several() -> None:
    found = slow_peers([_row(1.0, 2.0, 4.5, None), _row(1.0, 9.0, 20.0)])
    key = ("some set", "lasso", "λ_max / 10")
    assert slow_peers([_row(1.0, 2.0, 4.5, None)])[key] == {"peer 1", "peer 2"}
    assert found[key] == {"peer 1"}  # the fastest stays, however slow


def test_a_search_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(same_objective, "SHARED", True)  # limits of processor time: other work cannot use them up
    monkeypatch.setattr(same_objective, "clock", time.process_time)

    def never(setting: float) -> float:
        while True:
            pass

    programs = {"first": lambda setting: setting, "second": never, "third": lambda setting: 2.0 * setting}
    settings = dict.fromkeys(programs, (4.0, 2.0, 1.0))
    found = Race(float, programs, settings, patience=2.0, shortest=0.05).run(least=2.0, close=0.0)
    assert found["first"].setting == 2.0
    assert found["third"].setting == 1.0
    assert found["second"].setting is None
    assert found["second"].seconds >= 0.05


def test_a_call_in_a_copy_returns_its_result_or_nothing() -> None:
    assert in_copy(lambda: "x" * 1_000_000, 30.0) == "x" * 1_000_000
    assert in_copy(lambda: 1 // 0, 30.0) is None
    assert in_copy(lambda: sum(range(1_000)), 10.0, processor=True) == 499_500
    assert in_copy(lambda: [None for _ in iter(int, 1)], 0.05, processor=True) is None


def test_cells_below_one_are_marked() -> None:
    lost, won = scoreboard.cells(_row(2.0, 1.0)), scoreboard.cells(_row(1.0, 2.0, None))
    assert lost[4] == "**▼ 0.50**"
    assert won[4] == "2.00"
    assert "peer 1 not reached" in won[6]
    assert won[7] == "5e-05"


def test_the_page_names_missing_peers_and_counts_wins_by_half() -> None:
    body = scoreboard.page([_row(2.0, 1.0), _row(1.0, 3.0)], "", ["celer"])
    assert "could not be imported: celer" in body
    assert f"| lasso | 1 | {scoreboard_sets.SECOND} | 2 | 1 | 1 | 3.00 | 0.50 |" in body


def test_the_short_table_is_that_of_the_kept_rows() -> None:
    rows = [row for _, row in sorted(scoreboard_store.stored().items())]
    text = scoreboard_summary.PAGE.read_text(encoding="utf-8")
    table = text.split(scoreboard_summary.BEGIN)[1].split(scoreboard_summary.END)[0]
    assert table.strip() == scoreboard_summary.short_table(rows)


def test_the_short_table_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text(f"a\n{scoreboard_summary.BEGIN}\nold\n{scoreboard_summary.END}\nb\n", encoding="utf-8")
    scoreboard_summary.write_short([_row(1.0, 3.0), _row(1.0, 0.5)], file)
    text = file.read_text(encoding="utf-8")
    assert "| lasso | 1 | 2 | 1 | 1 | 3.00 | 0.50 |" in text
    assert "old" not in text
    assert text.startswith("a\n")
    assert text.endswith("\nb\n")


def test_a_peer_is_not_compiled_if_it_is_left_out_everywhere() -> None:
    only, name = ("=lasso / dense 7k × 28",), "dense 7k × 28"
    slow = {(name, "lasso", "λ_max / 10"): frozenset({"a", "b"}), (name, "lasso", "λ_max / 100"): frozenset({"b", "c"})}
    assert slow_everywhere("lasso", Options(only, slow=slow)) == {"b"}
    del slow[name, "lasso", "λ_max / 100"]  # not measured with one thread
    assert slow_everywhere("lasso", Options(only, slow=slow)) == frozenset()


def test_the_gate_names_slow_cells_and_a_share_that_is_too_small() -> None:
    assert scoreboard_summary.failures([_row(1.0, 3.0), _row(2.0, None)]) == []
    found = scoreboard_summary.failures([_row(2.0, 1.0), _row(1.0, 3.0)])
    assert "0.50 of the speed of peer 0" in found[0]
    assert found[1].startswith("1 of 2 cells")
    with pytest.raises(SystemExit) as ended:
        scoreboard.main(["--gate"])
    assert ended.value.code == (1 if scoreboard_summary.failures(list(scoreboard_store.stored().values())) else 0)


def test_a_run_replaces_the_rows_it_measures(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    old, new = _row(2.0, 1.0, None), _row(1.0, 3.0)
    scoreboard_store.store({old.key: old}, file)
    kept = scoreboard_store.stored(file)
    assert kept == {old.key: old}
    assert kept | {new.key: new} == {old.key: new}


def test_a_part_of_a_name_stands_for_all_cells_that_have_it_and_an_equals_sign_for_one() -> None:
    assert Options(("elastic / a9a",)).wants("logistic-elastic", "a9a")
    assert not Options(("=elastic / a9a",)).wants("logistic-elastic", "a9a")
    assert Options(("=elastic / a9a",)).wants("elastic", "a9a")
    assert Options().wants("lasso", "a9a")


def test_halves_are_of_equal_size_and_both_hold_every_use() -> None:
    halves = {name: scoreboard_sets.half(name) for name in scoreboard_sets.FAMILIES}
    first = [name for name, half in halves.items() if half == scoreboard_sets.FIRST]
    assert abs(2 * len(first) - len(halves)) <= 2
    for use in ("value", "sign", "classes"):
        found = {half for name, half in halves.items() if use in scoreboard_sets.FAMILIES[name].uses}
        assert len(found) == 2


@pytest.mark.filterwarnings("ignore")  # of peers
@pytest.mark.parametrize("sparse", [False, True])
def test_every_program_reaches_the_objective_of_a_path(sparse: bool) -> None:
    problem = scoreboard_paths.PathProblem(scoreboard_paths.WORK, scoreboard_linear.tiny("lasso", sparse).data, 10)
    exact = scoreboard_paths.stretto(problem, 1)(1e-9)
    problem.reference(exact[0])
    assert problem.objective(exact) == 1.0
    assert problem.objective((np.zeros_like(exact[0]), np.zeros(1))) > 1.1
    for title, fit in scoreboard_programs.programs(problem, 1).items():
        assert problem.objective(fit(1e-9)) < 1.0 + 1e-6, title


@pytest.mark.parametrize("work", [work for work in scoreboard_linear.WORKS if work != scoreboard_paths.WORK])
@pytest.mark.parametrize("sparse", [False, True])
def test_our_solution_is_a_minimum_of_the_objective(work: str, sparse: bool) -> None:
    problem = scoreboard_linear.tiny(work, sparse)
    coef, intercept = scoreboard_programs.stretto(problem, 1)(1e-9)
    least = problem.objective((coef, intercept))
    rng = np.random.default_rng(1)
    for _ in range(20):
        moved = coef + 1e-3 * rng.standard_normal(coef.shape), intercept + 1e-3 * rng.standard_normal(len(intercept))
        assert problem.objective(moved) > least


def test_memory_that_a_call_needs_is_found_though_the_process_has_space_from_before() -> None:
    np.ones(4_000_000).sum()
    grown = [growth_of_a_call(lambda: np.ones(4_000_000)) for _ in range(2)]
    if None in grown:
        pytest.skip("the system does not tell the peak of resident memory")
    assert grown == pytest.approx([4_000_000 * 8 / 2**20] * 2, abs=2.0)


def test_a_call_that_fails_has_no_memory() -> None:
    def fail() -> None:
        raise ValueError("no")

    assert growth_of_a_call(fail) is None


def test_jobs_that_would_share_cores_are_refused() -> None:
    with pytest.raises(SystemExit, match="need 100000 cores"):
        next(scoreboard_jobs.run([["--only", "lasso / a9a"]], jobs=50_000, threads=2))


@pytest.mark.slow
def test_rows_of_a_process_of_its_own() -> None:
    parts = [["--only", "lasso / dense 7k × 28", "--limit", "0.1"], ["--only", "no such set"]]
    rows = [scoreboard_store.row_of(kept) for kept in scoreboard_jobs.run(parts, jobs=1, threads=1)]
    assert [(row.work, row.name, row.penalty) for row in rows] == [
        ("lasso", "dense 7k × 28", "λ_max / 10"),
        ("lasso", "dense 7k × 28", "λ_max / 100"),
    ]
    assert all(row.finishes[OURS].setting is not None for row in rows)


def test_rows_of_other_pages_have_ratios_in_one_direction(tmp_path: Path) -> None:
    (tmp_path / "made.md").write_text(
        "# Made\n\n- date: 2026-01-02\n\n| set | threads | peer | ratio | faster |\n|---|---|---|---|---|\n"
        "| one | 2 | LIBMF | 0.50 | 1.6× |\n| two | 1 | cmfrec | 1.25 | 0.8× |\n| three | 1 | none | — | — |\n"
    )
    inverse = Page("made", "work", ("set", "threads"), "ratio", inverse=True, against="peer")
    direct = Page("made", "work", ("set",), "faster", against="tomotopy")
    rows = other_rows([inverse, direct, Page("absent", "work", (), "ratio")], tmp_path)
    assert [row[1:4] for row in rows] == [
        ["one, threads 2", "LIBMF", "2.00"],
        ["two, threads 1", "cmfrec", "**▼ 0.80**"],
        ["one", "tomotopy", "1.60"],
        ["two", "tomotopy", "**▼ 0.80**"],
    ]
    assert {row[5] for row in rows} == {"2026-01-02"}


def test_numbers_in_fields() -> None:
    assert number("> 1,234.5×") == 1234.5
    assert number("—") is None


def test_every_page_of_the_scoreboard_gives_rows() -> None:
    for page in PAGES:
        assert other_rows([page]), page
