"""The width of work whose passes are too short or too different to be measured: by the amount of work in a pass."""

from __future__ import annotations

# A thread reads a stored value in about 1.5 ns and takes 10 to 15 µs to wake: with this many values it computes for
# seven times as long as it takes to wake.
VALUES_A_THREAD = 1 << 16


def width_by_work(values: int, widest: int) -> tuple[int, str]:
    """How many threads to use, and why.

    Parameters
    ----------
    values : int
        Stored values that one pass reads, times the outputs computed from each.
    widest : int
        Threads that are available.

    Examples
    --------
    >>> width_by_work(200_000, 16)
    (3, 'a pass reads 200,000 values, 65,536 or more for each thread')
    """
    width = min(widest, max(1, values // VALUES_A_THREAD))
    if widest == 1:
        return width, "there is one processor core"
    if width == widest:
        return width, f"a pass reads {values:,} values, enough for all {widest} threads"
    if width == 1:
        return width, f"a pass reads {values:,} values, too few for several threads"
    return width, f"a pass reads {values:,} values, {VALUES_A_THREAD:,} or more for each thread"
