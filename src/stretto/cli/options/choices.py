"""Values that options choose among."""

from __future__ import annotations

from enum import StrEnum


class SolverChoice(StrEnum):
    sgd = "sgd"
    als = "als"
    ccd = "ccd"


class LossChoice(StrEnum):
    squared = "squared"
    absolute = "absolute"
    logistic = "logistic"
    bpr = "bpr"
    warp = "warp"


class Optimizer(StrEnum):
    sgd = "sgd"
    adagrad = "adagrad"
    adarevision = "adarevision"


class ScheduleChoice(StrEnum):
    adaptive = "adaptive"
    linear = "linear"
    polynomial = "polynomial"
    constant = "constant"


class Sampler(StrEnum):
    auto = "auto"
    sparse = "sparse"
    mh = "mh"


class Profile(StrEnum):
    exact = "exact"
    fast = "fast"


class Duplicates(StrEnum):
    error = "error"
    first = "first"
    last = "last"
    mean = "mean"
    sum = "sum"
    keep = "keep"


class OnError(StrEnum):
    stop = "raise"
    skip = "skip"


class Ids(StrEnum):
    auto = "auto"
    integer = "integer"
    text = "text"


class Format(StrEnum):
    auto = "auto"
    movielens = "movielens"
    triples = "triples"
    svmlight = "svmlight"
    lda_c = "lda-c"
    bow = "bow"
    mm = "mm"
    npz = "npz"
    parquet = "parquet"


class ClassWeight(StrEnum):
    balanced = "balanced"
