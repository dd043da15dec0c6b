"""Save and load a fitted `MatrixFactorization`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.errors import DataError
from stretto.models.renamed import under_current_names

from .model_file import FittedFile, read_fitted


def save(model: Any, path: str | Path, *, ratings: bool) -> None:
    """Write the model atomically to one file. ratings: with the values of the ratings."""
    if ratings and model._values() is None:
        raise DataError(
            "save(ratings=True): this model is from a file without the ratings, so their values are not known; fit it "
            "again, or leave ratings=False"
        )
    FittedFile.of(model, values=ratings).write(path)


def load(kind: Any, path: str | Path) -> Any:
    """A model of class `kind` from a file written by `save`."""
    file = read_fitted(path)
    model = kind(**under_current_names(file.parameters))
    for name, value in file.attributes.items():
        setattr(model, name, value)
    model.squares_ = file.squares
    model.user_ids_, model.item_ids_ = file.ids("user_ids_"), file.ids("item_ids_")
    model._learned, model._seen, model._scratch = file.learned(), file.seen(), None
    model._trained_on = None if file.values is None else _ratings(file, file.values)
    return model


def _ratings(file: FittedFile, values: NDArray[np.float32]) -> Any:
    """The ratings of the fit."""
    from stretto.data.records.data import Data
    from stretto.runtime.blocks.source import InMemory

    seen, shape = file.seen(), (len(file.attributes["user_factors_"]), len(file.attributes["item_factors_"]))
    rows = np.repeat(np.arange(shape[0], dtype=np.int32), np.diff(seen.indptr))
    return InMemory(Data(rows, seen.indices, values, shape))
