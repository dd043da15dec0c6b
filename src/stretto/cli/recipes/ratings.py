"""The ratings that a run of `stretto train mf` was trained on, read again from its file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stretto.errors import DataError


def ratings_of(run: Path) -> tuple[Any, Any]:
    """The recipe of a run of `train mf`, and its ratings."""
    from stretto.cli.recipes.mf import MfRecipe
    from stretto.cli.recipes.recipe import Recipe
    from stretto.observe.record import RunRecord

    if not run.is_dir():
        raise DataError(
            f"{run} is no folder of a run, so what it held out is not known; name a file of held-out ratings"
        )
    recipe = Recipe.of(RunRecord.load(run).config, run)
    if not isinstance(recipe, MfRecipe):
        raise DataError(f"{run} is a run of `train {recipe.kind}`; metrics of rankings are for `train mf`")
    data = recipe.data()
    if isinstance(data, str):
        from stretto.data.reading.read import read

        data = read(data, duplicates="keep")
    return recipe.settled(data), data
