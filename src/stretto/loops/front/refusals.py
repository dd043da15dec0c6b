"""Errors for unsupported code in a loop, with file, line, source and what to write instead.

epochs.py:14: a list comprehension cannot be compiled: [x for x in y]; write a for loop over range(...)
    e = [x for x in y]
        ^^^^^^^^^^^^^^
"""

from __future__ import annotations

import ast
import re
from typing import Protocol

from stretto.errors import LoopError, PlanError


class InlinedLine(int):
    """A line of the user's loop that calls an inlined function, with the line of that function."""

    text: SourceLines  # source of the inlined function
    inner: int  # line in its file

    def __new__(cls, line: int, text: SourceLines, inner: int) -> InlinedLine:
        made = super().__new__(cls, line)
        made.text, made.inner = text, inner
        return made

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        return int, (int(self),)


class NotInspected(LoopError):
    """The data show too little to run together, or which elements a loop touches is not known before it starts.

    The remedy has a way out for each line.
    """

    @property
    def ways(self) -> tuple[str, ...]:
        """Ways out, besides a serial run."""
        return tuple(self.remedy.split("; or ")) if self.remedy else ()


class SourceLines(Protocol):
    """An object with the lines of a function: `source_text.FunctionSource` or `loop_tree.Function`."""

    @property
    def file(self) -> str: ...
    @property
    def line(self) -> int: ...
    @property
    def lines(self) -> tuple[str, ...]: ...


def refuse(
    text: SourceLines, line: int, problem: str, remedy: str = "", columns: tuple[int, int] | None = None
) -> LoopError:
    """Create the error for `line` of the file.

    columns: first character to mark and the one after the last; None marks the whole line.
    """
    if isinstance(line, InlinedLine):
        text, line = line.text, line.inner
    row = line - text.line
    if not 0 <= row < len(text.lines):
        return LoopError(text.file, line, problem, remedy)
    source = text.lines[row].rstrip()
    indent = len(source) - len(source.lstrip())
    start, stop = columns or (indent, len(source))
    carets = "^" * max(1, min(stop, len(source)) - start)
    return LoopError(text.file, line, problem, remedy, f"    {source[indent:]}\n    {' ' * (start - indent)}{carets}")


def placed(text: SourceLines, problem: PlanError) -> PlanError:
    """Add the file to an error that begins with `line 12: …`, from a stage that does not know the file."""
    found = re.match(r"line (\d+): (.*)", str(problem), re.DOTALL)
    return refuse(text, int(found[1]), found[2]) if found else problem


def refuse_node(text: SourceLines, node: ast.expr | ast.stmt, problem: str, remedy: str = "") -> LoopError:
    """Create the error for a node of Python's syntax tree; its line numbers are those of the file."""
    at = node.lineno.inner if isinstance(node.lineno, InlinedLine) else node.lineno
    row, stop = at - text.line, node.end_col_offset
    if not 0 <= row < len(text.lines):
        return refuse(text, node.lineno, problem, remedy)
    line = text.lines[row]
    ends_here = node.end_lineno == at and stop is not None
    columns = (_characters(line, node.col_offset), _characters(line, stop or 0) if ends_here else len(line.rstrip()))
    return refuse(text, node.lineno, problem, remedy, columns)


def not_compiled(text: SourceLines, node: ast.expr | ast.stmt) -> LoopError:
    """The error for a kind of statement or expression that loops do not support."""
    what, remedy = CONSTRUCTS.get(type(node), (f"{type(node).__name__}", "write it with arithmetic, if, while and for"))
    said = f": {shorten(node)}" if isinstance(node, ast.expr) else ""
    return refuse_node(text, node, f"{what} cannot be compiled{said}", remedy)


def shorten(node: ast.AST, width: int = 60) -> str:
    """The source of a node on one line, at most `width` characters."""
    source = " ".join(ast.unparse(node).split())
    return source if len(source) <= width else f"{source[: width - 1]}…"


def _characters(line: str, offset: int) -> int:
    """Convert a column from UTF-8 bytes, as Python counts, to characters."""
    return len(line.encode()[:offset].decode(errors="ignore"))


_LOOP = "write a for loop over range(...)"
_SUM = "write s = sum(… for k, x in entries) on a line of its own, or a for loop"
_NAMES = "give each value a name of its own, or use a small array: np.zeros(n)"
_OUTSIDE = "do it in the caller, before or after the loop"
_FUNCTION = "write a function with def outside the loop function, and call it"

CONSTRUCTS: dict[type[ast.AST], tuple[str, str]] = {
    ast.ListComp: ("a list comprehension", _LOOP),
    ast.SetComp: ("a set comprehension", _LOOP),
    ast.DictComp: ("a dict comprehension", _LOOP),
    ast.GeneratorExp: ("a generator expression", _SUM),
    ast.Lambda: ("a lambda", _FUNCTION),
    ast.NamedExpr: ("an assignment inside an expression", "assign on a line of its own"),
    ast.JoinedStr: ("an f-string", _OUTSIDE),
    ast.Dict: ("a dict", _NAMES),
    ast.List: ("a list", _NAMES),
    ast.Set: ("a set", _NAMES),
    ast.Tuple: ("a tuple used as a value", _NAMES),
    ast.Starred: ("a starred expression", "write out each value"),
    ast.Await: ("await", _OUTSIDE),
    ast.Yield: ("yield", "store the value in an array"),
    ast.YieldFrom: ("yield from", "store the values in an array"),
    ast.Try: ("a try statement", "test for the bad case with if (a division by zero gives inf or nan here)"),
    ast.TryStar: ("a try statement", "test for the bad case with if"),
    ast.Raise: ("raise", "note the case in an array and raise after the loop"),
    ast.Assert: ("an assert", "check before or after the loop"),
    ast.With: ("a with statement", _OUTSIDE),
    ast.AsyncWith: ("a with statement", _OUTSIDE),
    ast.AsyncFor: ("an async for", "write a plain for"),
    ast.FunctionDef: ("a function inside the loop", _FUNCTION),
    ast.AsyncFunctionDef: ("an async function", _FUNCTION),
    ast.ClassDef: ("a class", "define it outside: a loop works on numbers and arrays"),
    ast.Return: ("a return inside a loop", "store the value in an array, or in a variable made by st.accumulator"),
    ast.Delete: ("del", "drop the line: local variables end with the iteration"),
    ast.Import: ("an import", "import at the top of the file"),
    ast.ImportFrom: ("an import", "import at the top of the file"),
    ast.Global: ("a global statement", "pass an array or an st.accumulator as a parameter and write to that"),
    ast.Nonlocal: ("a nonlocal statement", "pass an array or an st.accumulator as a parameter and write to that"),
    ast.Match: ("a match statement", "write if and elif"),
}
