"""What the command line says: options as they are typed, brackets as they are written, counts of what was done."""

from __future__ import annotations

import ast
import inspect as introspect
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import stretto as st
from clirun import private_cache, stretto
from stretto.cli import app
from stretto.cli.errors import in_options
from stretto.cli.recommendations import _counted
from stretto.cli.wording import PYTHON_ONLY, as_typed, reading_options
from stretto.data import inspect, read, scan

SRC = Path(st.__file__).parent
ROOT: Any = typer.main.get_command(app)


def command(*path: str) -> Any:
    found = ROOT
    for name in path:
        found = found.commands[name]
    return found


def options(*path: str) -> set[str]:
    """Options of a command by the names of their parameters."""
    return {parameter.name for parameter in command(*path).params}


READING = [("train", "mf"), ("train", "lda"), ("explain",), ("infer",), ("info",)]


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with private_cache(tmp_path_factory.mktemp("cache")):
        yield


# --- options as they are typed ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "typed"),
    [
        ('pass on_error="skip"', "pass --on-error skip"),
        ("pass on_error='skip', or", "pass --on-error skip, or"),
        ("columns=(0, 1) if", "--columns 0,1 if"),
        ("columns=('who', 'what')", "--columns who,what"),
        ("columns=('our user', 'item')", "--columns 'our user,item'"),
        ("leave memory= out", "leave --memory out"),
        ("(memory=) or memory=, or memory='2GiB'", "(--memory) or --memory, or --memory 2GiB"),
        ('user="…", item="…"', "--user NAME, --item NAME"),
        ("solver='als' solves loss='squared' alone", "--solver als solves --loss squared alone"),
        ("n_jobs=2 and random_state=7", "--workers 2 and --seed 7"),
        ("implicit=True needs biases=False", "--implicit needs --no-biases"),
        ('frame.melt("user", rating="x")', 'frame.melt("user", rating="x")'),
        ("a == b, shape=(3, 2) and n=0", "a == b, shape=(3, 2) and n=0"),
        ("x.rank=3 and --rank=3", "x.rank=3 and --rank=3"),
        ("pass cache=False", "pass --no-cache"),
    ],
)
def test_messages_name_options_as_they_are_typed(said: str, typed: str) -> None:
    assert as_typed(said, command("train", "mf"), "train mf").split(" (shape=:")[0] == typed


def test_what_a_command_has_no_option_for_is_said() -> None:
    found = as_typed('pass on_error="skip"', command("resume"), "resume")
    assert found == 'pass on_error="skip" (on_error=: arguments in Python, for which `stretto resume` has no option)'
    assert in_options("pass on_error='skip'") == "pass on_error='skip'"  # no command runs: Python's own words


