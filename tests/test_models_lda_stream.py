"""Topic models larger than memory: the bits of the run in memory, whatever the tiles; stopped, refused, taken away."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobs import digest
from stretto.data.records.data import Data
from stretto.errors import DataError, NotEnoughMemory, PlanError, RunError
from stretto.models.topics import corpus_files
from stretto.models.topics import problem as lda_base
from stretto.models.topics.corpus_files import on_disk
from stretto.models.topics.input import UnknownWordsWarning, as_corpus
from stretto.models.topics.job import LdaJob, build_lda
from stretto.models.topics.monitor import LikelihoodMonitor
from stretto.models.topics.problem import TopicProblem
from stretto.plan.plan import Physical
from stretto.runtime.blocks import tiles as tile_walk
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.source import Chunk, InMemory
from stretto.runtime.blocks.team import TeamCall
from stretto.runtime.blocks.train import JobTrainer
from stretto.runtime.files.run_checkpoints import Saving
from stretto.runtime.runtimes import Runtime, Serial, Threads
from stretto.schedule.orders import tiling
from stretto.schedule.orders.order import Order
from stretto.schedule.orders.tiling import Tiling

EPOCHS = 3
PROBLEMS = {
    "plain": TopicProblem(6, (0.5,) * 6, 0.1, "sparse", 1),
    "packed": TopicProblem(300, (0.05,) * 300, 0.02, "sparse", 1),
    "mh": TopicProblem(20, tuple(np.linspace(0.1, 1.0, 20)), 0.05, "mh", 2),
    "learned": TopicProblem(12, (0.3,) * 12, 0.1, "sparse", 1, optimise_every=1, average_every=1),
}


def some_documents(documents: int = 260, words: int = 120, tokens: int = 16_000, seed: int = 0) -> Data:
    """Skewed counts, with documents and words that have none; rows are not in their order."""
    rng = np.random.default_rng(seed)
    d, w = (documents * rng.random(tokens) ** 1.5).astype(int), (words * rng.random(tokens) ** 2).astype(int)
    d[d == 3], w[w == 5] = 4, 6
    pairs, counts = np.unique(d * words + w, return_counts=True)
    mixed = rng.permutation(len(pairs))
    return Data.from_arrays(*np.divmod(pairs[mixed], words), counts[mixed].astype(np.float32), (documents, words))


DATA = some_documents()


class InChunks:
    """The entries a few at a time, as from a file."""

    def __init__(self, data: Data, at_once: int) -> None:
        self.data, self.at_once, self.shape = data, at_once, data.shape

    def __len__(self) -> int:
        return len(self.data.values)

    def chunks(self) -> Iterator[Chunk]:
        for first in range(0, len(self), self.at_once):
            part = slice(first, first + self.at_once)
            yield self.data.rows[part], self.data.cols[part], self.data.values[part]


@pytest.fixture(autouse=True)
def several_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lda_base, "PANEL_TOKENS", 6_000)
    monkeypatch.setattr(lda_base, "FEWEST_TOKENS", 256)


@pytest.fixture
def tiles_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """tiles_of(m): whatever the budget, tiles have side m."""

    def fixed(order: Order, held: Any, budget: int | None, side: int) -> Tiling:
        tiles = tiling.tiles_of(order, side)
        assert tiles is not None
        return Tiling(side, tiles, 0, ahead=True)

    return lambda side: monkeypatch.setattr(tile_walk, "choose_tiling", partial(fixed, side=side))


def in_memory(name: str, crew: Crew) -> LdaJob:
    return build_lda(
        PROBLEMS[name], InMemory(DATA), crew, seed=5, profile="exact", width=4, physical=Physical("threads", 1),
        watch=LikelihoodMonitor(1, EPOCHS),
    )  # fmt: skip


def streamed(name: str, crew: Crew, folder: Path, memory: int = 600_000, source: Any = None, **more: Any) -> LdaJob:
    folder.mkdir(exist_ok=True)
    return build_lda(
        PROBLEMS[name], source or InChunks(DATA, 1000), crew, seed=5, profile="exact", width=4,
        physical=Physical("threads", crew.workers, memory), scratch=folder, watch=LikelihoodMonitor(1, EPOCHS), **more,
    )  # fmt: skip


def run(job: LdaJob, crew: Crew, epochs: int = EPOCHS) -> list[dict[str, float]]:
    """What each epoch reports."""
    reports = []
    for epoch in range(epochs):
        steps = job.steps(epoch)
        for step in steps:
            assert crew.run(step, "exact").finished is None
        reports.append(job.report(epoch, steps).metrics)
    return reports


def learned(job: LdaJob) -> str:
    topics = job.topics()
    values = (topics.indptr, topics.topic, topics.count, topics.totals, topics.alpha, np.array(topics.beta))
    return digest(job.arrays(), *values, [a.dtype.str.encode() for a in values[:3]])


@pytest.fixture(scope="module")
def wanted() -> dict[str, tuple[str, str, list[dict[str, float]]]]:
    """(fingerprint, what was learned, reports) of each problem in memory, run serially."""
    found = {}
    with pytest.MonkeyPatch.context() as patch, Serial().open() as crew:
        patch.setattr(lda_base, "PANEL_TOKENS", 6_000)
        patch.setattr(lda_base, "FEWEST_TOKENS", 256)
        for name in PROBLEMS:
            job = in_memory(name, crew)
            reports = run(job, crew)
            found[name] = job.plan.fingerprint, learned(job), reports
    return found


# --- the same bits ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    ("side", "runtime"), [(1, Serial()), (2, Threads(2)), (4, Threads(3)), (4, Serial()), (2, Threads(1))], ids=str
)
def test_tiles_of_any_side_give_the_bits_of_the_run_in_memory(
    tmp_path: Path, wanted: Any, name: str, side: int, runtime: Runtime, tiles_of: Callable[[int], None]
) -> None:
    tiles_of(side)
    with runtime.open() as crew:
        job = streamed(name, crew, tmp_path)
        order = job.plan.order
        assert (order.cols, order.rows) == (4, 12)
        assert job.plan.physical.tile == side
        assert job.disk is not None
        reports = run(job, crew)
        found = job.plan.fingerprint, learned(job), reports
    assert found[0] == wanted[name][0]
    assert found[2] == wanted[name][2]
    assert found[1] == wanted[name][1]


def test_how_the_corpus_comes_in_changes_nothing(tmp_path: Path, wanted: Any) -> None:
    """Chunk by chunk, all at once, in another order; made into tokens a few blocks at a time."""
    mixed = np.random.default_rng(1).permutation(len(DATA))
    other = Data.from_arrays(DATA.rows[mixed], DATA.cols[mixed], DATA.values[mixed], DATA.shape)
    with Threads(2).open() as crew:
        for k, (source, memory) in enumerate(
            [(InMemory(DATA), 10**9), (InChunks(other, 777), 400_000), (InChunks(DATA, 50_000), 150_000)]
        ):
            job = streamed("plain", crew, tmp_path / str(k), memory, source)
            run(job, crew)
            assert (job.plan.fingerprint, learned(job)) == wanted["plain"][:2]


def test_one_panel_in_one_tile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything fits: it is read once, and still written back for a checkpoint."""
    monkeypatch.setattr(lda_base, "PANEL_TOKENS", 10**6)
    with Threads(2).open() as crew:
        whole, job = in_memory("packed", crew), streamed("packed", crew, tmp_path, 10**9)
        assert job.plan.physical.tile == 4
        assert run(job, crew) == run(whole, crew)
        assert learned(job) == learned(whole)


