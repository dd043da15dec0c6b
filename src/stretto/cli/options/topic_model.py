"""Options of `stretto train lda`: the model, its sampler, and what is held out."""

from __future__ import annotations

from typing import Annotated

from .choices import Sampler
from .declare import DATA, MODEL, RUN, SOLVER, option

SeedsOption = Annotated[
    str | None,
    option(
        "--seeds",
        help='Seed words of topics, in a .toml, .json or text file: sport = ["game", "team"], or a line sport: game '
        "team.",
        panel=MODEL,
        metavar="FILE",
        show_default=False,
    ),
]
SeedWeightOption = Annotated[
    float | None,
    option(
        "--seed-weight",
        help="Prior tokens of a seed word, as a share of the mean tokens of a topic.",
        panel=MODEL,
        show_default="0.01",
    ),
]
TopicsOption = Annotated[int, option("--topics", "-k", help="How many to find.", panel=MODEL, min=1)]
TopicAlphaOption = Annotated[
    float | None,
    option("--alpha", help="Prior of a topic in a document.", panel=MODEL, show_default="5 / topics"),
]
BetaOption = Annotated[
    float | None, option("--beta", help="Prior of a word in a topic.", panel=MODEL, show_default="0.01")
]
OptimizeOption = Annotated[
    int,
    option(
        "--optimize-every", help="Epochs between two updates of the priors; 0 keeps them fixed.", panel=MODEL, min=0
    ),
]
BurnInOption = Annotated[
    int | None,
    option(
        "--burn-in",
        help="Epochs before priors are learned and states averaged; three quarters of --epochs, or 30 if it learns.",
        panel=MODEL,
        min=0,
    ),
]
WarmUpOption = Annotated[
    int | None,
    option("--warm-up", help="Epochs with a larger prior of words; as --burn-in.", panel=MODEL, min=0),
]
AverageOption = Annotated[
    int | None,
    option(
        "--average-every",
        help="Epochs between two states that are averaged; 0 keeps the last state alone.",
        panel=MODEL,
        min=0,
    ),
]
SamplerOption = Annotated[
    Sampler,
    option(
        "--sampler",
        help="Exact draws, or proposals whose cost does not grow with a document's topics.",
        panel=SOLVER,
    ),
]
StepsOption = Annotated[
    int, option("--mh-steps", help="Pairs of proposals for each token, with --sampler mh.", panel=SOLVER, min=1)
]
PassesOption = Annotated[int, option("--epochs", "-e", help="Passes over the tokens.", panel=SOLVER, min=1)]
EvaluateOption = Annotated[
    int, option("--evaluate-every", help="Epochs between two evaluations of the likelihood.", panel=SOLVER, min=0)
]
VocabularyOption = Annotated[
    str | None,
    option(
        "--vocab",
        help="The words, one a line, in the order of the columns; 'none' to use no file.",
        panel=DATA,
        show_default="vocab.NAME.txt, vocab.txt or NAME.vocab beside the file",
    ),
]
HeldOption = Annotated[
    float | None,
    option(
        "--test",
        help="Share of the documents held out to measure on; not with --memory.",
        panel=DATA,
        min=0.0,
        max=0.99,
        show_default="0, with --early-stopping 0.05",
    ),
]
StrictOption = Annotated[
    bool, option("--strict", help="Refuse counts that are no whole numbers instead of rounding them.", panel=DATA)
]
EarlyTopicsOption = Annotated[
    bool,
    option(
        "--early-stopping",
        "--early-stop",
        help="Stop when the held-out perplexity has not fallen for 10 epochs after burn-in.",
        panel=RUN,
    ),
]
AllTopicsOption = Annotated[bool, option("--all", help="Print every topic, not only the 20 largest.", panel=RUN)]
