"""Work between two epochs: evaluate the likelihood, optimise the priors, average states, measure held-out documents."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stretto.data.partition import BlockPartition
from stretto.kernels.topics.scores import add_rows_worker
from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport
from stretto.runtime.files.mapped_arrays import Disk, new_array

from .count_layout import CountLayout
from .infer import Inferrer
from .priors import CountRows, Histogram, optimise_alpha, optimise_beta
from .topics import Topics

if TYPE_CHECKING:
    from .priors import Priors
    from .problem import TopicProblem

_AT_ONCE = 1 << 22  # sums that are read together


class MonitoredJob(Protocol):
    """Interface of a job, as the monitor uses it."""

    crew: Crew
    items: int
    before: Histogram | None  # histogram of an earlier fit's word counts, if the fit continues from one

    @property
    def problem(self) -> TopicProblem: ...
    @property
    def priors(self) -> Priors: ...
    def histograms(self, by_topic: bool) -> tuple[Histogram, Histogram]: ...
    def add_up(self) -> None: ...
    def topics(self) -> Topics: ...


@dataclass
class LikelihoodMonitor:
    """Evaluates the likelihood of a topic model between epochs."""

    every: int = 0  # epochs between two evaluations of the likelihood; 0: never
    last: int = 0  # number of planned epochs
    held: tuple[Any, Any] | None = None  # (observed, rest) tokens of held-out documents, as CSR matrices
    _objective: float = field(default=math.inf, repr=False)

    def look(self, job: MonitoredJob, epoch: int, moved: float) -> EpochReport:
        """The report of an epoch (counted from 0). Then optimise the priors if that is due."""
        problem, priors, number = job.problem, job.priors, epoch + 1
        metrics: dict[str, float] = {"moved": moved}
        past = number - problem.settling
        optimise = bool(problem.optimise_every) and past > 0 and past % problem.optimise_every == 0
        # A run that resumes from a checkpoint evaluates at once: earlier values are not known.
        due = bool(self.every) and (
            number % self.every == 0 or number in (1, self.last) or not math.isfinite(self._objective)
        )
        if due or optimise:
            alike = bool((priors.alpha == priors.alpha[0]).all())
            documents, words = job.histograms(optimise or not alike)
            likelihood = documents.likelihood(priors.alpha) + words.likelihood(priors.beta)
            if job.before is not None:  # words of an earlier fit are given, not drawn
                likelihood -= job.before.likelihood(priors.beta)
            likelihood /= max(1, job.items)
            metrics["log_likelihood"] = likelihood
            self._objective = -likelihood
            if optimise:
                seeded = job.before if problem.seeds else None
                priors.put(optimise_alpha(documents, priors.alpha), optimise_beta(words, priors.beta, given=seeded))
        past = number - problem.averaging
        if problem.average_every and past > 0 and past % problem.average_every == 0:
            job.add_up()
        if self.held is not None:
            held, tokens = Inferrer.of(job.topics(), job.crew).completion(*self.held, crew=job.crew)
            metrics["held_perplexity"] = math.exp(-held / max(1, tokens))
        return EpochReport(self._objective, metrics)


class SummedCounts:
    """Word counts summed over several states, and the number of states; empty unless wanted.

    Sums are integers, so the mean does not depend on threads or on the order of the words. They are stored in the order
    of the plan, as the counts are: one row of K for each position, then one for each heavy word, whose parts have none.

    Parameters
    ----------
    shape : CountLayout
        The layout of the counts.
    wanted : bool
        Whether states are averaged.
    disk : Disk or None
        Where the sums are stored, if not in memory.
    """

    def __init__(self, shape: CountLayout, *, wanted: bool, disk: Disk | None = None) -> None:
        self.shape, self.disk = shape, disk
        self.states = np.zeros(1, np.int64)
        size = (len(shape.word_tokens) + len(shape.heavy), shape.topics)
        self.counts = new_array(disk, "summed", size, np.int64) if wanted else np.zeros((0, shape.topics), np.int64)

    def add(self, first: int, rows: CountRows, crew: Crew) -> None:
        """Add the counts of the words from position `first` on; parts of heavy words have empty rows."""
        into = self.counts[first : first + len(rows)]
        rows.run("add_rows", add_rows_worker, crew, rows.visits(), into)
        self._release(first, first + len(rows))

    def add_heavy(self, counts: NDArray[np.int64]) -> None:
        """Add the counts [H K] of the heavy words."""
        heavy = len(self.shape.heavy)
        if heavy:
            self.counts[-heavy:] += counts.reshape(heavy, -1)

    def means(self, cols: BlockPartition) -> Iterator[tuple[Any, Any, Any]]:
        """(word, topic, mean count) of ranges of words; the entries of a word are together."""
        word = np.empty(len(self.counts), np.int64)
        word[cols.place] = np.arange(len(cols))
        word[len(cols) :] = self.shape.heavy
        most = _AT_ONCE if self.disk is None else min(_AT_ONCE, self.disk.budget // 64)
        at_once = max(1, most // self.shape.topics)
        for first in range(0, len(self.counts), at_once):
            some = self.counts[first : first + at_once]
            rows, topics = np.nonzero(some)
            yield word[first + rows], topics, (some[rows, topics] / self.states[0]).astype(np.float32)
            self._release(first, first + len(some))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What a checkpoint saves."""
        return {"summed": self.counts, "states": self.states} if len(self.counts) else {}

    def _release(self, first: int, last: int) -> None:
        if self.disk is not None:
            self.disk.release(self.counts, first, last)
