"""Which node makes which visits."""

from __future__ import annotations

import numpy as np
import pytest

from stretto.schedule.orders.bound import play
from stretto.schedule.orders.rotation import independent, panels, rotation
from stretto.schedule.orders.route import Route, owners


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 8])
def test_every_node_has_a_share_of_every_panel(nodes: int) -> None:
    """Panels follow one another: a node without a part of one would wait until it is over."""
    order = panels(8, 3)
    owner = owners(order, np.ones(len(order), np.int64), nodes)
    for panel in np.split(owner, 3):
        assert set(panel.tolist()) == set(range(nodes))
        assert np.all(np.diff(panel) >= 0), "neighbours stay together"


def test_a_grid_of_many_rows_is_not_taken_for_panels() -> None:
    order = independent(16)
    assert owners(order, np.ones(16, np.int64), 4).tolist() == np.repeat(range(4), 4).tolist()


def test_shares_follow_the_weight() -> None:
    order = rotation(8)
    weight = np.where(order.row_block < 2, 30, 10).astype(np.int64)
    owner = owners(order, weight, 2)
    share = np.bincount(owner[order.row_block], weights=weight) / weight.sum()
    assert np.all(np.abs(share - 0.5) < 0.1)


def test_nodes_of_panels_work_side_by_side() -> None:
    """As long as an epoch of one worker, divided by the nodes, and a little: with rows dealt out panel by panel."""
    order, weight = panels(8, 4), np.full(4 * 64, 5, np.int64)
    route = Route(order, owners(order, weight, 4))
    ends = {visit: end for visit, _, _, end in play(order, weight, 4)}
    assert max(ends.values()) <= 1.1 * weight.sum() / 4
    assert np.bincount(route.node).tolist() == [64, 64, 64, 64]
