"""What a name means: something of the function's own, a value of the enclosing scopes, or nothing known yet.

Python decides by the text which names are a function's own: its parameters and everything it assigns. The rest is
looked up in the closure, the module, the builtins. Functions and modules are resolved here, by identity, however they
were spelled; data keep their name, because a captured array or number may be another at the next call.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, replace

from stretto.errors import LoopError
from stretto.loops.front.refusals import not_compiled, refuse_node
from stretto.loops.front.source_text import Text, parameters

UNKNOWN = object()  # nothing is known by that name, or what is known depends on the call


@dataclass(frozen=True, slots=True)
class Names:
    """Where a statement stands.

    own: parameters and names the function assigns. outside: what the enclosing scopes hold.
    indices: loop indices that may not be assigned here. inner: whether a `break` has an inner loop to leave.
    """

    text: Text
    own: frozenset[str]
    outside: Mapping[str, object]
    indices: frozenset[str] = frozenset()
    inner: bool = False

    def within(self, indices: frozenset[str], inner: bool) -> Names:
        """The same in a loop's body."""
        return replace(self, indices=self.indices | indices, inner=inner)

    def refuse(self, node: ast.expr | ast.stmt, problem: str, remedy: str = "") -> LoopError:
        return refuse_node(self.text, node, problem, remedy)

    def not_compiled(self, node: ast.expr | ast.stmt) -> LoopError:
        return not_compiled(self.text, node)

    def value(self, node: ast.expr) -> object:
        """What a name or a dotted path through modules stands for outside the function; UNKNOWN for all else."""
        if isinstance(node, ast.Name):
            return UNKNOWN if node.id in self.own else self.outside.get(node.id, UNKNOWN)
        if isinstance(node, ast.Attribute):
            module = self.value(node.value)
            if isinstance(module, types.ModuleType):
                try:
                    return getattr(module, node.attr)
                except AttributeError:
                    remedy = "check the spelling, and that the module is imported"
                    raise self.refuse(node, f"{module.__name__} has no {node.attr!r}", remedy) from None
        return UNKNOWN


def names_of(fn: types.FunctionType, text: Text) -> Names:
    """What names mean where the body of a function begins."""
    closure: dict[str, object] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # a variable of the enclosing function that has no value yet
            closure[name] = UNKNOWN
    own = frozenset((*parameters(text.node), *stored(text.node)))
    return Names(text, own, ChainMap(closure, fn.__globals__, vars(builtins)))


def stored(node: ast.AST) -> dict[str, None]:
    """Every name that is assigned somewhere inside, by whatever statement, once each and in order."""
    return {n.id: None for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def is_function(value: object) -> bool:
    """Whether a captured value is something to call, rather than data."""
    return callable(value) and (hasattr(value, "__name__") or hasattr(value, "__stretto_function__"))
