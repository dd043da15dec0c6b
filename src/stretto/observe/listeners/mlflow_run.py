"""`MLflow`: a run of MLflow for each run, with settings as parameters and numbers of epochs as metrics."""

from __future__ import annotations

from typing import Any

from stretto.observe.events import EpochDone, Event, PlanMade, RunEnded, RunStarted

from .service import ServiceListener, needed, scalars, settings

_STATUS = {"done": "FINISHED", "early": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


class MLflow(ServiceListener):
    """Log a run to MLflow. Needs `pip install 'stretto[mlflow]'`.

    Parameters
    ----------
    experiment : str, default "stretto"
        Name of the experiment; it is made if there is none.
    name : str or None, default None
        Name of the run; None lets MLflow choose one.
    tracking_uri : str or None, default None
        Where MLflow keeps runs, such as "sqlite:///runs.db" or a server; None takes MLflow's own setting.

    Attributes
    ----------
    run_id : str or None
        The run of MLflow; None before it starts.

    Examples
    --------
    >>> import stretto as st
    >>> session = st.Session(listeners=[st.listeners.MLflow("ratings")])  # doctest: +SKIP
    """

    _title = "MLflow"

    def __init__(
        self, experiment: str = "stretto", *, name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        super().__init__()
        self._package = needed("mlflow", "mlflow", "mlflow", self._title)
        self.experiment, self.name = experiment, name
        self._client: Any = self._package.MlflowClient(tracking_uri=tracking_uri)
        self.run_id: str | None = None

    def _take(self, event: Event) -> None:
        """Log what the run of MLflow should have of an event."""
        client, moment = self._client, int(getattr(event, "time", 0.0) * 1000)
        if isinstance(event, RunStarted):
            known = client.get_experiment_by_name(self.experiment)
            place = client.create_experiment(self.experiment) if known is None else known.experiment_id
            self.run_id = client.create_run(place, start_time=moment, run_name=self.name).info.run_id
            for name, value in settings(event.config).items():
                client.log_param(self.run_id, name, value)
        elif isinstance(event, PlanMade):
            client.set_tag(self.run_id, "fingerprint", event.fingerprint)
            client.set_tag(self.run_id, "profile", event.profile)
        elif isinstance(event, EpochDone):
            for name, number in scalars(event).items():
                client.log_metric(self.run_id, name, number, timestamp=moment, step=event.epoch)
        elif isinstance(event, RunEnded):
            if event.message:
                client.set_tag(self.run_id, "message", event.message)
            client.set_terminated(self.run_id, _STATUS[event.status], end_time=moment)
