"""Assign addresses to items in order, each the lowest that is free during its lifetime.

The compiled loop of `memory.addresses.placement`.
"""

from __future__ import annotations

from stretto.kernels.core.compile import inner, kernel


@inner
def _sort(low, high, count):
    """Sort pairs by their first number, in place (Shell sort: no memory, and at most a few hundred pairs)."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap:
        for i in range(gap, count):
            a, b = low[i], high[i]
            j = i
            while j >= gap and low[j - gap] > a:
                low[j], high[j] = low[j - gap], high[j - gap]
                j -= gap
            low[j], high[j] = a, b
        gap //= 3


@kernel
def packed(order, bounds, since, until, bottom, top, placed, low, high, base):
    """Place items in an order; return the bytes that they need.

    Parameters
    ----------
    order : array [items]
    bounds : array [items + 1]
        The rectangles of each item.
    since, until, bottom, top : array [rectangles]
        Lifetime, and the bytes that a rectangle takes, relative to its item.
    placed : array [4, rectangles], low, high : array
        Working memory; `low` and `high` have an entry for each pair of rectangles that overlap in time.
    base : array [items]
        Result: the addresses.
    """
    count, most = 0, 0
    for k in range(order.shape[0]):
        item = order[k]
        meets = 0
        for r in range(bounds[item], bounds[item + 1]):
            for j in range(count):
                if placed[0, j] < until[r] and placed[1, j] > since[r] and placed[3, j] > bottom[r]:
                    low[meets], high[meets] = placed[2, j] - top[r], placed[3, j] - bottom[r]
                    meets += 1
        _sort(low, high, meets)
        address = 0
        for j in range(meets):
            if address <= low[j]:
                break
            address = max(address, high[j])
        base[item] = address
        for r in range(bounds[item], bounds[item + 1]):
            placed[0, count], placed[1, count] = since[r], until[r]
            placed[2, count], placed[3, count] = address + bottom[r], address + top[r]
            count += 1
            most = max(most, address + top[r])
    return most
