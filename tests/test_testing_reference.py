"""The reference interpreter: small typed bodies built by hand, every node among them."""

from __future__ import annotations

import math
import operator
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from stretto import keyed
from stretto.errors import RunError
from stretto.loops.types import typed_tree as t
from stretto.loops.types.body import Body, BodyArray, RaggedField
from stretto.loops.types.typed_tree import BOOL, FLOAT, INT, ScalarType
from stretto.testing.arithmetic import dot, fma32, has_kind, same_bits
from stretto.testing.reference import Interpreter

F4, F8, I4, I8, B1 = ScalarType("f4"), ScalarType("f8"), ScalarType("i4"), ScalarType("i8"), ScalarType("b1")


def whole(value: int) -> t.Const:
    return t.Const(INT, value)


def index(name: str = "i") -> t.Var:
    return t.Var(INT, name)


def at(array: str, *subscripts: t.Scalar, kind: ScalarType = F4, checked: bool = True) -> t.Element:
    return t.Element(kind, 7, array, subscripts, (checked,) * len(subscripts))


def row(
    array: str, *lead: t.Scalar, length: int = 3, start: int = 0, dtype: str = "f4", checked: bool = True
) -> t.RowLoad:
    return t.RowLoad(dtype, whole(length), 7, array, lead, whole(start), (checked,) * (len(lead) + 1))


def to_row(array: str, *lead: t.Scalar, length: int = 3, start: int = 0, dtype: str = "f4") -> t.RowPlace:
    return t.RowPlace(dtype, whole(length), 7, array, lead, whole(start), (True,) * (len(lead) + 1))


def variable(name: str, value: t.Scalar) -> t.Store:
    return t.Store(1, (t.VarPlace(value.type, name),), (value,))


def add(x: t.Scalar, y: t.Scalar) -> t.Op:
    return t.Op(x.type, "+", (x, y))


def loop(
    *steps: t.Step,
    indices: tuple[str, ...] = ("i",),
    fields: dict[str, ScalarType] | None = None,
    ragged: tuple[RaggedField, ...] = (),
    numbers: dict[str, ScalarType] | None = None,
    local: tuple[BodyArray, ...] = (),
    **arrays: NDArray[Any],
) -> Body:
    known = tuple(BodyArray(name, array.dtype.str[1:], array.shape, "state") for name, array in arrays.items())
    declared = tuple((fields or {}).items()), ragged, tuple((numbers or {}).items())
    return Body(1, indices, *declared, known + local, steps)


def value_of(node: t.Scalar, fields: dict[str, Any] | None = None, **arrays: Any) -> Any:
    """What a scalar gives in an iteration with i = 2: it is put into an array of one element."""
    out = np.zeros(1, node.type.dtype)
    put = t.Store(1, (t.ElementPlace(node.type.dtype, 1, "out", (whole(0),), (False,)),), (node,))
    kinds = {name: t.ScalarType(np.asarray(value).dtype.str[1:], True) for name, value in (fields or {}).items()}
    body = loop(put, fields=kinds, out=out, **arrays)
    Interpreter(body, {"out": out, **arrays}, {}).iterate((2,), fields or {}, {})
    return out[0]


def row_of(node: t.Row, **arrays: Any) -> NDArray[Any]:
    """What a row gives in an iteration with i = 2; its length is a constant."""
    assert isinstance(node.length, t.Const)
    length = int(node.length.value)
    out = np.zeros(length, node.dtype)
    put = t.Store(1, (to_row("out", length=length, dtype=node.dtype),), (node,))
    Interpreter(loop(put, out=out, **arrays), {"out": out, **arrays}, {}).iterate((2,), {}, {})
    return out


A = np.array([0.5, -1.25, 3.0, 7.0], np.float32)
G = np.arange(12, dtype=np.float32).reshape(4, 3)