def test_documents_stand_in_the_plans_order(tmp_path: Path, tiles_of: Callable[[int], None]) -> None:
    """Every document has as many counts as tokens, whichever form its row has."""
    tiles_of(2)
    tokens = np.bincount(DATA.rows, weights=DATA.values, minlength=DATA.shape[0])
    for name in ("plain", "packed"):
        with Threads(2).open() as crew:
            job = streamed(name, crew, tmp_path / name)
            run(job, crew, 2)
            place = job.plan.logical.rows.place
            standing = np.argsort(place)
            seen = 0
            for first, last, rows in job._documents():
                assert first == seen
                for k in range(last - first):
                    at, length = rows.at[k], rows.length[k]
                    row = rows.rows[at : at + (rows.n_topics if length < 0 else length)].astype(np.int64)
                    counts = row if length < 0 else row & ((1 << rows.shift) - 1)
                    assert counts.sum() == tokens[standing[first + k]]
                seen = last
            assert seen == DATA.shape[0]


# --- stopped and resumed ----------------------------------------------------------------------------------------------


@pytest.fixture
def interrupt_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """interrupt_after(n): the n-th wait for a pass is struck by Ctrl-C."""

    def arm(count: int) -> None:
        left, real = [count], TeamCall.wait

        def wait(call: TeamCall, seconds: float | None = None) -> bool:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return real(call, seconds)

        monkeypatch.setattr(TeamCall, "wait", wait)

    return arm


