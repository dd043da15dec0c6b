"""Items placed one after another, each at the lowest address that is free for as long as it lives: the compiled loop of
`memory.addresses.placement`."""

from __future__ import annotations

from stretto.kernels.core.compile import inner, kernel


@inner
def _sort(low, high, count):
    """Sort pairs by their first number, in place (Shell's way: no memory, and they are few hundred at most)."""
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
    """Place items in an order; the bytes that they take.

    bounds [items + 1]: the rectangles of each, which live from since to until and take the bytes from bottom to top,
    relative to the item. placed [4, rectangles], low, high [rectangles²… as many as meet]: space to work in. base
    [items]: the addresses that are found.
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
