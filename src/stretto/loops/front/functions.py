"""Functions that a loop body may call (math, NumPy, builtins, `st.uniform`), and hints for those that it may not.

Functions are recognised by identity: `math.exp`, `np.exp` and `from math import exp` become one function. If two of
them differ in their result, the tree contains the difference. The functions of `math` convert their argument to a
Python float, so `math.exp(x)` of a float32 is computed and kept in double precision while `np.exp(x)` stays float32;
`math.floor` returns an int, `np.floor` a float.
"""

from __future__ import annotations

import builtins
import itertools
import math
import types
from dataclasses import dataclass
from functools import cache

import numpy as np

from stretto.loops.front import loop_tree
from stretto.text import plural

MANY = 1 << 16


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """A function that a body may call.

    The conversion after a NumPy function is 'numpy': its result for a Python number is a NumPy number, which takes part
    in type promotion.
    """

    name: str  # one of loop_tree.FUNCTIONS; or '@', '**', 'square', 'empty', 'zeros', 'len', 'range', 'product'
    least: int = 1  # the fewest arguments
    most: int = 1  # the most arguments
    before: str = ""  # conversion of the arguments, or ''
    after: str = ""  # conversion of the result, or ''

    def arity(self) -> str:
        """The number of arguments, in words.

        >>> KnownFunction("where", 3, 3).arity(), KnownFunction("range", 1, 3).arity()
        ('3 arguments', '1 to 3 arguments')
        >>> KnownFunction("max", 1, MANY).arity()
        'at least 1 argument'
        """
        if self.most == MANY:
            return f"at least {self.least} {plural('argument', self.least)}"
        count = str(self.most) if self.least == self.most else f"{self.least} to {self.most}"
        return f"{count} {plural('argument', self.most)}"

    def call(self, line: int, args: tuple[loop_tree.Expr, ...]) -> loop_tree.Expr:
        """The call as a tree, for '@', '**', 'square' and for the functions in loop_tree.FUNCTIONS."""
        if self.name == "@":
            return loop_tree.Binary(line, "@", args[0], args[1])
        if self.name == "square":
            return loop_tree.Binary(line, "*", args[0], args[0])
        if self.before:
            args = tuple(arg if _is_float(arg) else loop_tree.Call(line, self.before, (arg,)) for arg in args)
        if self.name == "**":
            return loop_tree.Binary(line, "**", args[0], args[1])
        result = loop_tree.Call(line, self.name, args)
        return loop_tree.Call(line, self.after, (result,)) if self.after else result


def known(value: object) -> KnownFunction | None:
    """The entry of a function object; None for an unknown object."""
    found = _table().get(id(value))
    if found is not None:
        return found
    name = getattr(value, "__stretto_function__", None)
    if name == "product":
        return KnownFunction("product", 1, MANY)
    return KnownFunction(name, 1, MANY) if isinstance(name, str) and name in loop_tree.FUNCTIONS else None


def is_plain(value: object) -> bool:
    """Whether it is a Python function that its author could decorate, rather than one of NumPy's."""
    return isinstance(value, types.FunctionType) and _package(value) != "numpy"


def remedy(value: object) -> str:
    """What to write instead of a function that a body cannot call."""
    if id(value) in _hints():
        return _hints()[id(value)]
    if _package(value) == "random" or str(getattr(value, "__module__", "")).startswith("numpy.random"):
        return RANDOM
    return "write it with arithmetic, in a function of your own if it is long"


def has_hint(value: object) -> bool:
    """Whether there is advice on what to write instead of a function."""
    return id(value) in _hints()


def dtype_name(value: object) -> str | None:
    """NumPy's short name of a type that a local array may have; None for anything else.

    >>> dtype_name(float), dtype_name(np.int32), dtype_name("f4"), dtype_name(complex)
    ('f8', 'i4', 'f4', None)
    """
    try:
        dtype = np.dtype(value) if isinstance(value, str | type | np.dtype) else None
    except TypeError:
        return None
    return dtype.str[1:] if dtype is not None and dtype.kind in "biuf" and dtype.isnative else None


