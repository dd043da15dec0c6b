"""`stretto train MODEL FILE`: train a model, with one subcommand for each model (its options: `cli/options`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

from stretto.cli.errors import Command, CommandGroup
from stretto.cli.json_output import with_json
from stretto.cli.options import choices, documents, factorization, files, linear, running, topic_model

if TYPE_CHECKING:
    from stretto.cli.recipes.recipe import Recipe

app = typer.Typer(
    cls=CommandGroup,
    help="Train a model on a file and leave a run record.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

MF_EXAMPLES = (
    "Examples:\n\nstretto train mf ratings.dat --rank 64 --epochs 20 --workers 2 --out runs/first\n\n"
    "stretto train mf plays.csv --solver als --implicit\n\n"
    "stretto train mf plays.csv --loss bpr --rank 64\n\n"
    "stretto train mf ratings.dat --item-features genres.csv\n\n"
    "stretto train mf ratings.csv.gz --on-error skip --duplicates last\n\n"
    "stretto train mf ratings.dat --runtime cluster:10.0.0.5:6379 --nodes 8 --workers 16"
)
LDA_EXAMPLES = (
    "Examples:\n\nstretto train lda letters/ --topics 50 --stop-words english --min-df 5 --out runs/letters\n\n"
    "stretto train lda reviews.csv --text review --names title --topics 50 --max-df 0.5 --seeds seeds.toml\n\n"
    "stretto train lda docword.txt.gz --topics 100 --out runs/topics\n\n"
    "stretto train lda docword.news.txt --topics 1000 --optimize-every 10 --workers 2 --memory 2GiB\n\n"
    "stretto train lda docword.news.txt --topics 50 --epochs 500 --early-stopping --test 0.1\n\n"
    "stretto train lda docword.news.txt --topics 1000 --runtime cluster:10.0.0.5:6379 --nodes 8 --workers 16"
)

LASSO_EXAMPLES = (
    "Examples:\n\nstretto train lasso houses.csv --target price --alpha 0.1 --standardize\n\n"
    "stretto train lasso houses.parquet --target price --drop id --l1-ratio 0.9 --out runs/houses\n\n"
    "stretto train lasso samples.svm --alpha 0.001 --test 0.2"
)
LOGISTIC_EXAMPLES = (
    "Examples:\n\nstretto train logistic mails.csv --target spam --C 0.5\n\n"
    "stretto train logistic samples.svm --l1-ratio 1 --class-weight balanced\n\n"
    "stretto train logistic digits.npz --test 0.2 --out runs/digits"
)


@app.callback()
def _models() -> None:
    """Train a model on a file and leave a run record."""


def mf(
    file: factorization.Ratings,
    rank: factorization.RankOption = 32,
    loss: factorization.LossOption = choices.LossChoice.squared,
    reg: factorization.RegOption = None,
    bias_reg: factorization.BiasRegOption = None,
    biases: factorization.BiasesOption = True,
    implicit: factorization.ImplicitOption = False,
    alpha: factorization.AlphaOption = 1.0,
    negatives: factorization.NegativesOption = None,
    solver: factorization.SolverOption = choices.SolverChoice.sgd,
    epochs: factorization.EpochsOption = 20,
    learning_rate: factorization.RateOption = None,
    schedule: factorization.ScheduleOption = None,
    optimizer: factorization.OptimizerOption = choices.Optimizer.sgd,
    seed: running.SeedOption = 0,
    width: running.WidthOption = 16,
    profile: running.ProfileOption = choices.Profile.exact,
    format: files.FormatOption = choices.Format.auto,
    sep: files.SepOption = None,
    columns: files.ColumnsOption = None,
    user: files.UserOption = None,
    item: files.ItemOption = None,
    rating: files.RatingOption = None,
    ids: files.IdsOption = choices.Ids.auto,
    zero_based: files.ZeroOption = None,
    duplicates: files.DuplicatesOption = choices.Duplicates.error,
    on_error: files.OnErrorOption = choices.OnError.stop,
    cache: files.CacheOption = True,
    test: factorization.TestOption = None,
    workers: running.WorkersOption = None,
    runtime: running.RuntimeOption = None,
    nodes: running.NodesOption = None,
    memory: running.MemoryOption = None,
    out: running.OutOption = None,
    checkpoint_every: running.EveryOption = None,
    early_stopping: factorization.EarlyOption = False,
    user_features: factorization.UserFeaturesOption = None,
    item_features: factorization.ItemFeaturesOption = None,
    quiet: running.QuietOption = False,
    verbose: running.VerboseOption = False,
    dashboard: running.DashboardOption = False,
    log: running.LogOption = None,
    config: running.ConfigOption = None,
) -> None:
    """Factorise a matrix of ratings (users × items): recommendations from a ratings file.

    Prints the error on the ratings and on a held-out part (with --implicit how well it is ranked), and leaves a folder
    with the model, checkpoints, plots and a record of the run. Ctrl-C saves it; `stretto resume` goes on and ends with
    the same bits.
    """
    asked = dict(locals())
    from stretto.cli.recipes.mf import mf_recipe

    _train(mf_recipe, asked)


def lda(
    file: documents.Documents,
    topics: topic_model.TopicsOption = 100,
    alpha: topic_model.TopicAlphaOption = None,
    beta: topic_model.BetaOption = None,
    seeds: topic_model.SeedsOption = None,
    seed_weight: topic_model.SeedWeightOption = None,
    optimize_every: topic_model.OptimizeOption = 0,
    warm_up: topic_model.WarmUpOption = None,
    burn_in: topic_model.BurnInOption = None,
    average_every: topic_model.AverageOption = None,
    sampler: topic_model.SamplerOption = choices.Sampler.auto,
    mh_steps: topic_model.StepsOption = 2,
    epochs: topic_model.PassesOption = 100,
    evaluate_every: topic_model.EvaluateOption = 5,
    seed: running.SeedOption = 0,
    width: running.WidthOption = 16,
    profile: running.ProfileOption = choices.Profile.exact,
    text: documents.TextOption = None,
    names: documents.NamesOption = None,
    encoding: documents.EncodingOption = None,
    stop_words: documents.StopWordsOption = None,
    min_df: documents.MinDfOption = None,
    max_df: documents.MaxDfOption = None,
    max_words: documents.MaxWordsOption = None,
    ngrams: documents.NgramsOption = None,
    lowercase: documents.LowercaseOption = True,
    token_pattern: documents.TokenPatternOption = None,
    vocab: topic_model.VocabularyOption = None,
    format: files.FormatOption = choices.Format.auto,
    sep: files.SepOption = None,
    columns: files.ColumnsOption = None,
    user: files.UserOption = None,
    item: files.ItemOption = None,
    rating: files.RatingOption = None,
    ids: files.IdsOption = choices.Ids.auto,
    zero_based: files.ZeroOption = None,
    on_error: files.OnErrorOption = choices.OnError.stop,
    cache: files.CacheOption = True,
    test: topic_model.HeldOption = None,
    strict: topic_model.StrictOption = False,
    workers: running.WorkersOption = None,
    runtime: running.RuntimeOption = None,
    nodes: running.NodesOption = None,
    memory: running.MemoryOption = None,
    out: running.OutOption = None,
    checkpoint_every: running.EveryOption = None,
    early_stopping: topic_model.EarlyTopicsOption = False,
    everything: topic_model.AllTopicsOption = False,
    quiet: running.QuietOption = False,
    verbose: running.VerboseOption = False,
    dashboard: running.DashboardOption = False,
    log: running.LogOption = None,
    config: running.ConfigOption = None,
) -> None:
    """Find the topics of a collection of documents: latent Dirichlet allocation from text or from word counts.

    Prints the topics, and leaves a folder with the model, topics.html to look through, checkpoints, plots and a
    record of the run. Ctrl-C saves it; `stretto resume` goes on and ends with the same bits.
    """
    asked = dict(locals())
    from stretto.cli.recipes.lda import lda_recipe

    _train(lda_recipe, asked)


def lasso(
    file: linear.SamplesFile,
    alpha: linear.StrengthOption = 1.0,
    l1_ratio: linear.LassoRatioOption = 1.0,
    positive: linear.PositiveOption = False,
    intercept: linear.InterceptOption = True,
    standardize: linear.StandardizeOption = False,
    tol: linear.ToleranceOption = 1e-4,
    max_iter: linear.RoundsOption = 100,
    seed: running.SeedOption = 0,
    profile: running.ProfileOption = choices.Profile.exact,
    target: linear.TargetOption = None,
    drop: linear.DropOption = None,
    on_error: linear.MissingOption = choices.OnError.stop,
    test: linear.ShareOption = None,
    workers: running.WorkersOption = None,
    runtime: running.RuntimeOption = None,
    nodes: running.NodesOption = None,
    out: running.OutOption = None,
    checkpoint_every: running.EveryOption = None,
    quiet: running.QuietOption = False,
    verbose: running.VerboseOption = False,
    dashboard: running.DashboardOption = False,
    log: running.LogOption = None,
    config: running.ConfigOption = None,
) -> None:
    """Predict numbers from many features of which few matter: the Lasso, or with --l1-ratio the elastic net.

    Prints the scores of the training part and of the held-out part, and leaves a folder with the model,
    coefficients.csv (a line for each feature, by name), scores.json and a record of the run. A column of text gives one
    feature for each of its values.
    """
    asked = dict(locals())
    from stretto.cli.recipes.linear import lasso_recipe

    _train(lasso_recipe, asked)


def logistic(
    file: linear.SamplesFile,
    C: linear.WeightOfDataOption = 1.0,
    l1_ratio: linear.LogisticRatioOption = 0.0,
    class_weight: linear.ClassWeightOption = None,
    intercept: linear.InterceptOption = True,
    standardize: linear.StandardizeOption = False,
    tol: linear.ToleranceOption = 1e-4,
    max_iter: linear.RoundsOption = 100,
    seed: running.SeedOption = 0,
    profile: running.ProfileOption = choices.Profile.exact,
    target: linear.TargetOption = None,
    drop: linear.DropOption = None,
    on_error: linear.MissingOption = choices.OnError.stop,
    test: linear.ShareOption = None,
    workers: running.WorkersOption = None,
    runtime: running.RuntimeOption = None,
    nodes: running.NodesOption = None,
    out: running.OutOption = None,
    checkpoint_every: running.EveryOption = None,
    quiet: running.QuietOption = False,
    verbose: running.VerboseOption = False,
    dashboard: running.DashboardOption = False,
    log: running.LogOption = None,
    config: running.ConfigOption = None,
) -> None:
    """Predict classes, two or more: logistic regression with an L2 penalty, with --l1-ratio one that sets to zero.

    Prints the scores of the training part and of the held-out part, and leaves a folder with the model,
    coefficients.csv (a line for each feature and class, by name), scores.json and a record of the run. A column of text
    gives one feature for each of its values.
    """
    asked = dict(locals())
    from stretto.cli.recipes.linear import logistic_recipe

    _train(logistic_recipe, asked)


def _train(recipe: Callable[..., Recipe], asked: dict[str, Any]) -> None:
    """Train by the recipe of these options."""
    from stretto.cli.options_file import to_keep
    from stretto.cli.recipes.runs import new_folder, run
    from stretto.cli.runtime_option import place
    from stretto.cli.services import services

    where = place(asked["runtime"], asked["workers"], asked["nodes"])
    made = recipe(**asked)
    run(
        made,
        new_folder(asked["out"], made.kind),
        workers=asked["workers"],
        runtime=where,
        verbose=0 if asked["quiet"] else 1 + asked["verbose"],
        dashboard=asked["dashboard"],
        options=to_keep(made.kind, asked),
        listeners=services(asked["log"] or ()),
    )


for _function, _examples in (
    (mf, MF_EXAMPLES),
    (lda, LDA_EXAMPLES),
    (lasso, LASSO_EXAMPLES),
    (logistic, LOGISTIC_EXAMPLES),
):
    app.command(_function.__name__, cls=Command, epilog=_examples)(with_json(_function))
