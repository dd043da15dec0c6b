"""`OptunaPruning`: end the fits of a study of Optuna that do not look promising."""

from __future__ import annotations

import math
from typing import Any

from stretto.errors import RunError
from stretto.observe.events import EpochDone, Event

from .service import needed


class OptunaPruning:
    """Report a metric of every epoch to a trial, and end the fit where its pruner says so.

    The fit then ends with `optuna.TrialPruned`, which the study understands, and its run record says "failed". Needs
    `pip install 'stretto[optuna]'`.

    Parameters
    ----------
    trial : optuna.Trial
        The trial, as the objective function of a study receives it.
    metric : str, default "objective"
        "objective", or a metric of epochs such as "test_rmse". Epochs that do not have it are passed over.

    Examples
    --------
    >>> import stretto as st
    >>> def error(trial):  # doctest: +SKIP
    ...     model = st.MatrixFactorization(trial.suggest_int("rank", 4, 64), random_state=0)
    ...     pruning = st.listeners.OptunaPruning(trial, "test_rmse")
    ...     model.fit(train, validation=held, session=st.Session(listeners=[pruning]))
    ...     return -model.score(held)
    """

    def __init__(self, trial: Any, metric: str = "objective") -> None:
        self._package = needed("optuna", "optuna", "optuna", "Optuna")
        for method in ("report", "should_prune"):
            if not hasattr(trial, method):
                raise RunError(
                    f"OptunaPruning: trial={trial!r} is no trial of Optuna; give the argument of the objective function"
                )
        self.trial, self.metric = trial, metric

    def __call__(self, event: Event, /) -> None:
        if not isinstance(event, EpochDone):
            return
        value = event.objective if self.metric == "objective" else event.metrics.get(self.metric, math.nan)
        if math.isnan(value):
            return
        self.trial.report(value, event.epoch)
        if self.trial.should_prune():
            raise self._package.TrialPruned(f"{self.metric} {value:g} after epoch {event.epoch}")
