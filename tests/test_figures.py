"""One style for all figures: who draws, what the style is, how large pictures are, what the animation shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from xml.etree.ElementTree import fromstring

import matplotlib as mpl
import numpy as np
import pytest
from tools.pictures.rotation import animated

import stretto as st
from stretto.figures import COLOURS, STYLE, legend_below, new_figure, shared_legend
from stretto.schedule.orders.bound import play_waves

ROOT = Path(__file__).parents[1]


def test_figures_are_made_in_one_place() -> None:
    made = re.compile(r"\bFigure\(|savefig\(|mplstyle|plt\.style\.use\((?!\"stretto\.figures\"\))")
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("src", "bench", "reproductions", "tools", "examples")
        for path in (ROOT / folder).rglob("*.py")
        if made.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"src/stretto/figures.py"}


def test_the_style_is_found_by_its_name_and_has_the_colours() -> None:
    import matplotlib.pyplot as plt

    with plt.style.context("stretto.figures"):
        assert [f"#{one}" if one[0] != "#" else one for one in mpl.rcParams["axes.prop_cycle"].by_key()["color"]] == [
            *COLOURS
        ]
    assert STYLE.exists()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_figure_is_small_and_leaves_settings_alone(ending: str, tmp_path: Path) -> None:
    before, path = dict(mpl.rcParams), tmp_path / f"a.{ending}"
    with mpl.rc_context({"axes.titlesize": 40.0}), new_figure(path, 8, 4, "Two panels") as figure:
        left, right = figure.subplots(1, 2)
        for axes in (left, right):
            for k in range(6):
                axes.plot(np.arange(50), np.arange(50) * k, label=f"a series with a long name, number {k}")
        assert left.title.get_fontsize() == 11  # of the style, not of the user
        shared_legend(figure)
        legend_below(right)
        figure.canvas.draw()
        for legend in (figure.legends[0], right.get_legend()):
            box = legend.get_window_extent()
            assert box.x0 >= 0
            assert box.x1 <= figure.bbox.width
        assert len(figure.legends[0].get_texts()) == 6
    assert dict(mpl.rcParams) == before
    assert 1_000 < path.stat().st_size < 150_000


def test_pictures_in_the_tree_are_small() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "*.png", "*.gif"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    names = listed.stdout.split()
    if not names:
        pytest.skip("not a checkout")
    large = [name for name in names if (ROOT / name).exists() and (ROOT / name).stat().st_size > 150_000]
    assert not large


def test_the_animation_shows_every_visit_and_stands_still_for_those_who_ask() -> None:
    ratings = st.generate_ratings(4_000, 100, 100, rank=2, seed=1).data
    plan = st.MatrixFactorization(4, random_state=0, n_jobs=3).plan(ratings)
    text = animated(plan, 3)
    page = fromstring(text)
    visits = play_waves(plan.order, plan.weight, 3, plan.waves)
    blocks = [one for one in page.iter("{http://www.w3.org/2000/svg}rect") if one.get("class") == "b"]
    assert len(blocks) == len(visits) == len(plan.order)
    for visit, worker, *_ in visits:
        (block,) = (one for one in blocks if one.get("id") == f"v{visit}")
        assert block.get("fill") == COLOURS[worker]
    still, moving = text.split("@media (prefers-reduced-motion:no-preference)")
    assert "animation" not in still
    assert moving.count("@keyframes") == len(visits)
