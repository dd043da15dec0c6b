"""Functions that a loop function defines before its loops: they are inlined, and read the names around them.

    def lorenz(state, sigma, dt):
        def slope(x, y):
            return sigma * (y - x)          sigma is the parameter of the loop function

        for k in range(len(state)):
            state[k, 0] += dt * slope(state[k, 0], state[k, 1])

Python makes such a function anew in every call. Here it is made once, without values for the names of the loop
function: inlining leaves those as they are, and they mean the same there.
"""

from __future__ import annotations

import ast
import types
from collections import ChainMap
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from stretto.loops.front.names import NameScope, stored
from stretto.loops.front.source_text import parameters


def with_nested(names: NameScope, fn: Callable[..., Any]) -> NameScope:
    """The names of a loop function, with the functions that it defines."""
    outer = cast(types.FunctionType, fn)
    nodes = {node.name: node for node in names.text.node.body if isinstance(node, ast.FunctionDef)}
    if not nodes:
        return names
    for node in nodes.values():
        if node.decorator_list:
            raise names.refuse(node, f"{node.name} has a decorator", "define it outside the loop function")
        if any(not isinstance(one, ast.Constant) for one in (*node.args.defaults, *node.args.kw_defaults)):
            raise names.refuse(node, f"a default of {node.name} is not a number", "write the number, or pass it")
    cells = dict(zip(outer.__code__.co_freevars, outer.__closure__ or (), strict=True))
    made: dict[str, types.FunctionType] = {}
    for code in outer.__code__.co_consts:
        if not isinstance(code, types.CodeType) or code.co_name not in nodes:
            continue
        for name in code.co_freevars:
            cells.setdefault(name, types.CellType())
        arguments = nodes[code.co_name].args
        defaults = tuple(one.value for one in arguments.defaults if isinstance(one, ast.Constant))
        closure = tuple(cells[name] for name in code.co_freevars)
        made[code.co_name] = types.FunctionType(code, outer.__globals__, code.co_name, defaults, closure)
    for name, function in made.items():
        if name in cells:
            cells[name].cell_contents = function  # they may call each other
    others = ast.Module([one for one in names.text.node.body if not isinstance(one, ast.FunctionDef)], [])
    own = frozenset((*parameters(names.text.node), *stored(others)))
    return replace(names, outside=ChainMap(cast(Any, made), cast(Any, names.outside)), own=own)
