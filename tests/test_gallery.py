"""The examples of the gallery run on generated data and with the data sets, and find what they should find."""

from __future__ import annotations

import runpy
import tempfile
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
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # for the files that examples write
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
    curve = [epoch["test_ndcg@10"] for epoch in found["models"]["BPR"].history_]
    assert curve[-1] > 1.5 * curve[0]


def new_films(found: Found) -> None:
    """Genres lower the error for new films, and find liked ones more often than chance."""
    mean, plain, informed = found["errors"].values()
    assert informed < 0.98 * plain < plain < mean
    drawn, chosen = found["hits"].values()
    assert chosen > 1.8 * drawn
    assert {900_001, 900_002} <= set(found["informed"].item_ids_.ids.tolist())


def serves_new_users(found: Found) -> None:
    """More ratings of a new user make the predictions better; parts add up to the score; arrays agree."""
    errors = found["errors"]
    assert errors[16] < 0.95 * errors[0]
    assert errors[8] < errors[1] < errors[0]
    why = found["why"]
    assert abs(why.mean + why.item_bias + why.contributions.sum() + why.rest - why.score) < 1e-5
    assert set(found["best"][0].tolist()) < set(found["westerns"]) - {found["held"][0]}
    assert abs(found["score"] - found["own"]).max() < 1e-4


def tunes_and_updates(found: Found) -> None:
    """The search finds a penalty, and partial_fit is nearly as good as new fits, and both better than none."""
    assert -found["search"].best_score_ < 0.95 * found["stars"].std()
    stale, fresh, again = (sum(values[1:]) for values in found["errors"].values())
    assert fresh < 0.985 * stale
    assert fresh < 1.01 * again
    assert len(found["fresh"].user_factors_) == found["ratings"].user.nunique()


def text_to_topics(found: Found) -> None:
    """Topics tell newsgroups that the model has not seen, and the search finds its group."""
    assert found["agreement"] > 0.75
    assert found["precision"] >= 0.8
    assert found["page"].stat().st_size > 20_000


def how_many_topics(found: Found) -> None:
    """Stability falls and five topics predict worse than the best number; merging keeps every topic."""
    rows = {row.n_components: row for row in found["sweep"].table}
    assert rows[80].stability < rows[10].stability - 0.03
    assert rows[5].perplexity > 1.1 * min(row.perplexity for row in rows.values())
    assert len(found["coarse"].topic_names()) == 6
    assert found["coarse"].topic_tokens_.sum() == pytest.approx(found["fine"].topic_tokens_.sum())


def seeded_topics(found: Found) -> None:
    """The seeded topics have their names and find their newsgroups, also without the seed words."""
    assert found["names"][:4] == list(found["seeds"])
    for by_topic, by_words in zip(found["by_topic"].values(), found["by_words"].values(), strict=True):
        assert by_topic >= max(0.9, by_words - 0.01)
    assert sum(found["hidden"].values()) / 4 > 0.6


def topics_over_time(found: Found) -> None:
    """The topic that rose most is the siege, and it rose surely."""
    assert {"fbi", "koresh", "fire", "compound", "children"} & set(found["model"].top_words(n=10)[found["rising"]])
    assert found["change"].max() > 4
    assert found["found"].documents.sum() == found["counts"].shape[0]


def topics_as_features(found: Found) -> None:
    """With a dozen labels topics are better than words; together they are as good as either with many."""
    words, topics, both = (values.mean(axis=1) for values in found["accuracy"].values())
    assert topics[0] > words[0] + 0.02
    assert both[-1] > max(words[-1], topics[-1]) - 0.01


CHECKS: dict[str, Callable[[Found], None]] = {
    "plot_rate_films": rates_films,
    "plot_rank_from_clicks": ranks_from_clicks,
    "plot_cold_items": new_films,
    "plot_serve_new_users": serves_new_users,
    "plot_tune_and_update": tunes_and_updates,
    "plot_text_to_topics": text_to_topics,
    "plot_how_many_topics": how_many_topics,
    "plot_seeded_topics": seeded_topics,
    "plot_topics_over_time": topics_over_time,
    "plot_topics_as_features": topics_as_features,
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
            if axes.get_label() == "<colorbar>":
                assert axes.get_ylabel()
                continue
            assert axes.get_title() or figure.get_suptitle()
            assert axes.get_xlabel()
            assert len(axes.get_legend_handles_labels()[1]) <= 6


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive:UserWarning")
def test_an_example_on_the_data_sets(name: str, example: Callable[..., Found]) -> None:
    CHECKS[name](example(name, real=True))