# --- scalars --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "wanted"),
    [
        (t.Const(F4, 0.1), np.float32(0.1)),
        (index(), 2),
        (t.AxisSize(INT, "A", 0), 4),
        (at("A", index()), 3.0),
        (at("A", index(), checked=False), 3.0),
        (t.Cast(I4, at("A", whole(1))), -1),
        (t.Cast(B1, t.Const(F8, math.nan)), True),
        (t.Op(F4, "*", (at("A", whole(0)), at("A", whole(1)))), -0.625),
        (t.Op(FLOAT, "/", (t.Const(FLOAT, 1.0), t.Const(FLOAT, 0.0))), math.inf),
        (t.Op(INT, "//", (whole(-7), whole(2))), -4),
        (t.Op(INT, "%", (whole(-7), whole(0))), 0),
        (t.Op(INT, "*", (whole(2**62), whole(2))), -(2**63)),
        (t.Op(F4, "sqrt", (t.Const(F4, 2.0),)), np.sqrt(np.float32(2))),
        (t.Op(F4, "exp", (t.Const(F4, 1.0),)), np.float32(math.e)),
        (t.Op(FLOAT, "max", (t.Const(FLOAT, 1.0), t.Const(FLOAT, math.nan))), 1.0),
        (t.Test(BOOL, "<", at("A", whole(1)), at("A", whole(0))), True),
        (t.Test(BOOL, "!=", t.Const(FLOAT, math.nan), t.Const(FLOAT, math.nan)), True),
        (t.Test(BOOL, ">=", t.Const(FLOAT, math.nan), t.Const(FLOAT, 0.0)), False),
        (t.Logic(BOOL, "not", (t.Const(BOOL, False),)), True),
        (t.Select(INT, t.Test(BOOL, "==", index(), whole(2)), whole(5), whole(6)), 5),
        (t.Sum(F4, row("G", index())), 21.0),
        (t.Dot(F4, row("G", whole(0)), row("G", index())), 23.0),
        (t.Extreme(F4, "max", row("G", index())), 8.0),
        (t.Extreme(F4, "min", row("G", index(), length=2, start=1)), 7.0),
        (t.RandomNumber(F8, "uniform", (whole(3), index())), keyed.uniform(3, 2)),
        (t.RandomNumber(I8, "integers", (whole(10), whole(3), index())), keyed.integers(10, 3, 2)),
        (t.RandomNumber(F8, "normal", (whole(3),)), keyed.normal(3)),
    ],
)
def test_scalars(node: t.Scalar, wanted: float) -> None:
    assert value_of(node, A=A, G=G) == wanted


def test_fields_take_their_declared_type() -> None:
    assert value_of(t.Cast(F4, t.Var(FLOAT, "r")), fields={"r": 0.1}) == np.float32(0.1)


def test_only_what_is_needed_is_evaluated() -> None:
    outside = t.Test(BOOL, "<", at("A", whole(99)), at("A", whole(0)))
    yes, no = t.Const(BOOL, True), t.Const(BOOL, False)
    assert value_of(t.Logic(BOOL, "or", (yes, outside)), A=A)
    assert not value_of(t.Logic(BOOL, "and", (no, outside)), A=A)
    assert value_of(t.Select(F4, yes, at("A", whole(0)), at("A", whole(99))), A=A) == 0.5


def test_a_call_gets_typed_arguments() -> None:
    seen: list[type] = []

    def target(*args: Any) -> float:
        seen.extend(map(type, args))
        return 2.5

    args = whole(1), t.Const(FLOAT, 1.0), t.Const(BOOL, True), at("A", whole(0))
    assert value_of(t.UserCall(I4, target, "f", args), A=A) == 2
    assert seen == [np.int64, float, bool, np.float32]


def test_a_call_of_a_compiled_function() -> None:
    @numba.njit  # type: ignore[untyped-decorator]
    def half(x: Any) -> Any:
        return x / np.float32(2)

    assert value_of(t.UserCall(F4, half, "half", (at("A", index()),)), A=A) == 1.5


def test_a_tree_typed_wrongly_stops() -> None:
    for wrong in (
        t.Op(F4, "+", (t.Const(F8, 1.0), t.Const(F4, 1.0))),
        t.Op(FLOAT, "+", (t.Const(F8, 1.0), t.Const(FLOAT, 1.0))),
        t.Test(BOOL, "<", t.Const(F4, 1.0), t.Const(FLOAT, 1.0)),
        at("A", whole(0), kind=F8),
        t.Op(INT, "/", (whole(1), whole(2))),
        t.Sum(F8, row("G", whole(0))),
    ):
        with pytest.raises(AssertionError):
            value_of(wrong, A=A, G=G)


# --- rows -----------------------------------------------------------------------------------------------------------


