"""A fitted model as plain NumPy arrays, and their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stretto.atomic import replacing
from stretto.data.records.ids import IdMap


def plain_arrays(model: Any) -> dict[str, Any]:
    """What `to_numpy` returns: copies, which nobody else changes."""
    sides = {"user": (model.user_factors_, model.user_ids_), "item": (model.item_factors_, model.item_ids_)}
    found: dict[str, Any] = {f"{side}_factors": np.array(factors) for side, (factors, _) in sides.items()}
    found |= {"user_bias": np.array(model.user_bias_), "item_bias": np.array(model.item_bias_)}
    found["mean"] = float(model.mean_)
    return found | {f"{side}_ids": _ids(ids, len(factors)) for side, (factors, ids) in sides.items()}


def _ids(ids: IdMap | None, count: int) -> NDArray[Any]:
    """Ids as integers or as text of fixed width, which needs no pickle."""
    if ids is None:
        return np.arange(count)
    return np.array(ids.ids.tolist(), dtype=np.str_) if ids.is_text else np.array(ids.ids)


def write_arrays(arrays: dict[str, Any], path: Path) -> None:
    """Write them as one .npz file, or as .npy files in a folder."""
    if path.suffix == ".npz":
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as fresh, open(fresh, "wb") as file:
            np.savez(file, **arrays)
        return
    path.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        with replacing(path / f"{name}.npy") as fresh, open(fresh, "wb") as file:
            np.save(file, np.asarray(array), allow_pickle=False)
