"""What objects look like in a notebook: tables whose text cannot be more than text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stretto as st
from stretto.observe.record import RunRecord

NASTY = "<img src=x onerror=alert(1)><script>&amp;\"'"
ALLOWED = {"table", "thead", "tbody", "tr", "th", "td", "p", "div", "pre"}
DRAWN = {"svg", "title", "rect", "text", "path", "polyline", "circle"}


class Seen(HTMLParser):
    """Elements and texts of a piece of HTML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        assert not any(name.startswith("on") or name in ("href", "src") for name, _ in attrs), attrs

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def shown(value: Any) -> list[str]:
    """The texts of a value in a notebook; fails on any element but tables and pictures."""
    seen = Seen(value._repr_html_())
    assert seen.elements <= ALLOWED | DRAWN
    return seen.texts


def add(worker: Any, x: Any) -> float:
    x.add([0], [1.0])
    return float(x.read([0])[0])


def count(w: Any) -> None:
    for _ in w.clocks(12):
        w.table(NASTY).add([0], [1.0])


def test_data_with_ids() -> None:
    ids = st.IdMap.of([NASTY, "b"])
    data = st.Data.from_arrays([0, 1, 1], [0, 1, 0], [1.5, 2.0, 3.0], row_ids=ids, source=NASTY)
    texts = shown(data)
    assert texts[3:9] == [NASTY, "0", "1.5", "b", "1", "2"]
    assert NASTY in texts[-1]
    assert "Data(0 x 0, 0 records" in shown(st.Data.from_arrays([], [], [], shape=(0, 0)))[-1]


def test_results(tmp_path: Path) -> None:
    tables = {NASTY: st.tables.Table(rows=1, cols=1)}
    session = st.Session(record=tmp_path / "run", config={NASTY: NASTY})
    watch = lambda view: float(view[NASTY][0])  # noqa: E731
    result = st.run(count, tables=tables, workers=2, runtime=st.Threads(2), watch=watch, session=session)
    texts = shown(result)
    assert texts[-5:-1] == ["12", texts[-4], "0", "24"]
    assert NASTY in texts[-1].replace("\\'", "'")
    assert len(texts) == 4 + 10 * 4 + 1  # the newest ten
    view = RunRecord.load(tmp_path / "run")
    assert texts[-2] in shown(view)
    assert NASTY in shown(view)
    assert "<svg" in view._repr_html_()

    x = st.zeros(1, "f8")
    done = st.run(st.loop(st.unit(add, x, parts=1, name=NASTY), times=2), runtime=st.Serial())
    assert shown(done).count(NASTY) == 2

    halve = st.program(
        update=lambda job, data, params: (job, params["x"][job] / 2),
        aggregate=lambda results, params: [params["x"].__setitem__(job, value) for job, value in results] and None,
        objective=lambda data, params: float(params["x"].sum()),
        schedule=st.schedule.cyclic(width=2),
        params={"x": np.ones(4)},
    )
    texts = shown(st.run(halve, rounds=2, runtime=st.Serial()))
    assert texts[-1].startswith("2 rounds in ")
    assert texts[-2] == "2"


def test_a_memory_plan() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.ones(4, 8), torch.ones(4, 8)
    loss = torch.nn.functional.mse_loss
    report = st.memory.plan(model, loss, optimizer, batch, budget="1MiB", device="cpu")
    report.planned.notes.append(NASTY)
    assert shown(report) == [str(report)]
