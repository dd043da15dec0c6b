"""Options of `stretto train` and other commands: names, help texts, defaults (those of the estimators)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer


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


_MODEL, _SOLVER, _DATA, _RUN = "The model", "The solver", "The data", "The run"
_TEXT = "Documents of text"


def _option(*names: str, help: str, panel: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


Ratings = Annotated[
    str, typer.Argument(help="A ratings file, packed (gzip, xz, bzip2) or not, or an fsspec URL.", metavar="FILE")
]

Documents = Annotated[
    str,
    typer.Argument(
        help="Text: a folder of files, a file of lines, or a table (--text COLUMN); or a file of counts: UCI docword, "
        "lda-c, svmlight, triples, MatrixMarket, npz; packed or not.",
        metavar="FILE",
    ),
]
TextOption = Annotated[
    str | None,
    _option(
        "--text",
        help="The column of a table that holds the text (.csv, .tsv, .jsonl, .parquet); 'lines' for one document a "
        "line, 'files' for one a file.",
        panel=_TEXT,
        metavar="COLUMN",
        show_default="a folder or file that looks like text is read as text",
    ),
]
NamesOption = Annotated[
    str | None,
    _option(
        "--names",
        help="The column of the documents' names.",
        panel=_TEXT,
        metavar="COLUMN",
        show_default="in a folder the paths of the files",
    ),
]
EncodingOption = Annotated[
    str | None, _option("--encoding", help="Encoding of the text.", panel=_TEXT, show_default="utf-8")
]
StopWordsOption = Annotated[
    str | None,
    _option(
        "--stop-words",
        help="Words left out: 'english', 'none', or a file with one word a line.",
        panel=_TEXT,
        show_default="none",
    ),
]
MinDfOption = Annotated[
    str | None,
    _option(
        "--min-df",
        help="Leave out words in fewer documents: a number, or a share such as 0.001.",
        panel=_TEXT,
        metavar="NUMBER",
        show_default="1",
    ),
]
MaxDfOption = Annotated[
    str | None,
    _option(
        "--max-df",
        help="Leave out words in more documents: a number, or a share such as 0.5.",
        panel=_TEXT,
        metavar="NUMBER",
        show_default="1.0",
    ),
]
MaxWordsOption = Annotated[
    int | None,
    _option("--max-words", help="Keep this many words, the most frequent.", panel=_TEXT, min=1, show_default="all"),
]
NgramsOption = Annotated[
    str | None,
    _option(
        "--ngrams",
        help="Words of the shortest and the longest sequence that counts as one: 1,2 adds pairs of neighbours.",
        panel=_TEXT,
        metavar="A,B",
        show_default="1,1",
    ),
]
LowercaseOption = Annotated[
    bool, _option("--lowercase/--no-lowercase", help="Convert text to lower case.", panel=_TEXT)
]
TokenPatternOption = Annotated[
    str | None,
    _option(
        "--token-pattern",
        help="What a word is, as a regular expression.",
        panel=_TEXT,
        metavar="REGEX",
        show_default="two or more letters, digits or underscores",
    ),
]
SeedsOption = Annotated[
    str | None,
    _option(
        "--seeds",
        help='Seed words of topics, in a .toml, .json or text file: sport = ["game", "team"], or a line sport: game '
        "team.",
        panel=_MODEL,
        metavar="FILE",
        show_default=False,
    ),
]
SeedWeightOption = Annotated[
    float | None,
    _option(
        "--seed-weight",
        help="Prior tokens of a seed word, as a share of the mean tokens of a topic.",
        panel=_MODEL,
        show_default="0.01",
    ),
]

RankOption = Annotated[int, _option("--rank", "-k", help="Numbers kept for each user and item.", panel=_MODEL, min=1)]
LossOption = Annotated[
    LossChoice, _option("--loss", help="als and ccd solve 'squared'; bpr and warp learn to rank.", panel=_MODEL)
]
RegOption = Annotated[
    float | None,
    _option(
        "--reg",
        help="Penalty on factors, in units of the ratings; by default one that suits their spread and number.",
        panel=_MODEL,
        min=0.0,
    ),
]
BiasRegOption = Annotated[
    float | None,
    _option(
        "--bias-reg",
        help="Penalty on biases; by default one that suits the number of ratings of a row.",
        panel=_MODEL,
        min=0.0,
    ),
]
BiasesOption = Annotated[
    bool, _option("--biases/--no-biases", help="Learn the mean and a bias for each user and item.", panel=_MODEL)
]
ImplicitOption = Annotated[
    bool, _option("--implicit", help="The values count what people did; als, or logistic.", panel=_MODEL)
]
AlphaOption = Annotated[
    float,
    _option("--alpha", help="With --implicit: confidence is 1 + alpha·value / mean value.", panel=_MODEL, min=0.0),
]
NegativesOption = Annotated[
    int | None,
    _option("--negatives", help="Items drawn for a value by bpr, warp and --implicit logistic.", panel=_MODEL, min=1),
]

TopicsOption = Annotated[int, _option("--topics", "-k", help="How many to find.", panel=_MODEL, min=1)]
TopicAlphaOption = Annotated[
    float | None,
    _option("--alpha", help="Prior of a topic in a document.", panel=_MODEL, show_default="5 / topics"),
]
BetaOption = Annotated[
    float | None, _option("--beta", help="Prior of a word in a topic.", panel=_MODEL, show_default="0.01")
]
OptimizeOption = Annotated[
    int,
    _option(
        "--optimize-every", help="Epochs between two updates of the priors; 0 keeps them fixed.", panel=_MODEL, min=0
    ),
]
BurnInOption = Annotated[
    int | None,
    _option(
        "--burn-in",
        help="Epochs before priors are learned and states averaged; three quarters of --epochs, or 30 if it learns.",
        panel=_MODEL,
        min=0,
    ),
]
WarmUpOption = Annotated[
    int | None,
    _option("--warm-up", help="Epochs with a larger prior of words; as --burn-in.", panel=_MODEL, min=0),
]
AverageOption = Annotated[
    int | None,
    _option(
        "--average-every",
        help="Epochs between two states that are averaged; 0 keeps the last state alone.",
        panel=_MODEL,
        min=0,
    ),
]
SamplerOption = Annotated[
    Sampler,
    _option(
        "--sampler",
        help="Exact draws, or proposals whose cost does not grow with a document's topics.",
        panel=_SOLVER,
    ),
]
StepsOption = Annotated[
    int, _option("--mh-steps", help="Pairs of proposals for each token, with --sampler mh.", panel=_SOLVER, min=1)
]
PassesOption = Annotated[int, _option("--epochs", "-e", help="Passes over the tokens.", panel=_SOLVER, min=1)]
EvaluateOption = Annotated[
    int, _option("--evaluate-every", help="Epochs between two evaluations of the likelihood.", panel=_SOLVER, min=0)
]
VocabularyOption = Annotated[
    str | None,
    _option(
        "--vocab",
        help="The words, one a line, in the order of the columns; 'none' to use no file.",
        panel=_DATA,
        show_default="vocab.NAME.txt, vocab.txt or NAME.vocab beside the file",
    ),
]
HeldOption = Annotated[
    float | None,
    _option(
        "--test",
        help="Share of the documents held out to measure on; not with --memory.",
        panel=_DATA,
        min=0.0,
        max=0.99,
        show_default="0, with --early-stopping 0.05",
    ),
]
StrictOption = Annotated[
    bool, _option("--strict", help="Refuse counts that are no whole numbers instead of rounding them.", panel=_DATA)
]

SolverOption = Annotated[
    SolverChoice, _option("--solver", help="Gradient steps, alternating least squares, or CCD++.", panel=_SOLVER)
]
EpochsOption = Annotated[int, _option("--epochs", "-e", help="Passes over the ratings.", panel=_SOLVER, min=1)]
RateOption = Annotated[
    float | None,
    _option(
        "--learning-rate",
        help="First step of sgd, for ratings of spread 1.",
        panel=_SOLVER,
        show_default="0.15 with adaptive steps, else 0.04, adagrad 0.1, adarevision 0.08",
    ),
]
ScheduleOption = Annotated[
    ScheduleChoice | None,
    _option(
        "--schedule",
        help="The learning rate falls to zero over the epochs, also with the ratings of a row, or stays as it is.",
        panel=_SOLVER,
        show_default="adaptive, with a learning rate polynomial, adagrad linear, adarevision constant",
    ),
]
OptimizerOption = Annotated[
    Optimizer,
    _option(
        "--optimizer",
        help="The steps of sgd: one for all, one for each row, or one for each element by its gradients so far.",
        panel=_SOLVER,
    ),
]
SeedOption = Annotated[int, _option("--seed", help="Same seed, same bits.", panel=_SOLVER, min=0)]
WidthOption = Annotated[
    int,
    _option(
        "--width", help="Workers the plan is cut for; changes the answer, --workers does not.", panel=_SOLVER, min=1
    ),
]
ProfileOption = Annotated[
    Profile, _option("--profile", help="'exact': same bits on every x86-64 processor.", panel=_SOLVER)
]

FormatOption = Annotated[Format, _option("--format", help="What the file is; 'auto' looks.", panel=_DATA)]
DuplicatesOption = Annotated[
    Duplicates, _option("--duplicates", help="What becomes of a pair rated twice.", panel=_DATA)
]
OnErrorOption = Annotated[
    OnError, _option("--on-error", help="Stop at the first bad line, or skip and count them.", panel=_DATA)
]
SepOption = Annotated[
    str | None,
    _option(
        "--sep",
        help="What separates fields: '::', tab, '|', ',', ';' or space (any run of blanks).",
        panel=_DATA,
        metavar="TEXT",
        show_default="as the file suggests",
    ),
]
ColumnsOption = Annotated[
    str | None,
    _option(
        "--columns",
        help="Columns of user, item and rating, by position from 0 or by name: 0,1,2; the first two where every value "
        "is 1.",
        panel=_DATA,
        metavar="A,B,C",
        show_default="by the names in the header",
    ),
]
UserOption = Annotated[
    str | None, _option("--user", help="Name of the users' column.", panel=_DATA, metavar="NAME", show_default=False)
]
ItemOption = Annotated[
    str | None, _option("--item", help="Name of the items' column.", panel=_DATA, metavar="NAME", show_default=False)
]
RatingOption = Annotated[
    str | None,
    _option("--rating", help="Name of the ratings' column.", panel=_DATA, metavar="NAME", show_default=False),
]
IdsOption = Annotated[Ids, _option("--ids", help="What ids are; 'text' keeps 007 apart from 7.", panel=_DATA)]
ZeroOption = Annotated[
    bool | None,
    _option(
        "--zero-based/--one-based",
        help="Where the indices of svmlight start.",
        panel=_DATA,
        show_default="0 if one occurs, else 1",
    ),
]
CacheOption = Annotated[
    bool, _option("--cache/--no-cache", help="Keep what was parsed, for the next time.", panel=_DATA)
]
TestOption = Annotated[
    float | None,
    _option(
        "--test",
        help="Share of the ratings held out to measure on.",
        panel=_DATA,
        min=0.0,
        max=0.99,
        show_default="0.1, of a handful none",
    ),
]

WorkersOption = Annotated[
    int | None,
    _option("--workers", "-w", help="Threads; never changes the answer.", panel=_RUN, min=1, show_default="every core"),
]
RuntimeOption = Annotated[
    str | None,
    _option(
        "--runtime",
        help="threads, serial, cluster (a Ray cluster, or a local one that is started), cluster:ADDRESS, or "
        "cluster:processes; --workers then counts threads of each node. Never changes the answer.",
        panel=_RUN,
        metavar="WHERE",
        show_default="threads",
    ),
]
NodesOption = Annotated[
    int | None, _option("--nodes", help="Nodes of the cluster.", panel=_RUN, min=1, show_default="2")
]
MemoryOption = Annotated[
    str | None,
    _option(
        "--memory",
        help="Budget such as 2GiB: the file is streamed and what does not fit stays on disk; never changes the answer.",
        panel=_RUN,
        show_default="everything in memory",
    ),
]
OutOption = Annotated[
    str | None,
    _option(
        "--out", "-o", help="Folder of the run record, not there yet.", panel=_RUN, show_default="runs/MODEL-1, -2, …"
    ),
]
EveryOption = Annotated[
    str | None,
    _option(
        "--checkpoint-every",
        help="'5 epochs', '30s' or '10min'.",
        panel=_RUN,
        show_default="by what saving costs",
    ),
]
UserFeaturesOption = Annotated[
    str | None,
    _option("--user-features", help="CSV file of user ids and features: numbers or text.", panel=_MODEL),
]
ItemFeaturesOption = Annotated[
    str | None, _option("--item-features", help="CSV file of item ids and features; text may be a|b.", panel=_MODEL)
]
EarlyOption = Annotated[
    bool, _option("--early-stopping", help="Stop when the held-out part has not improved for 3 epochs.", panel=_RUN)
]
EarlyTopicsOption = Annotated[
    bool,
    _option(
        "--early-stopping",
        "--early-stop",
        help="Stop when the held-out perplexity has not fallen for 10 epochs after burn-in.",
        panel=_RUN,
    ),
]
AllTopicsOption = Annotated[bool, _option("--all", help="Print every topic, not only the 20 largest.", panel=_RUN)]
QuietOption = Annotated[bool, _option("--quiet", "-q", help="Say nothing but errors.", panel=_RUN)]
VerboseOption = Annotated[bool, _option("--verbose", "-v", help="Print the plan too.", panel=_RUN)]
DashboardOption = Annotated[
    bool, _option("--dashboard", help="Serve a live page of the run to this machine, and print its link.", panel=_RUN)
]