def messages(folder: str) -> Iterator[tuple[str, str]]:
    """(where, text) of every string in a folder that is no docstring, what is filled in as …"""
    for path in sorted((SRC / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        documents = {
            node.body[0].value
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        inside = {part for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            where = f"{path.relative_to(SRC).as_posix()}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.JoinedStr):
                parts = [str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values]
                yield where, "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documents | inside:
                yield where, node.value


ADVISED = re.compile(r"(?<![\w.{\-])([a-z][a-z_]*)=(?![=])")


def parameters(*functions: Any) -> set[str]:
    return {name for function in functions for name in introspect.signature(function).parameters}


def test_every_option_that_readers_advise_is_one_of_every_command_that_reads() -> None:
    known = parameters(read, scan, inspect, st.as_data) - {"path", "X", "source", "chunk", "part"}
    seen = set()
    for where, text in messages("data"):
        for name in ADVISED.findall(text):
            if name in known and name not in PYTHON_ONLY:
                seen.add(name)
                assert name in reading_options() | {"memory"}, f"{where}: {text}"
                for path in READING:
                    # `info` reads whatever there is and changes nothing; its remedies are those of `train mf`.
                    of = ("train", "mf") if path == ("info",) else path
                    # Counts of one word in one document are added up, and only training may stream.
                    missing = {"duplicates", "memory"} if of in (("train", "lda"), ("infer",)) else set()
                    assert name in options(*of) | missing, f"{where}: {' '.join(path)} has no --{name}: {text}"
    assert {"on_error", "columns", "ids", "user", "item", "rating", "duplicates", "format"} <= seen


@pytest.mark.parametrize(
    ("models", "estimator", "path"),
    [
        ("models/factorization", st.MatrixFactorization, ("train", "mf")),
        ("models/topics", st.LatentDirichletAllocation, ("train", "lda")),
    ],
)
def test_every_option_that_models_advise_can_be_typed(models: str, estimator: Any, path: tuple[str, ...]) -> None:
    """What an estimator has as a parameter and a command as an option is never left in Python's words."""
    known = parameters(estimator) | reading_options() | {"validation"}
    advised = set()
    for where, text in messages(models):
        advised |= set(ADVISED.findall(text)) & known
        text = re.sub(r"st\.\w+\((\([^()]*\)|[^()])*\)", "", text)  # a call, to be typed in Python
        typed = as_typed(text.replace("…", "x"), command(*path), " ".join(path))
        left = {name for name in ADVISED.findall(typed) if name in known and name in options(*path)}
        assert not left, f"{where}: {typed}"
    assert advised & options(*path)


BAD = {
    "a bad line": ("1,2,3\n4,x,5\n6,7,8\n", "--on-error skip"),
    "a bad value": ("1,2,3\n4,5,nan\n", "--on-error skip"),
    "text ids": ("7 8 1\n07 8 2\n9 9 3\n10 9 3\n", "--ids text"),
    "repeated pairs": ("1,2,3\n1,2,4\n5,6,7\n", "--duplicates first"),
    "pairs": ("1,2\n3,4\n", "--columns 0,1"),
    "a header that names something else": ("who,what,how\n1,2,3\n4,5,6\n", "--user who --item what --rating how"),
    "no rating": ("user,item,weight2\n1,2,3\n4,5,6\n", "--rating weight2"),
    "five fields": ("1,2,3,4,5\n6,7,8,9,1\n", "--columns 0,1,2"),
    "time stamps": ("1,2,978300760\n3,4,978302109\n", "--columns 0,1"),
    "two ratings": ("user,item,rating,score\n1,2,3,4\n5,6,7,8\n", "--rating rating"),
    "floats for ids": ("1.0,2.0,3\n4.0,5.0,6\n", "--ids text"),
    "counts or labels": ("1 3:1\n1 5:1\n", "--format svmlight"),
}


def flags_of(*path: str) -> set[str]:
    return {flag for parameter in command(*path).params for flag in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("path", [("info",), ("explain",), ("train", "mf"), ("train", "lda")], ids=" ".join)
def test_what_an_error_advises_can_be_typed_and_works(
    case: str, path: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, way = BAD[case]
    if path == ("train", "lda") and case == "repeated pairs":
        return  # counts of one word in one document are added up
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file.csv"
    file.write_text(text)
    listed = path == ("info",) and case in {"a bad line", "a bad value", "text ids", "repeated pairs"}
    said = stretto(*path, file, code=1).out if listed else stretto(*path, file, code=2).err
    assert not [name for name in ADVISED.findall(said) if name in reading_options()]
    advised = set(re.findall(r"(?<=\s)--[a-z-]+", said))
    assert advised <= (flags_of(*path) | flags_of("train", "mf") if listed else flags_of(*path)), said
    wanted = {word for word in way.split() if word.startswith("--")}
    assert wanted <= advised, said
    if path in (("info",), ("explain",)) and wanted <= flags_of(*path):
        stretto(*path, file, *shlex.split(way))


def test_a_warning_is_in_the_same_words(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("".join(f"{k % 7},{k % 11},{k % 5}\n" for k in range(77)))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "data").write_text("in the way of what was parsed")
    with private_cache(tmp_path / "cache"):
        said = stretto("explain", file)
        assert "parsed data is not kept" in said.err
        assert "pass --no-cache" in said.err
        assert "parsed data is not kept" not in stretto("explain", file, "--no-cache").err


def test_errors_of_a_script_stay_in_pythons_words(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("1,2,3\n4,x,5\n6,7,8\n")
    (tmp_path / "job.py").write_text(
        f"import stretto as st\n@st.parallel\ndef epoch(data, W):\n    for (i, j), v in data:\n        W[i] += v\n"
        f"def example():\n    data = st.read({str(tmp_path / 'r.csv')!r}, cache=False)\n"
        "    return data, st.zeros((9, 2))\n"
    )
    assert 'pass on_error="skip"' in stretto("explain", f"{tmp_path}/job.py:epoch", code=2).err


@pytest.mark.parametrize(
    ("text", "says"),
    [("0", "or the first two"), ("0,1,2,3", "or the first two"), ("0,,1", "the first two"), ("0,1,9", "expected 10")],
)
def test_columns_that_mean_nothing(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("1,2,3\n4,6,5\n")
    assert says in stretto("info", tmp_path / "r.csv", "--columns", text, code=2).err


@pytest.mark.parametrize("sep", ["tab", "\\t", "\t"])
def test_separators_can_be_typed(sep: str, tmp_path: Path) -> None:
    (tmp_path / "r.tsv").write_text("1 2\t3\t4\n5 6\t7\t8\n")
    assert "separated by tabs" in stretto("info", tmp_path / "r.tsv", "--sep", sep).out


# --- help ------------------------------------------------------------------------


def every_command(group: Any = ROOT, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, found in getattr(group, "commands", {}).items():
        yield from every_command(found, (*path, name))


@pytest.mark.parametrize("path", list(every_command()), ids=" ".join)
def test_help_keeps_its_brackets(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = " ".join(stretto(*path, "--help").out.split())
    found = command(*path)
    for text in (found.help, found.epilog, *(getattr(p, "help", None) for p in found.params)):
        for bracket in re.findall(r"\[[^\]]*\]", (text or "").replace("\\[", "[")):
            assert " ".join(bracket.split()) in said
    assert "[bold]" not in said
    assert "\\[" not in said


@pytest.mark.parametrize("path", [("explain",), ("simulate",), ("info",)], ids=" ".join)
def test_paragraphs_of_help_fill_the_terminal(path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines break where the terminal ends, not where the source did."""
    monkeypatch.setenv("COLUMNS", "70")
    lines = [line.strip() for line in stretto(*path, "--help").out.partition("╭")[0].splitlines()]
    inside = [one for one, following in itertools.pairwise(lines) if one and following]
    assert inside
    assert min(len(one) for one in inside) > 45


def test_there_are_brackets_to_keep() -> None:
    assert "[documents, topics]" in stretto("infer", "--help").out
    assert "[tables.weights]" in stretto("simulate", "--help").out


# --- counts ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_recommend_counts_what_it_wrote(kind: str, tmp_path: Path) -> None:
    """Two users have rated nearly all: there is less than was asked for."""
    lines = [f"{user},{item},{(user + item) % 5 + 1}" for user in range(6) for item in range(4) if item < 3 - user % 2]
    lines += ["6,0,1", "6,1,2", "6,2,3", "6,3,4"]
    (tmp_path / "r.csv").write_text("\n".join(lines) + "\n")
    quick = ["--rank", "2", "--epochs", "1", "--test", "0", "-q", "--out", str(tmp_path / "run")]
    stretto("train", "mf", tmp_path / "r.csv", *quick)
    to = tmp_path / f"best.{kind}"
    said = stretto("recommend", tmp_path / "run", "--all", "-n", "3", "--to", to).out
    if kind == "csv":
        written = len(to.read_text().splitlines()) - 1
    else:
        with np.load(to) as stored:
            written = int(np.isfinite(stored["scores"]).sum())
    assert written == 3 * 1 + 3 * 2
    assert f"{written} items for 6 users; 6 of them have fewer than 3, and 1 users have none" in said
    for more in (["--user", "1"], ["--some", "1"]):
        assert "--all is every user" in stretto("recommend", tmp_path / "run", "--all", *more, "--to", to, code=2).err
    similar = ["--similar-to", "1", "--to", str(to)]
    assert "--similar-to prints" in stretto("recommend", tmp_path / "run", *similar, code=2).err
    assert "no user '01'" in stretto("recommend", tmp_path / "run", "--user", "01", code=2).err


def test_counting() -> None:
    assert _counted(np.array([2, 2]), 2) == "2 items for each of 2 users"
    assert _counted(np.array([0, 0]), 2) == "0 items for 0 users; 2 users have none"