def _package(value: object) -> str:
    """The package that defines a function; for bound methods, such as those of `random`, that of their owner."""
    owner = getattr(value, "__self__", None)
    module = getattr(value, "__module__", None) or type(owner).__module__
    return str(module).partition(".")[0]


RANDOM = "write st.uniform(t, i, j), st.integers or st.normal, with keys that say which number is meant"

# Methods of a row or array, and the function each stands for.
_SINGLE = ("copy", "mean", "var", "std", "argmax", "argmin")
METHODS = {name: KnownFunction(name) for name in _SINGLE} | {"dot": KnownFunction("@", 2, 2)}
METHODS |= {name: KnownFunction(f"{name}_all") for name in ("sum", "max", "min")}

ALONG = ("sum_all", "mean", "max_all", "min_all")  # take axis=
_ROW = "work on one row at a time, np.{0}(W[i]), or along an axis of a matrix, np.{0}(A, axis=0)"

# How to call a function that was called with unsupported arguments.
USAGE = dict.fromkeys(loop_tree.FUNCTIONS, "pass just that") | {
    "sum": _ROW.format("sum"),
    "max": _ROW.format("max"),
    "min": _ROW.format("min"),
    "mean": _ROW.format("mean"),
    "sum_all": _ROW.format("sum"),
    "max_all": _ROW.format("max"),
    "min_all": _ROW.format("min"),
    "copy": "write w.copy()",
    "array": "write np.array([a, b, c]) or np.array([[a, b], [c, d]]), with a dtype if need be",
    "log": "write math.log(x) / math.log(2)",
    "where": "write np.where(test, a, b)",
    "clip": "write np.clip(x, low, high)",
    "**": "write x ** y",
    "square": "write x * x",
    "@": "write v @ w",
    "outer": "write np.outer(u, v)",
    "ones": "write np.ones(n, np.float32)",
    "full": "write np.full(n, value, np.float32)",
    "eye": "write np.eye(n)",
    "empty": "write np.empty(n, np.float32)",
    "zeros": "write np.zeros(n, np.float32)",
    "len": "write len(w)",
    "range": "write range(n), range(start, stop) or range(start, stop, step)",
    "product": "write product(range(m), range(n))",
}

# Attributes and methods of NumPy arrays that a body does not support, and what to write instead.
ATTRIBUTES = {
    "shape": "write A.shape[0], or unpack the shape in a line above the loop",
    "size": "write len(w), or multiply the entries of A.shape",
    "ndim": "write the number",
    "dtype": "write the type, such as np.float32",
    "fill": "write w[:] = value",
    "astype": "write np.float32(w), np.float64(w), np.int32(w) or np.int64(w)",
    "item": "drop it: an element is a number already",
    "append": "store the value in an array",
} | dict.fromkeys(("random", "uniform", "integers", "normal", "standard_normal", "choice", "randint", "rand"), RANDOM)


def _is_float(node: loop_tree.Expr) -> bool:
    return isinstance(node, loop_tree.Number) and isinstance(node.value, float)


