"""Options of `stretto train mf`: the model, its solver, and what is held out."""

from __future__ import annotations

from typing import Annotated

import typer

from .choices import LossChoice, Optimizer, ScheduleChoice, SolverChoice
from .declare import DATA, MODEL, RUN, SOLVER, option

Ratings = Annotated[
    str, typer.Argument(help="A ratings file, packed (gzip, xz, bzip2) or not, or an fsspec URL.", metavar="FILE")
]
RankOption = Annotated[int, option("--rank", "-k", help="Numbers kept for each user and item.", panel=MODEL, min=1)]
LossOption = Annotated[
    LossChoice, option("--loss", help="als and ccd solve 'squared'; bpr and warp learn to rank.", panel=MODEL)
]
RegOption = Annotated[
    float | None,
    option(
        "--reg",
        help="Penalty on factors, in units of the ratings; by default one that suits their spread and number.",
        panel=MODEL,
        min=0.0,
    ),
]
BiasRegOption = Annotated[
    float | None,
    option(
        "--bias-reg",
        help="Penalty on biases; by default one that suits the number of ratings of a row.",
        panel=MODEL,
        min=0.0,
    ),
]
BiasesOption = Annotated[
    bool, option("--biases/--no-biases", help="Learn the mean and a bias for each user and item.", panel=MODEL)
]
ImplicitOption = Annotated[
    bool, option("--implicit", help="The values count what people did; als, or logistic.", panel=MODEL)
]
AlphaOption = Annotated[
    float,
    option("--alpha", help="With --implicit: confidence is 1 + alpha·value / mean value.", panel=MODEL, min=0.0),
]
NegativesOption = Annotated[
    int | None,
    option("--negatives", help="Items drawn for a value by bpr, warp and --implicit logistic.", panel=MODEL, min=1),
]
UserFeaturesOption = Annotated[
    str | None,
    option("--user-features", help="CSV file of user ids and features: numbers or text.", panel=MODEL),
]
ItemFeaturesOption = Annotated[
    str | None, option("--item-features", help="CSV file of item ids and features; text may be a|b.", panel=MODEL)
]
SolverOption = Annotated[
    SolverChoice, option("--solver", help="Gradient steps, alternating least squares, or CCD++.", panel=SOLVER)
]
EpochsOption = Annotated[int, option("--epochs", "-e", help="Passes over the ratings.", panel=SOLVER, min=1)]
RateOption = Annotated[
    float | None,
    option(
        "--learning-rate",
        help="First step of sgd, for ratings of spread 1.",
        panel=SOLVER,
        show_default="0.15 with adaptive steps, else 0.04, adagrad 0.1, adarevision 0.08",
    ),
]
ScheduleOption = Annotated[
    ScheduleChoice | None,
    option(
        "--schedule",
        help="The learning rate falls to zero over the epochs, also with the ratings of a row, or stays as it is.",
        panel=SOLVER,
        show_default="adaptive, with a learning rate polynomial, adagrad linear, adarevision constant",
    ),
]
OptimizerOption = Annotated[
    Optimizer,
    option(
        "--optimizer",
        help="The steps of sgd: one for all, one for each row, or one for each element by its gradients so far.",
        panel=SOLVER,
    ),
]
TestOption = Annotated[
    float | None,
    option(
        "--test",
        help="Share of the ratings held out to measure on.",
        panel=DATA,
        min=0.0,
        max=0.99,
        show_default="0.1, of a handful none",
    ),
]
EarlyOption = Annotated[
    bool, option("--early-stopping", help="Stop when the held-out part has not improved for 3 epochs.", panel=RUN)
]
