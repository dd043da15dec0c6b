"""`stretto train MODEL FILE`: train a model, with one subcommand for each model (its options: `cli/options.py`)."""

from __future__ import annotations

import typer

from stretto.cli import options as o
from stretto.cli.errors import Command, CommandGroup

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


@app.callback()
def _models() -> None:
    """Train a model on a file and leave a run record."""


@app.command("mf", cls=Command, epilog=MF_EXAMPLES)
def mf(
    file: o.Ratings,
    rank: o.RankOption = 32,
    loss: o.LossOption = o.LossChoice.squared,
    reg: o.RegOption = None,
    bias_reg: o.BiasRegOption = None,
    biases: o.BiasesOption = True,
    implicit: o.ImplicitOption = False,
    alpha: o.AlphaOption = 1.0,
    negatives: o.NegativesOption = None,
    solver: o.SolverOption = o.SolverChoice.sgd,
    epochs: o.EpochsOption = 20,
    learning_rate: o.RateOption = None,
    schedule: o.ScheduleOption = None,
    optimizer: o.OptimizerOption = o.Optimizer.sgd,
    seed: o.SeedOption = 0,
    width: o.WidthOption = 16,
    profile: o.ProfileOption = o.Profile.exact,
    format: o.FormatOption = o.Format.auto,
    sep: o.SepOption = None,
    columns: o.ColumnsOption = None,
    user: o.UserOption = None,
    item: o.ItemOption = None,
    rating: o.RatingOption = None,
    ids: o.IdsOption = o.Ids.auto,
    zero_based: o.ZeroOption = None,
    duplicates: o.DuplicatesOption = o.Duplicates.error,
    on_error: o.OnErrorOption = o.OnError.stop,
    cache: o.CacheOption = True,
    test: o.TestOption = None,
    workers: o.WorkersOption = None,
    runtime: o.RuntimeOption = None,
    nodes: o.NodesOption = None,
    memory: o.MemoryOption = None,
    out: o.OutOption = None,
    checkpoint_every: o.EveryOption = None,
    early_stopping: o.EarlyOption = False,
    user_features: o.UserFeaturesOption = None,
    item_features: o.ItemFeaturesOption = None,
    quiet: o.QuietOption = False,
    verbose: o.VerboseOption = False,
    dashboard: o.DashboardOption = False,
) -> None:
    """Factorise a matrix of ratings (users × items): recommendations from a ratings file.

    Prints the error on the ratings and on a held-out part (with --implicit how well it is ranked), and leaves a folder
    with the model, checkpoints, plots and a record of the run. Ctrl-C saves it; `stretto resume` goes on and ends with
    the same bits.
    """
    asked = dict(locals())
    from stretto.cli.recipes.mf import mf_recipe
    from stretto.cli.recipes.runs import new_folder, run
    from stretto.cli.runtime_option import place

    where, recipe = place(runtime, workers, nodes), mf_recipe(**asked)
    level = 0 if quiet else 1 + verbose
    run(recipe, new_folder(out, "mf"), workers=workers, runtime=where, verbose=level, dashboard=dashboard)


@app.command("lda", cls=Command, epilog=LDA_EXAMPLES)
def lda(
    file: o.Documents,
    topics: o.TopicsOption = 100,
    alpha: o.TopicAlphaOption = None,
    beta: o.BetaOption = None,
    seeds: o.SeedsOption = None,
    seed_weight: o.SeedWeightOption = None,
    optimize_every: o.OptimizeOption = 0,
    warm_up: o.WarmUpOption = None,
    burn_in: o.BurnInOption = None,
    average_every: o.AverageOption = None,
    sampler: o.SamplerOption = o.Sampler.auto,
    mh_steps: o.StepsOption = 2,
    epochs: o.PassesOption = 100,
    evaluate_every: o.EvaluateOption = 5,
    seed: o.SeedOption = 0,
    width: o.WidthOption = 16,
    profile: o.ProfileOption = o.Profile.exact,
    text: o.TextOption = None,
    names: o.NamesOption = None,
    encoding: o.EncodingOption = None,
    stop_words: o.StopWordsOption = None,
    min_df: o.MinDfOption = None,
    max_df: o.MaxDfOption = None,
    max_words: o.MaxWordsOption = None,
    ngrams: o.NgramsOption = None,
    lowercase: o.LowercaseOption = True,
    token_pattern: o.TokenPatternOption = None,
    vocab: o.VocabularyOption = None,
    format: o.FormatOption = o.Format.auto,
    sep: o.SepOption = None,
    columns: o.ColumnsOption = None,
    user: o.UserOption = None,
    item: o.ItemOption = None,
    rating: o.RatingOption = None,
    ids: o.IdsOption = o.Ids.auto,
    zero_based: o.ZeroOption = None,
    on_error: o.OnErrorOption = o.OnError.stop,
    cache: o.CacheOption = True,
    test: o.HeldOption = None,
    strict: o.StrictOption = False,
    workers: o.WorkersOption = None,
    runtime: o.RuntimeOption = None,
    nodes: o.NodesOption = None,
    memory: o.MemoryOption = None,
    out: o.OutOption = None,
    checkpoint_every: o.EveryOption = None,
    early_stopping: o.EarlyTopicsOption = False,
    everything: o.AllTopicsOption = False,
    quiet: o.QuietOption = False,
    verbose: o.VerboseOption = False,
    dashboard: o.DashboardOption = False,
) -> None:
    """Find the topics of a collection of documents: latent Dirichlet allocation from text or from word counts.

    Prints the topics, and leaves a folder with the model, topics.html to look through, checkpoints, plots and a
    record of the run. Ctrl-C saves it; `stretto resume` goes on and ends with the same bits.
    """
    asked = dict(locals())
    from stretto.cli.recipes.lda import lda_recipe
    from stretto.cli.recipes.runs import new_folder, run
    from stretto.cli.runtime_option import place

    where, recipe = place(runtime, workers, nodes), lda_recipe(**asked)
    level = 0 if quiet else 1 + verbose
    run(recipe, new_folder(out, "lda"), workers=workers, runtime=where, verbose=level, dashboard=dashboard)
