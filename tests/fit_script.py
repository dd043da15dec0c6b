"""Fits one model under a session and prints what happens; run by the tests of Ctrl-C and kill.

python tests/fit_script.py FOLDER NAME {run|again|resume|alone} EPOCHS THREADS
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import stretto as st
from jobs import digest, some_ratings
from stretto.observe.events import EpochDone, Event

SETTINGS: dict[str, dict[str, Any]] = {
    "sgd": {"solver": "sgd"},
    "adagrad": {"solver": "sgd", "optimizer": "adagrad"},
    "als": {"solver": "als", "linear_solver": "cg"},
}


def say(event: Event) -> None:
    if isinstance(event, EpochDone):
        print(f"epoch {event.epoch}", flush=True)


def fit(folder: str | Path, name: str, how: str, epochs: int, threads: int) -> str:
    """The hash of what is learned; raises KeyboardInterrupt when it was stopped."""
    saving = None if how == "alone" else st.Saving(Path(folder), every_epochs=1000 if how == "resume" else 1)
    session = st.Session(saving=saving, resume=how in ("again", "resume"), listeners=[say])
    settings: dict[str, Any] = {
        "n_components": 16,
        "max_iter": epochs,
        "random_state": 5,
        "runtime": st.Threads(threads),
    } | SETTINGS[name]
    model = st.MatrixFactorization(**settings).fit(some_ratings(60_000, 1500, 900), session=session)
    return digest([model.user_factors_, model.item_factors_, model.user_bias_, model.item_bias_])


def main(folder: str, name: str, how: str, epochs: str, threads: str) -> None:
    try:
        print(f"learned {fit(folder, name, how, int(epochs), int(threads))}", flush=True)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)


if __name__ == "__main__":
    main(*sys.argv[1:])
