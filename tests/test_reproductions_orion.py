"""Orion's loops on simulated nodes: proportions of the network, the same topics in any place, what ordering costs."""

from __future__ import annotations

import numpy as np
import pytest
from reproductions import orion_distributed, orion_loops
from reproductions.orion_loops import app, cluster, seconds

import stretto as st

pytestmark = pytest.mark.slow  # reproductions are no part of `make test`


def test_a_cluster_has_the_papers_proportions() -> None:
    job = app("sgd", 200)
    on = cluster(job, 12, 4, cores=4)
    assert job.bytes / on.links[0] == pytest.approx(job.paper_bytes / orion_loops.LINK)
    assert job.items * on.seconds_per_item / on.workers == pytest.approx(job.unordered)
    assert orion_distributed.paper_share(job) == pytest.approx(0.0024, rel=0.01)
    apart = cluster(job, 12, 4, processes=True, cores=4)
    assert (apart.nodes, apart.threads, apart.racks) == (48, 1, 12)


def test_order_costs_a_wavefront() -> None:
    job = app("sgd", 400)
    took = [
        seconds(job, cluster(job, 4, 1, cores=1), ordered=ordered, blocks=(4, m))
        for ordered, m in ((True, 4), (False, 8))
    ]
    assert took[0] / took[1] == pytest.approx(7 / 4, rel=0.15)


def test_topics_keep_their_counts_and_do_not_depend_on_the_place() -> None:
    job = app("lda", 60)
    found = []
    for runtime in (st.Serial(), cluster(job, 3, 1, cores=1)):
        _, call = job.make(measure=True, runtime=runtime, ordered=True, blocks=(3, 3))
        found.append([call(epoch) for epoch in range(3)])
    assert found[0] == found[1]
    assert found[0][-1] < found[0][0]


def test_topics_begin_with_counts_of_their_own() -> None:
    first, (topic, by_doc, by_word) = orion_loops.begun(60)
    words = orion_loops.tokens(60)
    assert by_doc.sum() == by_word.sum() == len(words)
    assert np.array_equal(by_doc.sum(axis=1), np.bincount(words.rows, minlength=60))
    place = np.arange(len(words)) - first[words.rows]
    again = np.zeros_like(by_word)
    np.add.at(again, (words.cols, topic[words.rows, place]), 1)
    assert np.array_equal(again, by_word)
