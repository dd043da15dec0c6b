"""`--config`: options from a TOML file, and the options that a run keeps."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clirun import empty_pictures, private_cache, same_model, stretto


@pytest.fixture(scope="module", autouse=True)
def ratings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("ratings")
    with private_cache(tmp_path_factory.mktemp("cache")), empty_pictures():
        stretto("generate", folder / "r.dat", "--ratings", "2000", "--rows", "100", "--cols", "80")
        yield folder / "r.dat"


def kept(run: Path) -> dict[str, object]:
    return tomllib.loads((run / "options.toml").read_text())


def test_options_of_the_file_are_taken_and_what_is_typed_wins(ratings: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(
        f'file = "{ratings}"\nrank = 3\nepochs = 2\nlearning-rate = 0.05\nreg = 0.5\nbiases = false\n'
        f'optimizer = "adagrad"\nquiet = true\nout = "{tmp_path / "run"}"\n'
    )
    said = stretto("train", "mf", "--config", tmp_path / "run.toml", "--rank", "5")
    assert said.out == ""
    found = kept(tmp_path / "run")
    expected = {
        "rank": 5,
        "epochs": 2,
        "learning-rate": 0.05,
        "reg": 0.5,
        "biases": False,
        "optimizer": "adagrad",
        "file": str(ratings),
        "command": "train mf",
        "seed": 0,
    }
    assert {name: found[name] for name in expected} == expected
    assert "out" not in found


CASES = {
    "mf": ["--rank", "3", "--epochs", "3", "--seed", "4", "--test", "0.2", "--no-biases", "--loss", "absolute"],
    "lasso": ["--alpha", "0.01", "--target", "b", "--drop", "d", "--drop", "c", "--seed", "3", "--no-intercept"],
    "lda": ["--topics", "3", "--epochs", "4", "--alpha", "0.3", "--all", "--early-stopping"],
}


@pytest.mark.parametrize("kind", CASES)
def test_a_run_is_repeated_bit_for_bit(
    kind: str, ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = Path("data.txt")
    if kind == "mf":
        file.write_bytes(ratings.read_bytes())
    elif kind == "lda":
        stretto("generate", file, "--documents", "60", "--words", "40", "--topics", "3")
    else:
        file.write_text("a,b,c,d\n" + "".join(f"{k % 7},{k % 5 + k % 7},{k % 3},{k % 2}\n" for k in range(90)))
    stretto("train", kind, file, *CASES[kind], "--out", "one", "-q")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    stretto("train", kind, "--config", "../one/options.toml", "--out", "two", "-q")
    assert same_model(tmp_path / "one", Path("two"))
    assert kept(tmp_path / "one") == kept(Path("two"))
    stretto("train", kind, "--config", "../one/options.toml", "--out", "three", "-q", "--seed", "8")
    assert kept(Path("three"))["seed"] == 8


def test_explain_takes_the_options_of_a_run(ratings: Path, tmp_path: Path) -> None:
    stretto("train", "mf", ratings, "--rank", "3", "--epochs", "2", "--out", tmp_path / "run", "-q")
    said = stretto("explain", "--config", tmp_path / "run" / "options.toml")
    assert said.out.split(":")[0] == (tmp_path / "run" / "plan.txt").read_text().split(":")[0]


def test_a_resumed_run_keeps_its_options_up_to_date(ratings: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stretto("train", "mf", ratings, "--solver", "als", "--rank", "3", "--epochs", "2", "--out", run, "-q")
    stretto("resume", run, "--epochs", "4", "-q")
    assert kept(run)["epochs"] == 4
    stretto("train", "mf", "--config", run / "options.toml", "--out", tmp_path / "again", "-q")
    assert same_model(run, tmp_path / "again")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rnak = 3", "run.toml: 'rnak' is no option of `stretto train mf`; the nearest is 'rank'"),
        ("n_components = 3", "'n_components' is no option of `stretto train mf`; the nearest is 'rank'"),
        ("xyzzy = 3", "'xyzzy' is no option of `stretto train mf`; `stretto train mf --help` lists them"),
        ("no-biases = true", "no-biases: write biases = false"),
        ("no_cache = true", "no_cache: write cache = false"),
        ("json = true", "'json' is no option"),
        ('rank = "many"', "'--rank'"),
        ('rank = "many"', "(it is set in run.toml)"),
        ("rank = 0", "(it is set in run.toml)"),
        ("rank = [3, 4]", "rank is a list; give one value"),
        ("[rank]\nvalue = 3", "rank is a table; give one value"),
        ('loss = "cubic"', "squared"),
        ("rank = ", "--config run.toml: is no TOML"),
        ('command = "train lda"', "holds options of `stretto train lda`, and this is `stretto train mf`"),
        ('solver = "als"\nloss = "bpr"', "set in run.toml"),
    ],
)
def test_mistakes_in_a_file(
    text: str, says: str, ratings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    Path("run.toml").write_text(text + "\n")
    said = stretto("train", "mf", ratings, "--config", "run.toml", code=2)
    assert says in " ".join(said.err.replace("│", " ").split())
    assert not Path("runs").exists()


def test_a_file_that_is_not_there(ratings: Path) -> None:
    assert (
        "--config no.toml: there is no such file" in stretto("train", "mf", ratings, "--config", "no.toml", code=2).err
    )
