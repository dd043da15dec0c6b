"""Detection of row swaps by tuple assignment, which NumPy computes wrongly because rows are views.

    W[0], W[1] = W[1], W[0]

gives two copies of one row, because the right-hand side holds views and the second is read after the first store.
Numbers are not affected, so the check depends on the number of axes of the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from stretto.errors import LoopError
from stretto.loops.front import loop_tree
from stretto.loops.front.refusals import SourceLines, refuse


def views_swapped(
    assign: loop_tree.Assign, ndim: Callable[[str], int], root: Callable[[str], str] = lambda name: name
) -> bool:
    """Whether a tuple assignment overwrites a row that is bare, and so a view, on its right-hand side.

    ndim: the number of axes of the array of that name, 0 for a number. root: the array behind an alias of a part of it
    (after `w = W[i]`, "W" for "w"); any other name is its own root. A store to the view's own position is harmless, and
    so is a later store, unless a name keeps the view. Rows whose subscripts are different numbers do not overlap; other
    subscripts may.
    """
    for k, value in enumerate(assign.values):
        kept = isinstance(assign.targets[k], loop_tree.Name)
        for view in _views(value, ndim):
            for t, target in enumerate(assign.targets):
                if isinstance(target, loop_tree.Item) and (t < k or (kept and t > k)) and _overlap(target, view, root):
                    return True
    return False


def refuse_swap(text: SourceLines, assign: loop_tree.Assign) -> LoopError:
    """The error for a row swap."""
    problem = "rows are swapped as views, of which NumPy makes two copies of one row"
    return refuse(text, assign.line, problem, "write .copy() after each bare row on the right: W[0].copy()")


def _views(value: loop_tree.Expr, ndim: Callable[[str], int]) -> Iterator[loop_tree.Item | loop_tree.Name]:
    """The arrays that an expression may return without copying."""
    match value:
        case loop_tree.Item() if any(isinstance(at, loop_tree.Span) for at in value.index) or len(value.index) < ndim(
            value.base
        ):
            yield value
        case loop_tree.Name() if ndim(value.name) > 0:
            yield value
        case loop_tree.IfExp():
            yield from _views(value.yes, ndim)
            yield from _views(value.no, ndim)


def _overlap(target: loop_tree.Item, view: loop_tree.Item | loop_tree.Name, root: Callable[[str], str]) -> bool:
    name = view.base if isinstance(view, loop_tree.Item) else view.name
    if root(target.base) != root(name):
        return False
    if target.base != name or isinstance(view, loop_tree.Name):  # the part that an alias stands for is not compared
        return True
    pairs = zip(target.index, view.index, strict=False)
    apart = any(
        isinstance(a, loop_tree.Number) and isinstance(b, loop_tree.Number) and a.value != b.value for a, b in pairs
    )
    return not apart and (not target.field or not view.field or target.field == view.field)
