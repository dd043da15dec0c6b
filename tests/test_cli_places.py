"""`--runtime`: what a user may name, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import stretto as st
from stretto.cli.runtime_option import place
from stretto.errors import PlanError


def test_a_word_becomes_a_runtime() -> None:
    assert place(None, 3, None) == st.Threads(3)
    assert place("threads", None, None) == st.Threads()
    assert place("serial", None, None) == st.Serial()
    assert place("cluster", None, None) == st.Cluster("auto", nodes=2, threads=1)
    assert place("cluster:10.0.0.5:6379", 8, 16) == st.Cluster("10.0.0.5:6379", nodes=16, threads=8)


@pytest.mark.parametrize(
    ("text", "nodes", "words"),
    [("spark", None, "there are threads"), ("threads", 4, "is for a cluster"), ("serial:1", None, "there are threads")],
)
def test_others_are_refused(text: Any, nodes: Any, words: Any) -> None:
    with pytest.raises(PlanError, match=words):
        place(text, None, nodes)
