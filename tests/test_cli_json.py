"""`--json`: every command prints one JSON document on stdout, with the fields that the schema promises."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from clirun import empty_pictures, private_cache, stretto
from page_records import record
from stretto.cli import app
from stretto.cli.json_output import DOCUMENTS, SCHEMA

ROOT: Any = typer.main.get_command(app)
JOB = """
import numpy as np

def worker(w):
    x = w.table("x")
    for clock in w.clocks(3):
        x.add(np.array([0]), np.ones((1, 1)))
        w.work(10)

def total(view):
    return float(view["x"].sum())
"""
TOML = """
worker = "job.py:worker"
watch = "job.py:total"
[cluster]
nodes = 2
[tables.x]
rows = 2
"""


def commands(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[str]:
    for name, found in group.commands.items():
        if hasattr(found, "commands"):
            yield from commands(found, (*path, name))
        else:
            yield " ".join((*path, name))


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the commands need: ratings, documents, samples, a job, and a run of each kind."""
    folder = tmp_path_factory.mktemp("world")
    with private_cache(tmp_path_factory.mktemp("cache")), empty_pictures():
        stretto("generate", folder / "r.dat", "--ratings", "2000", "--rows", "100", "--cols", "80")
        stretto("generate", folder / "docword.txt", "--documents", "60", "--words", "40", "--topics", "3")
        draw = np.random.default_rng(0)
        X = draw.normal(size=(60, 3)).round(3)
        lines = [f"{a},{b},{c},{a - b:.3f},{'yes' if a > b else 'no'}" for a, b, c in X.tolist()]
        (folder / "s.csv").write_text("\n".join(["a,b,c,target,said", *lines]) + "\n")
        (folder / "job.py").write_text(JOB)
        (folder / "job.toml").write_text(TOML)
        quick = ["--epochs", "2", "-q"]
        stretto("train", "mf", folder / "r.dat", "--rank", "2", *quick, "--out", folder / "mf")
        stretto("train", "lda", folder / "docword.txt", "--topics", "3", *quick, "--out", folder / "lda")
        record(folder / "records" / "one")
        record(folder / "records" / "two", config={"estimator": "Made", "seed": 4}, epochs=3)
        yield folder


CASES: dict[str, list[list[str]]] = {
    "train mf": [["{}/r.dat", "--epochs", "2", "--rank", "2", "--out", "NEW"]],
    "train lda": [["{}/docword.txt", "--topics", "3", "--epochs", "2", "--out", "NEW"]],
    "train lasso": [["{}/s.csv", "--alpha", "0.01", "--drop", "said", "--out", "NEW"]],
    "train logistic": [["{}/s.csv", "--target", "said", "--drop", "target", "--out", "NEW"]],
    "resume": [["{}/mf"]],
    "recommend": [
        ["{}/mf", "--some", "2"],
        ["{}/mf", "--similar-to", "3"],
        ["{}/mf", "--user", "7", "--why", "3"],
        ["{}/mf", "--all", "--to", "NEW.csv"],
    ],
    "evaluate": [["{}/mf", "--metrics", "ndcg@5,rmse"]],
    "topics": [["{}/lda"], ["{}/lda", "--topic", "1"], ["{}/lda", "--html", "NEW.html"]],
    "sweep": [["{}/docword.txt", "--topics", "2,3", "--repeats", "1", "--epochs", "2", "--out", "NEW"]],
    "infer": [["{}/lda", "{}/docword.txt", "--out", "NEW.npz", "--perplexity"]],
    "runs": [["{}/records"]],
    "compare": [["{}/records"]],
    "dashboard": [["{}/records"]],
    "report": [["{}/records", "-o", "NEW.html"]],
    "info": [["{}/r.dat"]],
    "generate": [["NEW.dat", "--ratings", "100", "--rows", "20", "--cols", "20"]],
    "explain": [["{}/r.dat"], ["{}/s.csv", "--model", "lasso", "--drop", "said"]],
    "simulate": [["{}/job.toml", "--sweep", "nodes=2,3"]],
    "tour": [["--only", "6"]],
    "warmup": [[]],
}