@pytest.mark.parametrize(
    ("name", "side", "stop_at"), [("packed", 4, 2), ("plain", 2, 9), ("mh", 1, 70), ("learned", 2, 24)]
)
def test_stopped_in_the_middle_of_an_epoch(
    tmp_path: Path,
    wanted: Any,
    name: str,
    side: int,
    stop_at: int,
    interrupt_after: Callable[[int], None],
    tiles_of: Callable[[int], None],
) -> None:
    tiles_of(side)
    with Threads(2).open() as crew:
        job = streamed(name, crew, tmp_path / "first")
        trainer = JobTrainer(job, crew, saving=Saving(tmp_path / "saved", every_epochs=100))
        interrupt_after(stop_at)
        assert trainer.run(EPOCHS).status == "stopped"
        assert trainer.position.finished is not None
        trainer.save()
    for runtime in (Serial(), Threads(3)):
        with runtime.open() as crew:
            copy = tmp_path / f"copy-{runtime.workers}"
            shutil.copytree(tmp_path / "saved", copy)
            job = streamed(name, crew, tmp_path / f"again-{runtime.workers}")
            trainer = JobTrainer(job, crew, saving=Saving(copy, every_epochs=100))
            trainer.restore()
            outcome = trainer.run(EPOCHS)
            assert outcome.status == "done"
            assert [report.metrics for report in outcome.reports] == wanted[name][2]
            assert learned(job) == wanted[name][1]


def test_checkpoints_all_the_time(tmp_path: Path, wanted: Any, tiles_of: Callable[[int], None]) -> None:
    """Saved after every few visits, in the middle of tiles: what is worked on goes on as if nothing had been."""
    tiles_of(2)
    with Threads(2).open() as crew:
        job = streamed("packed", crew, tmp_path / "files")
        trainer = JobTrainer(job, crew, saving=Saving(tmp_path / "saved", every_seconds=0.0))
        assert trainer.run(2).status == "done"
        assert trainer.position.saves > 2
        run_on = JobTrainer(job, crew)
        run_on.position = trainer.position
        assert run_on.run(EPOCHS).status == "done"
        assert learned(job) == wanted["packed"][1]


def test_between_epochs_a_run_moves_from_disk_to_memory_and_back(
    tmp_path: Path, wanted: Any, tiles_of: Callable[[int], None]
) -> None:
    saving = Saving(tmp_path / "saved", every_epochs=1)
    with Threads(2).open() as crew:
        tiles_of(2)
        job = streamed("learned", crew, tmp_path / "first")
        JobTrainer(job, crew, saving=saving).run(2)  # the last checkpoint is after the first epoch
        whole = in_memory("learned", crew)
        trainer = JobTrainer(whole, crew, saving=saving)
        assert trainer.restore() == 1
        trainer.run(2)
        trainer.save()
        tiles_of(4)
        job = streamed("learned", crew, tmp_path / "second")
        trainer = JobTrainer(job, crew, saving=saving)
        assert trainer.restore() == 2
        trainer.run(EPOCHS)
        assert learned(job) == wanted["learned"][1]