def test_rows() -> None:
    a, b = row("G", whole(1)), row("G", index())
    three = whole(3)
    c = t.Splat("f4", three, at("A", whole(1)))
    assert same_bits(row_of(t.RowOp("f4", three, "-", (a, b)), G=G), G[1] - G[2])
    assert same_bits(row_of(t.RowOp("f4", three, "*", (c, b)), A=A, G=G), A[1] * G[2])
    assert same_bits(row_of(t.RowOp("f4", three, "neg", (b,)), G=G), -G[2])
    assert same_bits(row_of(t.RowOp("b1", three, "<", (a, b)), G=G), G[1] < G[2])
    assert same_bits(row_of(t.RowFma("f4", three, c, a, b), A=A, G=G), fma32(np.full(3, A[1]), G[1], G[2]))
    assert same_bits(row_of(t.RowCast("i4", three, c), A=A), np.array([-1, -1, -1], np.int32))
    mask = t.RowOp("b1", three, "==", (b, t.Splat("f4", three, t.Const(F4, 7.0))))
    assert same_bits(row_of(t.RowSelect("f4", three, mask, a, b), G=G), np.array([6, 4, 8], np.float32))
    nan = t.Splat("f4", three, t.Const(F4, math.nan))
    for args in ((a, nan), (nan, a)):
        assert np.isnan(row_of(t.RowOp("f4", three, "max", args), G=G)).all()
    assert same_bits(row_of(t.RowOp("f4", three, "min", (b, c)), A=A, G=G), np.full(3, A[1]))


def test_rows_of_the_wrong_length_or_dtype_stop() -> None:
    for wrong in (
        t.RowOp("f4", whole(3), "+", (row("G", whole(0)), row("G", whole(0), length=2))),
        t.RowOp("f8", whole(3), "+", (row("G", whole(0)), row("G", whole(0)))),
        t.Splat("f4", whole(3), t.Const(FLOAT, 1.0)),
    ):
        with pytest.raises(AssertionError):
            row_of(wrong, G=G)


def test_a_row_is_a_copy_and_values_come_before_places() -> None:
    W = G.copy()
    swap = t.Store(1, (to_row("W", whole(0)), to_row("W", whole(1))), (row("W", whole(1)), row("W", whole(0))))
    Interpreter(loop(swap, W=W), {"W": W}, {}).iterate((0,), {}, {})
    assert same_bits(W, G[[1, 0, 2, 3]])


def test_a_local_row_keeps_what_it_was_given() -> None:
    W = G.copy()
    steps = (
        t.Store(1, (t.RowName("f4", whole(3), "w"),), (row("W", whole(0)),)),
        t.Store(2, (to_row("W", whole(0)),), (row("W", whole(1)),)),
        t.Store(3, (to_row("W", whole(1)),), (t.RowLocal("f4", whole(3), "w"),)),
    )
    Interpreter(loop(*steps, W=W), {"W": W}, {}).iterate((0,), {}, {})
    assert same_bits(W, G[[1, 0, 2, 3]])


def test_the_places_of_a_tuple_are_found_in_order() -> None:
    x = np.zeros(3, np.int64)
    places = t.VarPlace(INT, "k"), t.ElementPlace("i8", 1, "x", (index("k"),), (True,))
    body = loop(variable("k", whole(0)), t.Store(1, places, (whole(2), whole(9))), x=x)
    Interpreter(body, {"x": x}, {}).iterate((0,), {}, {})
    assert x.tolist() == [0, 0, 9]


# --- ranges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (at("A", whole(4)), "line 7: A was asked for 4 along axis 0, which has 4 elements"),
        (at("A", whole(-1)), "A was asked for -1 along"),
        (at("G", whole(0), whole(3)), "G was asked for 3 along axis 1, which has 3"),
        (t.Sum(F4, row("G", whole(5))), "G was asked for 5 along axis 0"),
        (t.Sum(F4, row("G", whole(0), start=1)), "G was asked for 1:4 along axis 1, which has 3 elements"),
        (t.Sum(F4, row("G", whole(0), start=-1)), "G was asked for -1:2 along axis 1"),
    ],
)
def test_a_subscript_outside_is_an_error(node: t.Scalar, words: str) -> None:
    with pytest.raises(RunError, match=words):
        value_of(node, A=A, G=G)


def test_a_broken_proof_is_a_bug() -> None:
    for node in (at("A", whole(-1), checked=False), t.Sum(F4, row("G", whole(9), checked=False))):
        with pytest.raises(AssertionError, match="proven not to happen"):
            value_of(node, A=A, G=G)


