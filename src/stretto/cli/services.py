"""Parse `--log SERVICE:NAME`: other programs that get the numbers of a training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from stretto.errors import DataError

if TYPE_CHECKING:
    from stretto.observe.events import Listener


def services(asked: Sequence[str]) -> list[Listener]:
    """The listeners that --log names."""
    from stretto.observe import listeners

    makers: dict[str, Callable[[str], Listener]] = {
        "tensorboard": listeners.TensorBoard,
        "mlflow": listeners.MLflow,
        "wandb": listeners.WeightsAndBiases,
    }
    found = []
    for text in asked:
        kind, _, name = text.partition(":")
        if kind not in makers or not name:
            raise DataError(
                f"--log {text}: write tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT, such as "
                "--log tensorboard:logs/first"
            )
        found.append(makers[kind](name))
    return found