def test_the_middle_of_an_epoch_may_go_on_with_other_tiles(
    tmp_path: Path, wanted: Any, interrupt_after: Callable[[int], None], tiles_of: Callable[[int], None]
) -> None:
    saving = Saving(tmp_path / "saved", every_epochs=100)
    with Threads(2).open() as crew:
        tiles_of(2)
        job = streamed("plain", crew, tmp_path / "first")
        trainer = JobTrainer(job, crew, saving=saving)
        interrupt_after(5)
        assert trainer.run(EPOCHS).status == "stopped"
        trainer.save()
    with Threads(2).open() as crew:
        tiles_of(1)
        job = streamed("plain", crew, tmp_path / "second")
        trainer = JobTrainer(job, crew, saving=saving)
        trainer.restore()
        trainer.run(EPOCHS)
        assert learned(job) == wanted["plain"][1]


# --- budgets, files ---------------------------------------------------------------------------------------------------


def test_the_budget_chooses_the_largest_tile_that_fits(tmp_path: Path) -> None:
    sides: list[int] = []
    with Threads(2).open() as crew:
        for memory in (200_000, 240_000, 300_000, 10**9):
            job = streamed("packed", crew, tmp_path / str(memory), memory)
            sides.append(job.plan.physical.tile or 0)
            assert f"{sides[-1]} × {sides[-1]} blocks" in job.plan.explain()
        assert sides == sorted(sides)
        assert sides[0] == 1
        assert sides[-1] >= 4
        (tmp_path / "none").mkdir()
        with pytest.raises(NotEnoughMemory, match=r"raise the budget, use fewer topics, or raise width=") as caught:
            streamed("packed", crew, tmp_path / "none", 100_000)
        assert caught.value.need > caught.value.budget == 100_000
        assert list((tmp_path / "none").iterdir()) == [], "refused before any work"
        streamed("packed", crew, tmp_path / "least", caught.value.need)


def test_sums_for_averages_are_on_disk_with_the_counts(tmp_path: Path) -> None:
    with Serial().open() as crew:
        job = streamed("learned", crew, tmp_path)
        assert job.disk is not None
        assert job.disk.holds(job.summed.counts)
        assert in_memory("learned", crew).summed.disk is None


def test_what_fits_is_left_to_memory_unless_asked_for(tmp_path: Path) -> None:
    with Serial().open() as crew:
        fits = in_memory("plain", crew).plan.cost.memory
        for memory, here in ((2 * fits, False), (fits - 1, True)):
            job = streamed("plain", crew, tmp_path, memory, InMemory(DATA), data=DATA)
            assert (job.disk is not None) == here


def test_files_have_no_names_and_what_was_learned_stays(tmp_path: Path, tiles_of: Callable[[int], None]) -> None:
    tiles_of(2)
    with Threads(2).open() as crew:
        job = streamed("packed", crew, tmp_path)
        assert list(tmp_path.iterdir()) == []
        run(job, crew, 1)
        first = job.topics()
        copy = first.topic.copy()
        run(job, crew, 2)
        assert not np.array_equal(job.topics().topic, copy)
    np.testing.assert_array_equal(first.topic, copy)


def test_a_disk_that_is_full_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with Threads(2).open() as crew, pytest.raises(RunError, match=r"no space for .* KiB of u: No space left on device"):
        streamed("plain", crew, tmp_path)


