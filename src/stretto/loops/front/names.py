"""Name resolution in a function: local names, values of enclosing scopes, and unknown names.

As in Python, the parameters of a function and all names it assigns are local. Other names are looked up in the closure,
the module and the builtins. Functions and modules are resolved to objects during parsing. Data keep their names,
because a captured array or number may be another object at the next call.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import types
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from stretto.errors import LoopError
from stretto.loops.front.refusals import not_compiled, refuse_node
from stretto.loops.front.source_text import FunctionSource, parameters

UNKNOWN = object()  # the value of a name that is not defined or depends on the call


@dataclass(eq=False)
class InlinedCalls:
    """What the inlined calls of one loop function have in common; see `inline`.

    It has the parsers, which call `inline`, because `inline` calls them.
    """

    expression: Callable[[ast.expr, NameScope], Any]  # parses an expression
    block: Callable[[list[ast.stmt], NameScope], tuple[Any, ...]]  # parses statements
    counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))  # numbers the calls
    names: set[str] = field(default_factory=set)  # their local names
    captured: dict[str, tuple[types.FunctionType, str]] = field(default_factory=dict)  # name → function, name in it
    functions: list[types.FunctionType] = field(default_factory=list)  # that are inlined


@dataclass(frozen=True, slots=True)
class NameScope:
    """The names in scope at a statement."""

    text: FunctionSource  # source of the function
    own: frozenset[str]  # local names: parameters and names that the function assigns
    outside: Mapping[str, object]  # values of the enclosing scopes
    indices: frozenset[str] = frozenset()  # loop indices, which may not be assigned
    inner: bool = False  # whether the statement is in an inner loop, which `break` may leave
    stack: tuple[types.FunctionType, ...] = ()  # functions that are being inlined, the innermost last
    calls: InlinedCalls | None = None  # inlined calls of the loop function

    def within(self, indices: frozenset[str], inner: bool) -> NameScope:
        """The names in the body of a loop."""
        return replace(self, indices=self.indices | indices, inner=inner)

    def invented(self, what: str) -> str:
        """A name that the function does not have, for a local variable."""
        assert self.calls is not None
        name = f"loop.{next(self.calls.counter)}.{what}"
        self.calls.names.add(name)
        return name

    def refuse(self, node: ast.expr | ast.stmt, problem: str, remedy: str = "") -> LoopError:
        return refuse_node(self.text, node, problem, remedy)

    def not_compiled(self, node: ast.expr | ast.stmt) -> LoopError:
        return not_compiled(self.text, node)

    def value(self, node: ast.expr) -> object:
        """The value of a name, or of a dotted path through modules, outside the function; else UNKNOWN."""
        if isinstance(node, ast.Constant):
            given: object = node.value
            return given if callable(given) else UNKNOWN  # a function in a rewritten statement
        if isinstance(node, ast.Name):
            return UNKNOWN if node.id in self.own or "." in node.id else self.outside.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            module = self.value(node.value)
            if isinstance(module, types.ModuleType):
                try:
                    return getattr(module, node.attr)
                except AttributeError:
                    remedy = "check the spelling, and that the module is imported"
                    raise self.refuse(node, f"{module.__name__} has no {node.attr!r}", remedy) from None
        return UNKNOWN


def names_of(fn: types.FunctionType, text: FunctionSource) -> NameScope:
    """The names in scope at the start of the body of a function."""
    closure: dict[str, object] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # a variable of the enclosing function that has no value yet
            closure[name] = UNKNOWN
    own = frozenset((*parameters(text.node), *stored(text.node)))
    return NameScope(text, own, ChainMap(closure, fn.__globals__, vars(builtins)))


def stored(node: ast.AST) -> dict[str, None]:
    """Every name that is assigned inside a node, without duplicates and in order."""
    return {n.id: None for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def is_function(value: object) -> bool:
    """Whether a captured value is callable, rather than data."""
    return callable(value) and (hasattr(value, "__name__") or hasattr(value, "__stretto_function__"))
