"""`TopicSweep`: models with different numbers of topics, compared; a table, files and a plot."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stretto.atomic import replacing
from stretto.errors import DataError
from stretto.models import checks
from stretto.text import html_table, text_table

from .tables import without_nan, write_csv

if TYPE_CHECKING:
    from stretto.models.topics.estimator import LatentDirichletAllocation

# Measures of a row, and whether the largest value is the best.
BEST = {"perplexity": False, "coherence": True, "stability": True}


@dataclass(frozen=True)
class SweepRun:
    """One model.

    Attributes
    ----------
    n_components : int
        Number of topics.
    seed : int
        Seed of the fit.
    perplexity : float
        Perplexity of half of each held-out document, given the other half.
    log_likelihood : float
        Mean log-likelihood of those tokens, in nats.
    coherence : float
        Mean coherence of the topics.
    stability : float
        Mean similarity of its topics with those of the other seeds, optimally paired; NaN with one seed.
    seconds : float
        Seconds of the fit.
    """

    n_components: int
    seed: int
    perplexity: float
    log_likelihood: float
    coherence: float
    stability: float
    seconds: float


@dataclass(frozen=True)
class SweepRow:
    """One number of topics: means over seeds.

    Attributes
    ----------
    n_components : int
        Number of topics.
    perplexity : float
        exp of minus the mean log-likelihood.
    log_likelihood : float
        Mean over seeds.
    coherence : float
        Mean over seeds.
    stability : float
        Mean over pairs of seeds; NaN with one seed.
    perplexity_sd : float
        Standard deviation over seeds; NaN with one seed.
    coherence_sd : float
        Standard deviation over seeds; NaN with one seed.
    seconds : float
        Seconds of all its fits.
    """

    n_components: int
    perplexity: float
    log_likelihood: float
    coherence: float
    stability: float
    perplexity_sd: float
    coherence_sd: float
    seconds: float


@dataclass(frozen=True)
class SweptTopic:
    """One topic of the first seed of a number of topics.

    Attributes
    ----------
    n_components : int
        Number of topics of the model.
    topic : int
        Its number.
    name : str
        Its name, as `topic_names` gives it.
    tokens : int
        Its tokens.
    coherence : float
        Its coherence.
    stability : float
        Mean similarity with its partners in the models of other seeds; NaN with one seed.
    """

    n_components: int
    topic: int
    name: str
    tokens: int
    coherence: float
    stability: float


@dataclass(frozen=True, eq=False)
class TopicSweep:
    """What `st.sweep_topics` returns. `print` shows the table.

    Attributes
    ----------
    runs : tuple of SweepRun
        Every model: by number of topics, then by seed.
    topics : tuple of SweptTopic
        Every topic of the models of the first seed.
    measure : str
        Measure of coherence.
    held_documents : int
        Documents held out.
    held_tokens : int
        Tokens of theirs that were predicted.
    models : dict
        The fitted models by (number of topics, seed).
    """

    runs: tuple[SweepRun, ...]
    topics: tuple[SweptTopic, ...]
    measure: str
    held_documents: int
    held_tokens: int
    models: dict[tuple[int, int], LatentDirichletAllocation] = field(repr=False)

    @property
    def random_states(self) -> list[int]:
        """Seeds of the fits."""
        return list(dict.fromkeys(run.seed for run in self.runs))

    @property
    def table(self) -> tuple[SweepRow, ...]:
        """A row for each number of topics, smallest first."""
        numbers = dict.fromkeys(run.n_components for run in self.runs)
        return tuple(_row(K, [run for run in self.runs if run.n_components == K]) for K in numbers)

    def best(self, by: str = "perplexity", within: float = 0.0) -> int:
        """The best number of topics by a measure.

        Parameters
        ----------
        by : {"perplexity", "coherence", "stability"}, default "perplexity"
            The measure; the lowest perplexity, the highest coherence or stability.
        within : float, default 0.0
            Return the smallest number of topics that is worse than the best by at most this share of its value.
        """
        checks.choice("by", by, BEST)
        checks.number("within", within, least=0)
        values = {row.n_components: getattr(row, by) for row in self.table if not math.isnan(getattr(row, by))}
        if not values:
            raise DataError(
                f"the sweep has no {by}; stability needs several seeds, coherence words that occur together"
            )
        worth = {K: value if BEST[by] else -value for K, value in values.items()}
        top = max(worth.values())
        return min(K for K, value in worth.items() if value >= top - within * abs(top))

    def model(self, n_components: int | None = None, seed: int | None = None) -> LatentDirichletAllocation:
        """A fitted model.

        Parameters
        ----------
        n_components : int or None, default None
            Number of topics; None for the best by perplexity.
        seed : int or None, default None
            Seed of its fit; None for the first.
        """
        wanted = self.best() if n_components is None else n_components, self.random_states[0] if seed is None else seed
        if wanted not in self.models:
            known = ", ".join(f"{K} topics with seed {draw}" for K, draw in self.models)
            raise DataError(f"there is no model of {wanted[0]} topics with seed {wanted[1]}; there are {known}")
        return self.models[wanted]

    def to_frame(self) -> Any:
        """A pandas frame with one line for each number of topics."""
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.table])

    def write(self, path: Any) -> None:
        """Write the results to a file.

        Parameters
        ----------
        path : str or Path
            A name that ends in .csv (the table) or .json (the table, every run and every topic).
        """
        path = Path(path)
        if path.suffix not in {".csv", ".json"}:
            raise DataError(f"cannot write a sweep to {path}; use a name that ends in .csv or .json")
        table = [asdict(row) for row in self.table]
        if path.suffix == ".csv":
            write_csv(path, table)
            return
        whole = {
            "coherence": self.measure, "held_documents": self.held_documents, "held_tokens": self.held_tokens,
            "table": without_nan(table), "runs": without_nan([asdict(run) for run in self.runs]),
            "topics": without_nan([asdict(topic) for topic in self.topics]),
        }  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as fresh:
            fresh.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def plot(self, path: Any, title: str = "") -> None:
        """Draw perplexity, coherence and stability against the number of topics.

        Parameters
        ----------
        path : str or Path
            The file; its ending chooses the format.
        title : str, default ""
            Title of the figure; "" for "How many topics?".
        """
        from stretto.observe.topic_plots import draw_topic_counts

        labels = {
            "perplexity": "held-out perplexity (lower is better)",
            "coherence": f"mean coherence ({_MEASURES[self.measure]}, higher is better)",
        }
        if len(self.random_states) > 1:
            labels["stability"] = "similarity of topics between seeds (0 to 1)"
        table, draws = self.table, len(self.random_states)
        panels = {
            label: (
                np.array([getattr(run, name) for run in self.runs]).reshape(-1, draws),
                np.array([getattr(row, name) for row in table]),
            )
            for name, label in labels.items()
        }
        draw_topic_counts([row.n_components for row in table], panels, Path(path), title or "How many topics?")

    def cells(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of the table as text; the best value of each measure has a star."""
        heads = ["topics", "perplexity", "coherence", "stability", "seconds"]
        found = []
        for row in self.table:
            cells = [f"{row.n_components:,}"]
            for name, spread, digits in (("perplexity", row.perplexity_sd, 1), ("coherence", row.coherence_sd, 3),
                                         ("stability", math.nan, 3)):  # fmt: skip
                value = getattr(row, name)
                text = "–" if math.isnan(value) else f"{value:.{digits}f}"
                text += "" if math.isnan(spread) else f" ± {spread:.{digits}f}"
                best = not math.isnan(value) and row.n_components == self.best(name)
                cells.append(text + (" *" if best else ""))
            found.append([*cells, f"{row.seconds:.1f}"])
        return heads, found

    def note(self) -> str:
        """The line below the table."""
        seeds = (
            "one seed"
            if len(self.random_states) == 1
            else f"mean ± standard deviation of {len(self.random_states)} seeds"
        )
        return (
            f"{seeds}; perplexity of {self.held_tokens:,} tokens of {self.held_documents:,} held-out documents; "
            f"coherence: {_MEASURES[self.measure]}; * best"
        )

    def __str__(self) -> str:
        return f"{text_table(*self.cells())}\n{self.note()}"

    def _repr_html_(self) -> str:
        return html_table(*self.cells(), self.note())


_MEASURES = {"npmi": "NPMI", "umass": "UMass", "c_v": "C_v"}


def _row(K: int, runs: Sequence[SweepRun]) -> SweepRow:
    def spread(name: str) -> float:
        return float(np.std([getattr(run, name) for run in runs], ddof=1)) if len(runs) > 1 else math.nan

    def mean(name: str) -> float:
        return float(np.mean([getattr(run, name) for run in runs]))

    likelihood = mean("log_likelihood")
    return SweepRow(
        K, math.exp(-likelihood), likelihood, mean("coherence"), mean("stability"), spread("perplexity"),
        spread("coherence"), float(sum(run.seconds for run in runs)),
    )  # fmt: skip
