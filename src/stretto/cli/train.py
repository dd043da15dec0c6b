"""`stretto train MODEL FILE`: one command for each model."""

from __future__ import annotations

import typer

from . import options as o

app = typer.Typer(help="Train a model on a file and leave a run record.", no_args_is_help=True, rich_markup_mode="rich")

EXAMPLES = (
    "Examples:\n\nstretto train mf ratings.dat --rank 64 --epochs 20 --workers 2 --out runs/first\n\n"
    "stretto train mf plays.csv --solver als --implicit\n\n"
    "stretto train mf ratings.csv.gz --on-error skip --duplicates last"
)


@app.callback()
def _models() -> None:
    """Train a model on a file and leave a run record."""


@app.command("mf", epilog=EXAMPLES)
def mf(
    file: o.Ratings,
    rank: o.RankOption = 32,
    loss: o.LossOption = o.Loss.squared,
    reg: o.RegOption = 0.05,
    biases: o.BiasesOption = True,
    implicit: o.ImplicitOption = False,
    alpha: o.AlphaOption = 40.0,
    solver: o.SolverOption = o.Solver.sgd,
    epochs: o.EpochsOption = 20,
    learning_rate: o.RateOption = None,
    schedule: o.ScheduleOption = o.Schedule.linear,
    optimizer: o.OptimizerOption = o.Optimizer.sgd,
    seed: o.SeedOption = 0,
    width: o.WidthOption = 16,
    profile: o.ProfileOption = o.Profile.exact,
    format: o.FormatOption = o.Format.auto,
    duplicates: o.DuplicatesOption = o.Duplicates.error,
    on_error: o.OnErrorOption = o.OnError.stop,
    test: o.TestOption = None,
    workers: o.WorkersOption = None,
    memory: o.MemoryOption = None,
    out: o.OutOption = None,
    checkpoint_every: o.EveryOption = None,
    early_stopping: o.EarlyOption = False,
    quiet: o.QuietOption = False,
    verbose: o.VerboseOption = False,
) -> None:
    """Factorise a matrix of ratings (users × items): recommendations from a ratings file.

    Prints the error on the ratings and on a held-out part, and leaves a folder with the model, checkpoints, plots and a
    record of the run. Ctrl-C saves it; [bold]stretto resume[/bold] goes on and ends with the same bits.
    """
    from .recipe import Recipe
    from .runs import new_folder, run

    recipe = Recipe(
        file=file,
        read={"format": format.value, "duplicates": duplicates.value, "on_error": on_error.value},
        test=(0.0 if implicit else 0.1) if test is None else test,
        parameters={
            "rank": rank,
            "loss": loss.value,
            "reg": reg,
            "biases": biases,
            "implicit": implicit,
            "alpha": alpha,
            "solver": solver.value,
            "epochs": epochs,
            "learning_rate": learning_rate,
            "schedule": schedule.value,
            "optimizer": optimizer.value,
            "random_state": seed,
            "width": width,
            "profile": profile.value,
            "early_stopping": early_stopping,
        },
        checkpoint_every=checkpoint_every,
        memory=memory,
    )
    run(recipe, new_folder(out, "mf"), workers=workers, verbose=0 if quiet else 1 + verbose)