def test_a_full_disk_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=100_000))
    with Serial().open() as crew, pytest.raises(PlanError, match=r"takes .* KiB of disk in .*, and 97\.7 KiB are free"):
        streamed("plain", crew, tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- from files -------------------------------------------------------------------------------------------------------


def test_a_file_on_disk_is_the_corpus_in_memory(tmp_path: Path) -> None:
    lines = [f"{d + 1} {w + 1} {int(n)}" for (d, w), n in DATA]
    text = "\n".join([str(DATA.shape[0]), str(DATA.shape[1]), str(len(lines)), *lines]) + "\n"
    (tmp_path / "docword.txt").write_text(text)
    source, names = on_disk(tmp_path / "docword.txt", 10**6, tmp_path, None)
    whole = as_corpus(str(tmp_path / "docword.txt"), seed=0).data
    parts = [np.concatenate(part) for part in zip(*source.chunks(), strict=True)]
    order = np.lexsort((parts[1], parts[0]))
    for found, expected in zip(parts, (whole.rows, whole.cols, whole.values), strict=True):
        np.testing.assert_array_equal(found[order], expected)
    assert (source.shape, names) == (DATA.shape, None)


def test_words_are_put_into_the_order_of_the_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "said.csv").write_text("doc,word,count\na,owl,2\na,cat,1\nb,dog,3\nb,owl,0\n")
    source, names = on_disk(tmp_path / "said.csv", 10**6, tmp_path, None)
    assert (source.shape, names) == ((2, 3), ["cat", "dog", "owl"])
    (tmp_path / "again").mkdir()
    with pytest.warns(UnknownWordsWarning, match=r"left out: 1, with 3 tokens"):
        source, names = on_disk(tmp_path / "said.csv", 10**6, tmp_path / "again", ["owl", "emu", "cat"])
    rows, cols, values = next(source.chunks())
    assert (rows.tolist(), cols.tolist(), values.tolist()) == ([0, 0], [0, 2], [2.0, 1.0])
    assert (source.shape, names) == ((2, 3), ["owl", "emu", "cat"])


def test_a_file_that_does_not_say_how_many_words_there_are(tmp_path: Path) -> None:
    (tmp_path / "said.ldac").write_text("2 0:1 2:4\n1 1:3\n")
    assert on_disk(tmp_path / "said.ldac", 10**6, tmp_path, None)[0].shape == (2, 3)
    asked: tuple[dict[str, Any], ...] = ({"vocabulary": list("abcde")}, {"vocabulary": None, "at_least": 5})
    for k, more in enumerate(asked):
        (tmp_path / str(k)).mkdir()
        assert on_disk(tmp_path / "said.ldac", 10**6, tmp_path / str(k), **more)[0].shape == (2, 5)


@pytest.mark.parametrize("count", ["1.5", "-2", "99999999"])
def test_what_is_no_count_is_refused_with_its_place(tmp_path: Path, count: str) -> None:
    (tmp_path / "said.csv").write_text(f"doc,word,count\n1,1,2\n1,2,{count}\n")
    with pytest.raises(DataError, match=r"at row 0, column 1 is no count.*whole numbers.*without memory="):
        on_disk(tmp_path / "said.csv", 10**6, tmp_path, None)


def test_a_vocabulary_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "docword.txt").write_text("2\n3\n2\n1 1 2\n2 3 1\n")
    with pytest.raises(DataError, match=r"the vocabulary has 2 words, .*docword\.txt has 3"):
        on_disk(tmp_path / "docword.txt", 10**6, tmp_path, ["one", "two"])


def test_stored_zeros_are_refused(tmp_path: Path) -> None:
    zeros = Data.from_arrays([0, 1], [0, 1], np.array([0, 2], np.float32), (2, 2))
    with Serial().open() as crew, pytest.raises(DataError, match="stored zeros"):
        streamed("plain", crew, tmp_path, source=InMemory(zeros))


def test_pieces_are_no_heavier_than_asked_for() -> None:
    weight = np.random.default_rng(0).integers(0, 50, 300)
    found = list(corpus_files.pieces(weight, 120))
    assert [first for first, _ in found] == [0] + [last for _, last in found[:-1]]
    assert found[-1][1] == 300
    assert all(weight[a:b].sum() <= 120 or b == a + 1 for a, b in found)
    assert all(weight[a : b + 1].sum() > 120 for a, b in found[:-1])
