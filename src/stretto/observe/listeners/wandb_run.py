"""`WeightsAndBiases`: a run of Weights & Biases for each run."""

from __future__ import annotations

from typing import Any

from stretto.observe.events import EpochDone, Event, PlanMade, RunEnded, RunStarted

from .service import ServiceListener, needed, scalars


class WeightsAndBiases(ServiceListener):
    """Log a run to Weights & Biases. Needs `pip install 'stretto[wandb]'`.

    Parameters
    ----------
    project : str, default "stretto"
        Name of the project.
    **init
        Further arguments of `wandb.init`, such as `name="first"`, `tags=["small"]` or `mode="offline"`.

    Examples
    --------
    >>> import stretto as st
    >>> session = st.Session(listeners=[st.listeners.WeightsAndBiases("ratings", mode="offline")])  # doctest: +SKIP
    """

    _title = "Weights & Biases"

    def __init__(self, project: str = "stretto", **init: Any) -> None:
        super().__init__()
        self._package = needed("wandb", "wandb", "wandb", self._title)
        self._init = {"project": project, **init}
        self._run: Any = None

    def _take(self, event: Event) -> None:
        """Log what the run of Weights & Biases should have of an event."""
        if isinstance(event, RunStarted):
            self._run = self._package.init(config=dict(event.config), **self._init)
        elif isinstance(event, PlanMade):
            self._run.config.update({"fingerprint": event.fingerprint, "profile": event.profile})
        elif isinstance(event, EpochDone):
            self._run.log(scalars(event), step=event.epoch)
        elif isinstance(event, RunEnded):
            self._run.summary.update({"status": event.status})
            self._run.finish(exit_code=1 if event.status == "failed" else 0)
            self._run = None
