"""The examples of the gallery run on generated data and with the data sets, and find what they should find."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from realdata import data_root

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

GALLERY = Path(__file__).resolve().parents[1] / "examples" / "gallery"
SCRIPTS = sorted(GALLERY.glob("*/plot_*.py"))
Found = dict[str, Any]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Found]]:
    """Run a script as a program: the names that it leaves. Its folder is importable, as beside a running script."""
    import matplotlib as mpl

    monkeypatch.chdir(tmp_path)
    with mpl.rc_context():
        mpl.use("Agg")
        import matplotlib.pyplot as plt

        def run(name: str, *, real: bool = False) -> Found:
            (script,) = (one for one in SCRIPTS if one.stem == name)
            root = data_root()
            if real and root is None:
                pytest.skip("no data sets; point STRETTO_DATA at their folder")
            monkeypatch.setenv("STRETTO_DATA", str(root) if real else str(tmp_path / "nothing"))
            monkeypatch.syspath_prepend(str(script.parent))
            names: Found = runpy.run_path(str(script))
            assert names["source"].startswith("generated") is not real
            return names | {"figures": [plt.figure(k) for k in plt.get_fignums()]}

        yield run
        plt.close("all")


def rates_films(found: Found) -> None:
    """The model predicts better than the mean; the ranking one beats popularity in every split, and surely."""
    assert found["rmse"] < 0.9 * found["guess"]
    assert found["low"] > 0.03
    for judged in found["found"].values():
        ranks, popular = (judged.score("ndcg@10", name) for name in ("ranks likes", "most popular"))
        assert ranks.low > popular.high
    assert len(found["table"]) == 10
    assert found["table"].genres.str.len().min() > 3


def ranks_from_clicks(found: Found) -> None:
    """Training stops by itself, and three of four losses beat popularity by half."""
    judged, popular = found["found"], found["found"].score("ndcg@10", "most popular").value
    better = [name for name in found["models"] if judged.score("ndcg@10", name).value > 1.5 * popular]
    assert len(better) >= 3
    assert found["winner"] in better
    assert found["models"]["BPR"].n_iter_ < found["models"]["BPR"].max_iter
    curve = [epoch["test_ndcg10"] for epoch in found["models"]["BPR"].history_]
    assert curve[-1] > 1.5 * curve[0]


CHECKS: dict[str, Callable[[Found], None]] = {
    "plot_rate_films": rates_films,
    "plot_rank_from_clicks": ranks_from_clicks,
}


def test_every_example_is_checked() -> None:
    assert [script.stem for script in SCRIPTS] == sorted(CHECKS, key=[script.stem for script in SCRIPTS].index)
    assert all((script.parent / "GALLERY_HEADER.rst").exists() for script in SCRIPTS)


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_an_example_finds_what_it_says(name: str, example: Callable[..., Found]) -> None:
    """On generated data; each figure has a title, named axes and at most six series."""
    found = example(name)
    CHECKS[name](found)
    assert found["figures"]
    for figure in found["figures"]:
        for axes in figure.axes:
            assert axes.get_title() or figure.get_suptitle()
            assert axes.get_xlabel()
            assert len(axes.get_legend_handles_labels()[1]) <= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_an_example_on_the_data_sets(name: str, example: Callable[..., Found]) -> None:
    CHECKS[name](example(name, real=True))
