"""Read the source of a function and parse it with Python's `ast`, with the line numbers of the user's file.

Files, notebooks and IPython keep the source of what they run (in `linecache`); a plain interactive prompt does not.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import tokenize
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stretto.errors import LoopError
from stretto.loops.front.tuple_names import without_tuples


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """The source of a function."""

    file: str  # that defines it
    line: int  # of its def in the file
    lines: tuple[str, ...]  # lines[0] is line `line` of the file
    node: ast.FunctionDef  # its syntax tree, with line numbers of the file


def read(fn: Callable[..., Any]) -> FunctionSource:
    """Read the source of a Python function; raise LoopError with the reason if it is not available."""
    if not isinstance(fn, types.FunctionType):
        what = getattr(fn, "__name__", None) or type(fn).__name__
        remedy = "decorate a plain Python function, and leave out numba.njit: the loop is compiled anyway"
        raise LoopError("", None, f"{what} is not a Python function but a {type(fn).__name__}", remedy)
    name, file, first = fn.__name__, fn.__code__.co_filename, fn.__code__.co_firstlineno
    if hasattr(fn, "__wrapped__"):
        remedy = "put the decorator of the loop next to the def, below the others"
        raise LoopError(file, first, f"{name} is wrapped by another decorator, which hides its source", remedy)
    if fn.__code__.co_name == "<lambda>":
        raise LoopError(file, first, "a lambda cannot be compiled", "write it as a function with def and a for loop")
    linecache.checkcache(file)
    lines = linecache.getlines(file, fn.__globals__)
    if not lines:
        remedy = "put the function in a file and import it, or use IPython or Jupyter, which keep what is typed"
        raise LoopError(file, first, f"the source of {name} is not kept here, so it cannot be read", remedy)
    node = _definition(lines[first - 1 :], first)
    if isinstance(node, ast.AsyncFunctionDef):
        raise LoopError(file, node.lineno, "an async function cannot be compiled", "write a plain def")
    if node is None or not _same(node, fn.__code__):
        problem = f"the source of {name} has changed since Python read it: line {first} is no longer where it begins"
        raise LoopError(file, first, problem, "restart Python, or import the file again")
    end = node.end_lineno or node.lineno
    return FunctionSource(file, node.lineno, tuple(line.rstrip("\n") for line in lines[node.lineno - 1 : end]),
                          without_tuples(node))  # fmt: skip


def _definition(lines: list[str], first: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The function that begins on the first of these lines (at its decorators), which is line `first` of the file."""
    try:
        block = "".join(inspect.getblock(lines))
        # A method or nested function is indented. Putting an `if` above it, instead of removing the indent, keeps
        # the columns and does not change multi-line strings.
        above = 1 if block[:1].isspace() else 0
        tree = ast.parse("if True:\n" * above + block)
    except (SyntaxError, tokenize.TokenError, IndexError):
        return None
    ast.increment_lineno(tree, first - 1 - above)
    body = tree.body[0].body if above and isinstance(tree.body[0], ast.If) else tree.body
    node = body[0] if body else None
    return node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else None


def _same(node: ast.FunctionDef, code: types.CodeType) -> bool:
    """Whether this definition may be the one that was compiled: name and parameters agree."""
    count = code.co_argcount + code.co_kwonlyargcount
    return node.name == code.co_name and parameters(node) == code.co_varnames[:count]


def parameters(node: ast.FunctionDef) -> tuple[str, ...]:
    """Names of the parameters, keyword-only ones last."""
    return tuple(arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs))