def test_places_are_checked_too() -> None:
    x = np.zeros(3)
    for step in (
        t.Store(1, (t.ElementPlace("f8", 4, "x", (whole(3),), (True,)),), (t.Const(FLOAT, 1.0),)),
        t.Fold(4, "x", (whole(3),), (True,), t.Const(FLOAT, 1.0)),
        t.BufferAdd(4, "x", (whole(3),), (True,), t.Const(FLOAT, 1.0)),
    ):
        machine = Interpreter(loop(step, x=x), {"x": x}, {}, {"x": (x, operator.add)})
        with pytest.raises(RunError, match="line 4: x was asked for 3 along axis 0, which has 3 elements"):
            machine.iterate((0,), {}, {})
    assert not x.any()


# --- statements -----------------------------------------------------------------------------------------------------


def put(array: str, k: t.Scalar, value: t.Scalar) -> t.Store:
    return t.Store(1, (t.ElementPlace(value.type.dtype, 1, array, (k,), (True,)),), (value,))


def test_loops_and_leaving_them() -> None:
    seen = np.zeros(10, np.int64)
    k, n = index("k"), index("n")
    even = t.Test(BOOL, "==", t.Op(INT, "%", (k, whole(2))), whole(0))
    steps = (
        t.RangeLoop(1, "k", whole(0), whole(9), whole(1), (
            t.Branch(2, even, (t.Jump(2, "continue"),), ()),
            t.Branch(3, t.Test(BOOL, ">", k, whole(5)), (t.Jump(3, "break"),), (put("seen", k, whole(1)),)),
        )),
        put("seen", whole(0), k),
        t.RangeLoop(4, "k", whole(5), whole(0), whole(-2), ()),
        put("seen", whole(9), k),
        variable("n", whole(0)),
        t.WhileLoop(5, t.Test(BOOL, "<", n, whole(4)), (
            variable("n", add(n, whole(1))),
            t.Branch(6, t.Test(BOOL, "==", n, whole(3)), (t.Jump(6, "break"),), ()),
        )),
        put("seen", whole(8), n),
        t.Jump(7, "continue"),
        put("seen", whole(8), whole(100)),
    )  # fmt: skip
    Interpreter(loop(*steps, seen=seen), {"seen": seen}, {}).iterate((0,), {}, {})
    assert seen.tolist() == [7, 1, 0, 1, 0, 1, 0, 0, 3, 1]


def test_a_range_with_step_zero_is_an_error() -> None:
    body = loop(t.RangeLoop(3, "k", whole(0), whole(9), whole(0), ()))
    with pytest.raises(RunError, match=r"line 3: .* step of zero"):
        Interpreter(body, {}, {}).iterate((0,), {}, {})


def test_a_ragged_field_is_walked() -> None:
    out = np.zeros(2, np.float32)
    x = t.Var(F4, "x")
    body = loop(
        put("out", whole(1), t.Cast(F4, t.RaggedSize(INT, "features"))),
        t.RaggedLoop(2, ("j", "x"), (INT, F4), "features", (
            t.Branch(3, t.Test(BOOL, "==", index("j"), whole(4)), (t.Jump(3, "continue"),), ()),
            put("out", whole(0), add(at("out", whole(0)), x)),
        )),
        ragged=(RaggedField("features", (INT, F4)),),
        out=out,
    )  # fmt: skip
    parts = np.array([1, 4, 6], np.int32), np.array([0.5, 10.0, 0.25])
    Interpreter(body, {"out": out}, {}).iterate((0,), {}, {"features": parts})
    assert out.tolist() == [0.75, 3.0]


def test_accumulators_fold_elements_and_rows() -> None:
    loss, most = np.zeros(()), np.full((2, 3), -np.inf, np.float32)
    body = loop(
        t.Fold(1, "loss", (), (), t.Const(FLOAT, 1.5)),
        t.Fold(2, "most", (whole(1),), (True,), row("G", index())),
        t.Fold(3, "most", (whole(0), whole(2)), (True, True), at("A", index())),
        A=A,
        G=G,
    )
    accumulators: Any = {"loss": (loss, operator.add), "most": (most, max)}
    machine = Interpreter(body, {"A": A, "G": G}, {}, accumulators)
    machine.iterate((3,), {}, {})
    machine.iterate((1,), {}, {})
    assert loss == 3.0
    assert same_bits(most, np.array([[-np.inf, -np.inf, 7.0], G[3]], np.float32))


def test_accumulators_wrap_in_silence() -> None:
    count = np.array(2**31 - 1, np.int32)
    body = loop(t.Fold(1, "count", (), (), t.Const(I4, 1)))
    Interpreter(body, {}, {}, {"count": (count, operator.add)}).iterate((0,), {}, {})
    assert count == -(2**31)


