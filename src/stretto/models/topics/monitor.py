"""What happens between two epochs: how likely the topics are, better priors, states to average, held-out documents."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stretto.runtime.blocks.crew import Crew
from stretto.runtime.blocks.job import EpochReport

from .infer import Inferrer
from .priors import Histogram, optimise_alpha, optimise_beta
from .topics import Topics

if TYPE_CHECKING:
    from .job import Priors
    from .problem import TopicProblem


class MonitoredJob(Protocol):
    """A job as seen from here."""

    crew: Crew
    items: int
    before: Histogram | None  # what the word counts of an earlier fit say, where a fit goes on from one

    @property
    def problem(self) -> TopicProblem: ...
    @property
    def priors(self) -> Priors: ...
    def histograms(self, by_topic: bool) -> tuple[Histogram, Histogram]: ...
    def add_up(self) -> None: ...
    def topics(self) -> Topics: ...


@dataclass
class LikelihoodMonitor:
    """every: epochs between two looks at the likelihood (0: never); last: the number of epochs planned.

    held: (observed, rest), tokens of documents that are not learned from, as CSR matrices.
    """

    every: int = 0
    last: int = 0
    held: tuple[Any, Any] | None = None
    _objective: float = field(default=math.inf, repr=False)

    def look(self, job: MonitoredJob, epoch: int, moved: float) -> EpochReport:
        """The report of an epoch (counted from 0). Priors that are due are learned afterwards."""
        problem, priors, number = job.problem, job.priors, epoch + 1
        metrics: dict[str, float] = {"moved": moved}
        past = number - problem.settling
        optimise = bool(problem.optimise_every) and past > 0 and past % problem.optimise_every == 0
        # A run that goes on from a checkpoint looks at once: what was seen before is not known here.
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
                priors.put(optimise_alpha(documents, priors.alpha), optimise_beta(words, priors.beta))
        if problem.average_every and past > 0 and past % problem.average_every == 0:
            job.add_up()
        if self.held is not None:
            held, tokens = Inferrer.of(job.topics(), job.crew).completion(*self.held, crew=job.crew)
            metrics["held_perplexity"] = math.exp(-held / max(1, tokens))
        return EpochReport(self._objective, metrics)
