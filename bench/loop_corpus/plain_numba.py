"""The body of a loop as plain Numba takes it: loops over records become loops over their arrays, nothing else changes.

`plain(function, arguments)` returns an undecorated function over `flat(arguments)`; the caller compiles it.
Accumulators become elements of arrays, keyed random numbers call the compiled generator, functions of the author's are
compiled.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import textwrap
import types
from collections.abc import Callable
from typing import Any

import numba

from stretto.data.records.record_sets import RecordsBase
from stretto.data.records.records import Column
from stretto.kernels.numeric.keyed import NORMAL, UNIFORM, absorb, gauss, unit
from stretto.state.accumulator import Accumulator


@numba.njit  # type: ignore[untyped-decorator]
def uniform2(a: int, b: int) -> Any:
    return unit(absorb(absorb(UNIFORM, a), b))


@numba.njit  # type: ignore[untyped-decorator]
def uniform3(a: int, b: int, c: int) -> Any:
    return unit(absorb(absorb(absorb(UNIFORM, a), b), c))


@numba.njit  # type: ignore[untyped-decorator]
def normal3(a: int, b: int, c: int) -> Any:
    return gauss(absorb(absorb(absorb(NORMAL, a), b), c))


_KEYED = {"uniform2": uniform2, "uniform3": uniform3, "normal3": normal3}


class _Rewriter(ast.NodeTransformer):
    """Replaces what Numba does not know."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.records = {name: v.records() for name, v in arguments.items() if isinstance(v, RecordsBase)}
        self.folded = {name: v for name, v in arguments.items() if isinstance(v, Accumulator) and not v.shape}
        self.entries: dict[str, tuple[str, int, ast.expr]] = {}  # a ragged field → prefix, parts, the record
        self.steps = 0

    def visit_For(self, node: ast.For) -> Any:
        if isinstance(node.iter, ast.Name) and node.iter.id in self.records:
            head = self.header(node, node.iter.id)
        elif isinstance(node.iter, ast.Name) and node.iter.id in self.entries:
            prefix, parts, at = self.entries[node.iter.id]
            head = self.entry_header(node, prefix, parts, at)
        else:
            return self.generic_visit(node)
        made = self.generic_visit(node)
        made.body = [*head, *made.body]  # type: ignore[attr-defined]
        return made

    def header(self, node: ast.For, name: str) -> list[ast.stmt]:
        """Over the numbers of the records; returns the lines that load one."""
        self.steps += 1
        at = ast.Name(f"_t{self.steps}", ast.Load())
        records = self.records[name]
        assert isinstance(node.target, ast.Tuple)
        index, value = node.target.elts
        lines: list[ast.stmt] = []
        columns = value.elts if isinstance(value, ast.Tuple) else [value]
        for k, (column, target) in enumerate(zip(records.columns, columns, strict=True)):
            assert isinstance(target, ast.Name)
            if isinstance(column, Column):
                lines.append(_assign(target.id, f"{name}_{k}[{at.id}]"))
            else:
                self.entries[target.id] = (f"{name}_{k}", len(column.parts), at)
        if records.kind == "sparse":
            indices = index.elts if isinstance(index, ast.Tuple) else [index]
            lines += [_assign(ast.unparse(i), f"{name}_i{k}[{at.id}]") for k, i in enumerate(indices)]
            size = f"len({name}_i0)"
        elif isinstance(index, ast.Tuple):
            lines += [_assign(ast.unparse(index), f"({at.id} // {records.shape[1]}, {at.id} % {records.shape[1]})")]
            size = str(len(records))
        else:
            lines.append(_assign(ast.unparse(index), at.id))
            size = str(len(records))
        node.target, node.iter = ast.Name(at.id, ast.Store()), _expression(f"range({size})")
        return lines

    def entry_header(self, node: ast.For, prefix: str, parts: int, at: ast.expr) -> list[ast.stmt]:
        self.steps += 1
        step, record = f"_t{self.steps}", ast.unparse(at)
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        node.target = ast.Name(step, ast.Store())
        node.iter = _expression(f"range({prefix}_ptr[{record}], {prefix}_ptr[{record} + 1])")
        return [_assign(ast.unparse(t), f"{prefix}_p{k}[{step}]") for k, t in zip(range(parts), targets, strict=True)]

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name) and node.target.id in self.folded:
            name, op = node.target.id, self.folded[node.target.id].op.__name__
            if op in ("maximum", "minimum"):
                return _statement(f"{name}[0] = {op[:3]}({name}[0], {ast.unparse(node.value)})")
            node.target = _expression(f"{name}[0]")  # type: ignore[assignment]
            node.target.ctx = ast.Store()
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        if (name := ast.unparse(node.func)) in ("st.uniform", "st.normal"):
            node.func = ast.Name(f"{name[3:]}{len(node.args)}", ast.Load())
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.decorator_list = []
        self.generic_visit(node)
        names = []
        for argument in node.args.args:
            names += self.flat_names(argument.arg)
        node.args.args = [ast.arg(name) for name in names]
        return node

    def flat_names(self, name: str) -> list[str]:
        if name not in self.records:
            return [name]
        records = self.records[name]
        names = [f"{name}_i{k}" for k in range(len(records.index))]
        for k, column in enumerate(records.columns):
            if isinstance(column, Column):
                names.append(f"{name}_{k}")
            else:
                names += [f"{name}_{k}_ptr", *(f"{name}_{k}_p{part}" for part in range(len(column.parts)))]
        return names


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _statement(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _assign(target: str, value: str) -> ast.stmt:
    return _statement(f"{target} = {value}")


def plain(function: Callable[..., Any], arguments: dict[str, Any]) -> Callable[..., Any]:
    """The function over arrays and numbers, not yet compiled.

    Parameters
    ----------
    function : callable
        A loop, undecorated.
    arguments : dict
        Its arguments by name, in order; their values decide what is a record.
    """
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    tree = ast.fix_missing_locations(_Rewriter(arguments).visit(tree))
    source = ast.unparse(tree)
    file = f"<plain {function.__module__}.{function.__name__}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    around: dict[str, Any] = {}
    for name, value in function.__globals__.items():
        mine = isinstance(value, types.FunctionType) and value.__module__ == function.__module__
        around[name] = numba.njit(value) if mine else value
    around |= _KEYED
    exec(compile(source, file, "exec"), around)
    made: Callable[..., Any] = around[function.__name__]
    return made