def test_buffered_writes_are_handed_over() -> None:
    W = G.copy()
    body = loop(
        t.BufferAdd(1, "W", (whole(1),), (True,), row("W", whole(2))),
        t.BufferAdd(2, "W", (whole(0), whole(1)), (True, True), t.Const(F4, 5.0)),
        W=W,
    )
    got: list[tuple[str, tuple[int, ...], Any]] = []
    Interpreter(body, {"W": W}, {}, buffered=lambda *call: got.append(call)).iterate((0,), {}, {})
    assert [(name, index) for name, index, _ in got] == [("W", (1,)), ("W", (0, 1))]
    assert same_bits(got[0][2], G[2])
    assert has_kind(got[1][2], F4)
    assert same_bits(W, G)
    Interpreter(body, {"W": W}, {}).iterate((0,), {}, {})
    assert (W[0, 1], W[1, 0]) == (6.0, 9.0)


def test_local_arrays_are_spoilt_between_iterations() -> None:
    out = np.zeros(2)
    local = (
        BodyArray("tmp", "f8", (None,), "local", (t.Var(INT, "n"),)),
        BodyArray("seen", "i4", (2,), "local", (whole(2),)),
    )
    first = t.Test(BOOL, "==", index(), whole(0))
    body = loop(
        t.Branch(1, first, (t.ZeroFill(1, "tmp"), put("seen", whole(0), t.Const(I4, 1))), ()),
        put("out", whole(0), at("tmp", t.Op(INT, "-", (t.AxisSize(INT, "tmp", 0), whole(1))), kind=F8)),
        put("out", whole(1), t.Cast(F8, at("seen", whole(0), kind=I4))),
        numbers={"n": INT},
        local=local,
        out=out,
    )
    machine = Interpreter(body, {"out": out}, {"n": 3})
    machine.iterate((0,), {}, {})
    assert out.tolist() == [0.0, 1.0]
    machine.iterate((1,), {}, {})
    assert np.isnan(out[0])
    assert out[1] > 1e9


def test_variables_last_for_one_iteration() -> None:
    body = loop(
        t.Branch(1, t.Test(BOOL, "==", index(), whole(0)), (variable("k", whole(1)),), (variable("j", index("k")),))
    )
    machine = Interpreter(body, {}, {})
    machine.iterate((0,), {}, {})
    with pytest.raises(KeyError, match="k"):
        machine.iterate((1,), {}, {})


def test_matrix_factorisation() -> None:
    """e = r - W[i] @ H[j]; loss += e * e; W[i] = W[i] + lr * (e * H[j] - lam * W[i]) with W as float32."""
    rng = np.random.default_rng(5)
    W, H, loss = rng.normal(size=(4, 20)).astype("f4"), rng.normal(size=(5, 20)).astype("f4"), np.zeros(())
    w, h = row("W", index(), length=20), row("H", index("j"), length=20)
    n, e = whole(20), t.Var(F4, "e")

    def times(x: t.Scalar, y: t.Row) -> t.RowOp:
        return t.RowOp("f4", n, "*", (t.Splat("f4", n, x), y))

    lr, lam = (t.Cast(F4, t.Var(FLOAT, name)) for name in ("lr", "lam"))
    step = times(lr, t.RowOp("f4", n, "-", (times(e, h), times(lam, w))))
    body = loop(
        variable("e", t.Op(F4, "-", (t.Var(F4, "r"), t.Dot(F4, w, h)))),
        t.Fold(2, "loss", (), (), t.Cast(F8, t.Op(F4, "*", (e, e)))),
        t.Store(3, (to_row("W", index(), length=20),), (t.RowOp("f4", n, "+", (w, step)),)),
        indices=("i", "j"),
        fields={"r": F4},
        numbers={"lr": FLOAT, "lam": FLOAT},
        W=W,
        H=H,
    )
    wanted, r = W.copy(), np.float32(3.5)
    error = r - dot(W[1], H[4])  # type: ignore[operator]
    wanted[1] = W[1] + np.float32(0.1) * (error * H[4] - np.float32(0.02) * W[1])
    machine = Interpreter(body, {"W": W, "H": H}, {"lr": 0.1, "lam": 0.02}, {"loss": (loss, operator.add)})
    machine.iterate((1, 4), {"r": 3.5}, {})
    assert same_bits(W, wanted)
    assert loss == np.float64(error * error)
