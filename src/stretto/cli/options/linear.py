"""Options of `stretto train lasso` and `stretto train logistic`: the data, the model, and what is held out."""

from __future__ import annotations

from typing import Annotated

import typer

from .choices import ClassWeight, OnError
from .declare import DATA, MODEL, SOLVER, option

SamplesFile = Annotated[
    str,
    typer.Argument(
        help="Samples and targets: a table (.csv, .tsv, .parquet), svmlight, or .npz with X and y; packed or not.",
        metavar="FILE",
    ),
]
TargetOption = Annotated[
    str | None,
    option(
        "--target",
        help="The column that is predicted, by name or position from 0.",
        panel=DATA,
        metavar="COLUMN",
        show_default="target, y, label or class; of svmlight the label, of .npz the array y",
    ),
]
DropOption = Annotated[
    list[str] | None,
    option("--drop", help="A column to leave out; may be repeated.", panel=DATA, metavar="COLUMN", show_default=False),
]
MissingOption = Annotated[
    OnError, option("--on-error", help="Stop at the first missing value, or skip such rows.", panel=DATA)
]
ShareOption = Annotated[
    float | None,
    option(
        "--test",
        help="Share of the samples held out to measure on.",
        panel=DATA,
        min=0.0,
        max=0.99,
        show_default="0.1, of fewer than 50 none",
    ),
]
StrengthOption = Annotated[float, option("--alpha", help="Strength of the penalty, more than 0.", panel=MODEL, min=0.0)]
LassoRatioOption = Annotated[
    float,
    option(
        "--l1-ratio", help="Share of the penalty that sets coefficients to zero: 1 is the Lasso.", panel=MODEL,
        min=0.0, max=1.0,
    ),
]  # fmt: skip
LogisticRatioOption = Annotated[
    float,
    option(
        "--l1-ratio", help="Share of the penalty that sets coefficients to zero: 0 is plain L2.", panel=MODEL,
        min=0.0, max=1.0,
    ),
]  # fmt: skip
WeightOfDataOption = Annotated[
    float,
    option(
        "--C", help="Weight of the data against the penalty; smaller gives smaller coefficients.", panel=MODEL, min=0.0
    ),
]
ClassWeightOption = Annotated[
    ClassWeight | None,
    option(
        "--class-weight", help="'balanced' makes rare classes count as much.", panel=MODEL, show_default="all alike"
    ),
]
PositiveOption = Annotated[bool, option("--positive", help="Coefficients may not be negative.", panel=MODEL)]
InterceptOption = Annotated[
    bool, option("--intercept/--no-intercept", help="Learn an intercept, which is not penalised.", panel=MODEL)
]
StandardizeOption = Annotated[
    bool,
    option("--standardize", help="Penalise as if every feature had standard deviation 1.", panel=MODEL),
]
ToleranceOption = Annotated[
    float, option("--tol", help="Stop at this duality gap, as a share of the objective.", panel=SOLVER, min=0.0)
]
RoundsOption = Annotated[int, option("--max-iter", help="Rounds at most.", panel=SOLVER, min=1)]