@cache
def _table() -> dict[int, KnownFunction]:
    """The supported functions by id; all of them exist as long as the process."""
    rows: list[tuple[object, KnownFunction]] = []
    for name in ("exp", "log", "sqrt", "expm1", "log1p", "tanh", "sin", "cos"):
        rows += [
            (getattr(np, name), KnownFunction(name, after="numpy")),
            (getattr(math, name), KnownFunction(name, before="float")),
        ]
    rows += [(getattr(math, name), KnownFunction(name, before="float")) for name in ("erf", "lgamma", "isnan")]
    rows += [
        (np.isnan, KnownFunction("isnan", after="numpy")),
        (np.sign, KnownFunction("sign", after="numpy")),
        (np.clip, KnownFunction("clip", 3, 3, after="numpy")),
    ]
    rows += [(function, KnownFunction("**", 2, 2)) for function in (pow, np.power)]
    rows += [(math.pow, KnownFunction("**", 2, 2, before="float")), (np.square, KnownFunction("square"))]
    rows += [
        (abs, KnownFunction("abs")),
        (np.abs, KnownFunction("abs", after="numpy")),
        (math.fabs, KnownFunction("abs", before="float")),
    ]
    for name in ("floor", "ceil"):
        rows += [
            (getattr(np, name), KnownFunction(name, after="numpy")),
            (getattr(math, name), KnownFunction(name, after="int")),
        ]
    for name in ("max", "min"):
        rows += [(getattr(builtins, name), KnownFunction(name, 1, MANY))]
        rows += [(getattr(np, f"{name}imum"), KnownFunction(f"{name}imum", 2, 2, after="numpy"))]
        rows += [(getattr(np, prefix + name), KnownFunction(f"{name}_all")) for prefix in ("", "a")]
    rows += [
        (sum, KnownFunction("sum")),
        (np.sum, KnownFunction("sum_all")),
        (np.where, KnownFunction("where", 3, 3, after="numpy")),
    ]
    rows += [(function, KnownFunction("@", 2, 2)) for function in (np.dot, np.inner, np.matmul)]
    rows += [(getattr(np, name), KnownFunction(name)) for name in ("mean", "var", "std", "argmax", "argmin")]
    rows += [(np.outer, KnownFunction("outer", 2, 2))]
    rows += [(getattr(np, name), KnownFunction(name)) for name in ("float32", "float64", "int32", "int64")]
    rows += [
        (np.bool_, KnownFunction("bool")),
        (bool, KnownFunction("bool")),
        (float, KnownFunction("float")),
        (int, KnownFunction("int")),
    ]
    rows += [
        (np.empty, KnownFunction("empty", 1, 2)),
        (np.zeros, KnownFunction("zeros", 1, 2)),
        (np.ones, KnownFunction("ones", 1, 2)),
        (np.full, KnownFunction("full", 2, 3)),
        (np.eye, KnownFunction("eye", 1, 2)),
        (np.array, KnownFunction("array", 1, 2)),
        (len, KnownFunction("len")),
    ]
    rows += [(range, KnownFunction("range", 1, 3)), (itertools.product, KnownFunction("product", 1, MANY))]
    return {id(function): meaning for function, meaning in rows}


@cache
def _hints() -> dict[int, str]:
    row = "write a for loop over range(len(w))"
    pairs: list[tuple[object, str]] = [
        (print, "print after the loop; collect what you want to see in an array"),
        (enumerate, "write for k, x in enumerate(w) of one row, or for k in range(len(w)) and read w[k]"),
        (zip, "write for x, y in zip(v, w) of rows, or for k in range(len(w)) and read both arrays at k"),
        (reversed, "write range(n - 1, -1, -1)"),
        (sorted, "write np.sort(w) of a row"),
        (round, "write math.floor(x + 0.5), which rounds halves up"),
        (divmod, "write x // y and x % y"),
        (any, row),
        (all, row),
        (np.cumsum, row),
        (np.searchsorted, row),
        (np.prod, row),
        (complex, "keep real and imaginary parts apart"),
        (math.log2, "write math.log(x) / math.log(2)"),
        (math.log10, "write math.log(x) / math.log(10)"),
        (np.zeros_like, "write np.zeros(len(w), np.float32), with the type you want"),
        (np.empty_like, "write np.empty(len(w), np.float32), with the type you want"),
        (np.arange, "write w = np.empty(n), then w[k] = k in a for loop; to count, write range(n)"),
        (complex, "keep real and imaginary parts apart, as two numbers"),
        (
            np.linalg.inv,
            "write np.linalg.solve(A, b), or the elimination in a plain function of your own: loops inline it",
        ),
        (np.ndindex, "write itertools.product(range(m), range(n)), or one for inside the other"),
        (np.copy, "write w.copy()"),
    ]
    return {id(function): hint for function, hint in pairs}
