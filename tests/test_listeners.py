"""Listeners of other services: what they send, to the real packages where they are installed, and to stand-ins."""

from __future__ import annotations

import http.client
import json
import math
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from clirun import stretto
from page_records import events, record
from stretto.cli.commands.watch import _write_targets
from stretto.errors import RunError
from stretto.observe.events import EpochDone, RunEnded, RunStarted
from stretto.observe.page.server import PageServer

CURVE = {epoch: (8.0 / epoch, 1.0 + 1.0 / epoch) for epoch in range(1, 7)}  # of page_records: objective, test_rmse


class Calls:
    """A stand-in for an object of another package: notes every call, and returns itself."""

    def __init__(self) -> None:
        self.made: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.made.append((name, args, kwargs))
            return self

        return call

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(args, kwargs) for called, args, kwargs in self.made if called == name]


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    made = types.ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)


# --- Prometheus --------------------------------------------------------------------------

SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)\{((?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\} (-?[\d.e+-]+)')


def samples(text: str) -> dict[str, float]:
    """The samples of a text, checked against the format's grammar."""
    assert text.endswith("\n")
    found: dict[str, float] = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("#"):
            word, name = line.split()[1:3]
            assert word in {"HELP", "TYPE"}
            if word == "TYPE":
                assert name not in typed  # a family comes once
                assert line.split()[3] == ("counter" if name.endswith("_total") else "gauge")
                typed.add(name)
            continue
        match = SAMPLE.fullmatch(line)
        assert match, line
        assert match[1] in typed
        assert line.rpartition(" ")[0] not in found
        found[line.rpartition(" ")[0]] = float(match[3])
    return found


def test_prometheus_text_has_the_newest_numbers(tmp_path: Path) -> None:
    record(tmp_path / "one")
    record(tmp_path / 'an "odd" \\name', epochs=2, status="failed")
    text = st.listeners.prometheus_text(tmp_path)
    found = samples(text)
    assert found['stretto_epoch{run="one"}'] == 6
    assert found['stretto_epochs_planned{run="one"}'] == 6
    assert found['stretto_objective{run="one"}'] == pytest.approx(8 / 6)
    assert found['stretto_metric{run="one",metric="test_rmse"}'] == pytest.approx(1 + 1 / 6)
    assert found['stretto_items_total{run="one"}'] == 600
    assert found['stretto_epoch_seconds_total{run="one"}'] == 3
    assert found['stretto_items_per_second{run="one"}'] == 200
    assert found['stretto_checkpoint_seconds_total{run="one"}'] == 0.1
    assert found['stretto_warnings_total{run="one"}'] == 1
    odd = r'run="an \"odd\" \\name"'
    assert found[f'stretto_run_status{{{odd},status="failed"}}'] == 1
    assert sum(value for name, value in found.items() if name.startswith("stretto_run_status")) == 2


def test_prometheus_text_is_read_by_its_own_client(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="prometheus-client is not installed")
    record(tmp_path / "one")
    record(tmp_path / 'an "odd" \\name\nin two lines', epochs=2)
    text = st.listeners.prometheus_text(tmp_path)
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert families["stretto_objective"].type == "gauge"
    assert families["stretto_items"].type == "counter"
    values = {sample.labels["run"]: sample.value for sample in families["stretto_epoch"].samples}
    assert values == {"one": 6, 'an "odd" \\name\nin two lines': 2}


def test_what_has_no_number_is_left_out(tmp_path: Path) -> None:
    begun = record(tmp_path / "begun", epochs=0, status=None)
    found = samples(st.listeners.prometheus_text([begun]))
    assert found['stretto_run_status{run="begun",status="interrupted"}'] == 1
    assert not [name for name in found if "objective" in name]
    with pytest.raises(RunError, match="no run is named"):
        st.listeners.prometheus_text([])
    with pytest.raises(RunError, match="does not exist"):
        st.listeners.prometheus_text(tmp_path / "nowhere")


def get(server: PageServer, path: str, host: str = "127.0.0.1") -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.request("GET", path, headers={"Host": f"{host}:{server.port}"})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.getheader("Content-Type", ""), content


def test_the_page_answers_metrics_with_its_token_alone(tmp_path: Path) -> None:
    one = record(tmp_path / "one")
    with PageServer([one], interval=0.01) as server:
        status, kind, content = get(server, f"/metrics?token={server.token}")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert content.decode() == st.listeners.prometheus_text(one)
        assert get(server, "/metrics")[0] == 403
        targets = tmp_path / "targets.json"
        _write_targets(targets, server.port, server.token)
        ((found,),) = [json.loads(targets.read_text())]
        assert targets.stat().st_mode & 0o077 == 0
        assert found["targets"] == [f"127.0.0.1:{server.port}"]
        assert get(server, f"/metrics?token={found['labels']['__param_token']}")[0] == 200
        assert get(server, "/metrics?token=wrong")[0] == 403
        assert get(server, f"/metrics?token={server.token}", host="evil.example")[0] == 403


# --- TensorBoard -------------------------------------------------------------------------


def test_tensorboard_gets_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def writer(folder: str, purge_step: int | None) -> Calls:
        made.append((folder, purge_step, Calls()))
        return made[-1][2]  # type: ignore[no-any-return]

    module(monkeypatch, "tensorboardX", SummaryWriter=writer)
    listener = st.listeners.TensorBoard(tmp_path / "logs")
    for event in events():
        listener(event)
    folder, purge, calls = made[0]
    assert (folder, purge) == (str(tmp_path / "logs"), None)
    written = {(args[0], args[2]): args[1] for args, _ in calls.of("add_scalar")}
    assert {epoch: (written["objective", epoch], written["test_rmse", epoch]) for epoch in CURVE} == CURVE
    assert written["items_per_second", 3] == 200.0
    assert len(calls.of("close")) == 1
    st.listeners.TensorBoard(tmp_path)(RunStarted(0.0, {}, epoch=4))
    with pytest.raises(IndexError):
        made[2]
    assert not [args for args, _ in calls.of("add_scalar") if not math.isfinite(args[1])]


def test_tensorboard_files_are_read_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    from tensorboardX.event_file_writer import EventFileWriter  # noqa: F401  (the package is whole)
    from tensorboardX.proto import event_pb2

    listener = st.listeners.TensorBoard(tmp_path)
    for event in events():
        listener(event)
    (file,) = tmp_path.glob("events.out.tfevents.*")
    raw, at = file.read_bytes(), 0
    found: dict[tuple[str, int], float] = {}
    while at < len(raw):  # length [8], its checksum [4], content, its checksum [4]
        length = int.from_bytes(raw[at : at + 8], "little")
        told = event_pb2.Event.FromString(raw[at + 12 : at + 12 + length])
        found |= {(value.tag, told.step): value.simple_value for value in told.summary.value}
        at += 16 + length
    for epoch, (objective, error) in CURVE.items():
        assert found["objective", epoch] == pytest.approx(objective)
        assert found["test_rmse", epoch] == pytest.approx(error)


# --- MLflow and Weights & Biases ---------------------------------------------------------


@pytest.mark.parametrize(("status", "ends"), [("done", "FINISHED"), ("stopped", "KILLED"), ("failed", "FAILED")])
def test_mlflow_gets_settings_epochs_and_the_end(status: str, ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Calls()
    client.__dict__ |= {"experiment_id": "7", "info": types.SimpleNamespace(run_id="r1")}
    module(monkeypatch, "mlflow", MlflowClient=lambda tracking_uri: client)
    listener = st.listeners.MLflow("ratings", name="first", tracking_uri="sqlite:///x.db")
    for event in events(config={"estimator": "Made", "parameters": {"rank": 3}}, status=status):
        listener(event)
    assert listener.run_id == "r1"
    assert client.of("get_experiment_by_name") == [(("ratings",), {})]
    assert client.of("create_run")[0][1]["run_name"] == "first"
    assert {args[1:] for args, _ in client.of("log_param")} == {("estimator", "Made"), ("parameters.rank", "3")}
    logged = {(args[1], kwargs["step"]): args[2] for args, kwargs in client.of("log_metric")}
    assert {epoch: (logged["objective", epoch], logged["test_rmse", epoch]) for epoch in CURVE} == CURVE
    assert client.of("set_terminated")[0][0] == ("r1", ends)


def test_wandb_gets_settings_epochs_and_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run, begun = Calls(), Calls()
    run.__dict__ |= {"config": Calls(), "summary": Calls()}

    def init(**given: Any) -> Calls:
        begun.init(**given)
        return run

    module(monkeypatch, "wandb", init=init)
    listener = st.listeners.WeightsAndBiases("ratings", mode="offline", name="first")
    for event in events():
        listener(event)
    config = {"estimator": "Made", "seed": 3}
    assert begun.of("init") == [((), {"config": config, "project": "ratings", "mode": "offline", "name": "first"})]
    logged = {kwargs["step"]: (args[0]["objective"], args[0]["test_rmse"]) for args, kwargs in run.of("log")}
    assert logged == CURVE
    assert run.of("finish") == [((), {"exit_code": 0})]


def test_a_service_that_fails_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: Any) -> Any:
        raise ConnectionError("no route to host")

    module(monkeypatch, "wandb", init=init)
    X = np.random.default_rng(0).normal(size=(60, 5))
    plain = st.Lasso(alpha=0.1).fit(X, X[:, 0])
    session = st.Session(listeners=[st.listeners.WeightsAndBiases("ratings")])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = st.Lasso(alpha=0.1).fit(X, X[:, 0], session=session)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    texts = [str(one.message) for one in caught]
    assert texts == [
        "Weights & Biases gets nothing more of this run (ConnectionError: no route to host); the run itself continues"
    ]


@pytest.mark.parametrize(
    ("make", "package", "extra"),
    [
        (lambda: st.listeners.TensorBoard("x"), "tensorboardX", "tensorboard"),
        (lambda: st.listeners.MLflow("x"), "mlflow", "mlflow"),
        (lambda: st.listeners.WeightsAndBiases("x"), "wandb", "wandb"),
        (lambda: st.listeners.OptunaPruning(None), "optuna", "optuna"),
    ],
)
def test_a_missing_package_is_named(make: Any, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RunError, match=rf"needs the package {package}.*pip install 'stretto\[{extra}\]'"):
        make()


# --- Optuna ------------------------------------------------------------------------------


def test_optuna_prunes_what_does_not_look_promising(tmp_path: Path) -> None:
    """A real study: the trials with a useless learning rate end early, and the best is a good one."""
    optuna = pytest.importorskip("optuna", reason="optuna is not installed")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    data = st.generate_ratings(4000, 100, 80, rank=3, noise=0.3, seed=1).data
    epochs: dict[int, int] = {}

    def error(trial: Any) -> float:
        rate = trial.suggest_categorical("rate", [0.1, 1e-4])
        pruning = st.listeners.OptunaPruning(trial, "train_rmse")

        def count(event: Any) -> None:
            if isinstance(event, EpochDone):
                epochs[trial.number] = event.epoch

        model = st.MatrixFactorization(
            3, max_iter=12, learning_rate=rate, schedule="constant", random_state=0, n_jobs=1
        )
        model.fit(data, session=st.Session(listeners=[count, pruning]))
        return float(-model.score(data))

    study = optuna.create_study(
        sampler=optuna.samplers.GridSampler({"rate": [0.1, 1e-4]}, seed=3),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=2),
    )
    study.enqueue_trial({"rate": 0.1})
    study.optimize(error, n_trials=3)
    pruned = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.PRUNED]
    assert pruned
    assert all(trial.params["rate"] == 1e-4 and epochs[trial.number] < 12 for trial in pruned)
    assert study.best_params["rate"] == 0.1
    assert epochs[study.best_trial.number] == 12


