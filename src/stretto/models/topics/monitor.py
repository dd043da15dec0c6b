"""Work between two epochs: evaluate the likelihood, optimise the priors, average states, measure held-out documents."""

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
    from .priors import Priors
    from .problem import TopicProblem


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
                priors.put(optimise_alpha(documents, priors.alpha), optimise_beta(words, priors.beta))
        past = number - problem.averaging
        if problem.average_every and past > 0 and past % problem.average_every == 0:
            job.add_up()
        if self.held is not None:
            held, tokens = Inferrer.of(job.topics(), job.crew).completion(*self.held, crew=job.crew)
            metrics["held_perplexity"] = math.exp(-held / max(1, tokens))
        return EpochReport(self._objective, metrics)