def document(command: str, arguments: list[str], world: Path, new: Path, code: int = 0) -> dict[str, Any]:
    typed = [text.replace("{}", str(world)).replace("NEW", str(new)) for text in arguments]
    found: dict[str, Any] = json.loads(stretto(*command.split(), *typed, "--json", code=code).out)
    assert found.pop("command") == command
    assert found.pop("schema") == SCHEMA
    return found


def test_every_command_is_in_the_schema_and_among_the_cases() -> None:
    assert set(commands()) == set(DOCUMENTS) == set(CASES)


@pytest.mark.parametrize(("command", "at"), [(name, k) for name, cases in CASES.items() for k in range(len(cases))])
def test_one_document_with_the_promised_fields(
    command: str, at: int, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stretto.observe.page.process.serve", lambda server: None)
    monkeypatch.setattr("stretto.warmup.fill.is_warm", lambda **_: True)
    found = document(command, CASES[command][at], world, tmp_path / "new")
    assert list(found) == list(DOCUMENTS[command])
    told = [name for name, value in found.items() if value is not None]
    assert told
    if command.startswith("train"):
        assert found["status"] == "done"
        assert Path(found["model"]).is_file()
        assert "options.toml" in found["files"]
        assert found["epochs"] >= 1
    if command in {"train lasso", "train logistic"}:
        assert found["scores"]["test_r2" if command == "train lasso" else "test_accuracy"] > 0.8


def test_what_some_documents_say(world: Path, tmp_path: Path) -> None:
    best = document("recommend", ["{}/mf", "--user", "7", "-n", "3"], world, tmp_path)
    assert best["results"][0]["for"] == 7
    assert [set(one) for one in best["results"][0]["found"]] == [{"id", "score"}] * 3
    runs = document("simulate", ["{}/job.toml", "--sweep", "nodes=2,3"], world, tmp_path)["runs"]
    assert [one["nodes"] for one in runs] == ["2", "3"]
    assert runs[1]["objective"] == 1.5 * runs[0]["objective"] > 0
    assert document("resume", ["{}/mf"], world, tmp_path)["status"] == "complete"


def test_the_page_has_every_field() -> None:
    page = (Path(__file__).parents[1] / "docs" / "how-to" / "command-line.md").read_text()
    for command, fields in DOCUMENTS.items():
        row = next(line for line in page.splitlines() if line.startswith("| ") and f"`{command}`" in line.split("|")[1])
        assert [name for name in fields if f"`{name}`" not in row] == [], command


@pytest.mark.parametrize(
    ("typed", "command", "kind", "says"),
    [
        (["train", "mf", "nothing.dat"], "train mf", "DataError", "nothing.dat"),
        (["train", "mf", "nothing.dat", "--rnak", "3"], "train mf", "UsageError", "--rank"),
        (["train", "mf", "nothing.dat", "--rank", "x"], "train mf", "UsageError", "--rank"),
        (["trian", "mf"], "", "UsageError", "trian"),
        (["runs", "nowhere"], "runs", "RunError", "nowhere"),
    ],
)
def test_an_error_is_a_document_too(typed: list[str], command: str, kind: str, says: str) -> None:
    said = stretto(*typed, "--json", code=2)
    found = json.loads(said.out)
    assert (found["command"], found["error"]["kind"], found["error"]["exit_code"]) == (command, kind, 2)
    assert says in found["error"]["message"]
    assert said.err


def test_problems_of_a_file_end_with_1_and_a_document(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("1,2,3\n4,x,5\n6,7,8\n")
    found = json.loads(stretto("info", tmp_path / "bad.csv", "--json", code=1).out)
    assert not found["ok"]
    assert found["problems"][0]["line"] == 2
    assert "--on-error" in found["problems"][0]["remedy"]


def test_without_json_nothing_of_it_is_printed(world: Path) -> None:
    assert not stretto("recommend", world / "mf", "--some", "1").out.startswith("{")