def test_pruning_ends_a_fit_and_its_record_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class TrialPruned(Exception):
        pass

    module(monkeypatch, "optuna", TrialPruned=TrialPruned)
    told: list[tuple[float, int]] = []
    trial = types.SimpleNamespace(
        report=lambda value, step: told.append((value, step)), should_prune=lambda: len(told) >= 3
    )
    data = st.generate_ratings(1000, 50, 40, seed=1).data
    session = st.Session(record=tmp_path / "run", listeners=[st.listeners.OptunaPruning(trial, "train_rmse")])
    with pytest.raises(TrialPruned, match=r"train_rmse .* after epoch 3"):
        st.MatrixFactorization(2, max_iter=9, random_state=0).fit(data, session=session)
    assert [step for _, step in told] == [1, 2, 3]
    from stretto.observe.record import RunRecord

    assert RunRecord.load(tmp_path / "run").status == "failed"
    with pytest.raises(RunError, match="is no trial of Optuna"):
        st.listeners.OptunaPruning("trial")
    st.listeners.OptunaPruning(trial, "nothing")(RunEnded(0.0, "done"))


# --- the command line --------------------------------------------------------------------


def test_train_sends_its_epochs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Calls()
    module(monkeypatch, "tensorboardX", SummaryWriter=lambda folder, purge_step: calls)
    stretto("generate", tmp_path / "r.dat", "--ratings", "1000", "--rows", "50", "--cols", "50")
    options = ["--rank", "2", "--epochs", "3", "-q", "--log", f"tensorboard:{tmp_path / 'logs'}"]
    stretto("train", "mf", tmp_path / "r.dat", *options, "--out", tmp_path / "run")
    assert {args[2] for args, _ in calls.of("add_scalar") if args[0] == "test_rmse"} == {1, 2, 3}
    for wrong in ("tensorboard", "tensorbord:x", "wandb:"):
        said = stretto("train", "mf", tmp_path / "r.dat", "--log", wrong, code=2).err
        assert f"--log {wrong}: write tensorboard:FOLDER" in said
