"""Files around the code: the version is written once, news fragments are found, and CI runs what a person runs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import stretto

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def recipe(target: str) -> list[str]:
    """The commands of a make target."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_the_version_is_written_in_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    source = ROOT / PROJECT["tool"]["hatch"]["version"]["path"]
    assert f'__version__ = "{stretto.__version__}"' in source.read_text(encoding="utf-8")
    assert re.fullmatch(r"\d+\.\d+\.\d+", stretto.__version__)
    assert "\nversion:" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_every_news_fragment_has_a_known_kind() -> None:
    """Towncrier leaves out files whose kind it does not know."""
    settings = PROJECT["tool"]["towncrier"]
    kinds = "|".join(kind["directory"] for kind in settings["type"])
    for path in (ROOT / "changes").iterdir():
        if path.name not in settings["ignore"]:
            assert re.fullmatch(rf"\d+(\.[a-z0-9-]+)?\.({kinds})\.md", path.name), path.name
            assert path.read_text(encoding="utf-8").strip(), path.name


def test_the_changelog_says_where_a_release_goes() -> None:
    assert "\n<!-- towncrier release notes start -->\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_ci_runs_what_a_person_runs() -> None:
    targets = re.findall(r"^make (\S+)", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE)
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert re.findall(r"run: make (\S+)", workflow) == targets == ["check", "test"]


def test_ci_runs_every_python_that_is_promised() -> None:
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    matrix = re.search(r"python: \[(.*)\]", workflow)
    assert matrix
    classifiers = " ".join(PROJECT["project"]["classifiers"])
    assert re.findall(r"[\d.]+", matrix[1]) == re.findall(r"Python :: (3\.\d+)", classifiers)


def test_hooks_run_what_make_check_runs() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert re.findall(r"entry: (.+)", hooks) == recipe("check")
