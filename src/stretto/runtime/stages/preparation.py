"""How a stage on one node gets its states: whole before it starts, or chunk by chunk on demand.

Whole costs the transfer of everything before the first iteration, and nothing afterwards. On demand costs a wait for
each chunk when it is first used, and moves only what is used.
"""

from __future__ import annotations

SMALL_BYTES = 1 << 20  # states that are moved faster than their chunks are asked for one by one
MANY_ITERATIONS = 100  # after so many, most chunks have been used


def chosen_preparation(nbytes: int, iterations: int) -> str:
    """Choose for a stage with states of this size.

    >>> chosen_preparation(100_000, 1), chosen_preparation(10**9, 10), chosen_preparation(10**9, 1000)
    ('whole', 'on-demand', 'whole')
    """
    return "whole" if nbytes <= SMALL_BYTES or iterations >= MANY_ITERATIONS else "on-demand"
