"""Server functions: each against a NumPy twin to the last bit, users' ones, and users' ones that misbehave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from shard_made import Sender, by_key, ended, fetch, one_table, rows_in
from stretto.comm.messages import Rows, Update
from stretto.comm.policy import Managed
from stretto.consistency.rules import BSP
from stretto.errors import Diverged, PlanError, RunError
from stretto.store.shard.functions import ServerFunction, adagrad, adarevision, add, average, proximal, server_function
from stretto.store.shard.shard import Shard

Row = NDArray[Any]
_SEVEN: Any = 7


class Twin:
    """One row under a shipped rule, in NumPy, in the dtype of the table."""

    def __init__(self, function: ServerFunction, cols: int, dtype: str, workers: int) -> None:
        self.rule, self.kind = function.rule, np.dtype(dtype)
        given: tuple[float, ...] = function.params or (workers,)
        if function.rule == "proximal":
            given = (given[0], given[0] * given[1], 1 + given[0] * given[2])
        self.params = [self.kind.type(value) for value in given]
        self.row = np.zeros(cols, dtype)
        self.state = [np.full(cols, start, dtype) for start in function.starts]

    def apply(self, g: Row, old: Row | None = None) -> None:
        a = self.params[0]
        if self.rule == "add":
            self.row = self.row + g
        elif self.rule == "average":
            self.row = self.row + g / a
        elif self.rule == "adagrad":
            self.state[0] = self.state[0] + g * g
            self.row = self.row - a / np.sqrt(self.state[0]) * g
        elif self.rule == "proximal":
            x = self.row - a * g
            zero = self.kind.type(0)
            self.row = (np.maximum(x - self.params[1], zero) + np.minimum(x + self.params[1], zero)) / self.params[2]
        else:
            total, z, largest = self.state
            b = total - (total if old is None else old)
            before = a / np.sqrt(largest)
            z = z + (g * g + (g * b + g * b))
            largest = np.maximum(largest, z)
            after = a / np.sqrt(largest)
            self.row = self.row + ((before - after) * b - after * g)
            self.state = [total + g, z, largest]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "function", [add, average, adagrad(0.3), proximal(0.2, l1=0.5, l2=0.1), adarevision(0.3)], ids=lambda f: f.name
)
def test_a_rule_has_the_bits_of_its_numpy_twin(function: ServerFunction, dtype: str) -> None:
    """Several changes of a row in one message too, one after the other."""
    rng = np.random.default_rng(3)
    layout = one_table(function, cols=7, dtype=dtype, nodes=3)
    shard, senders = Shard(layout, 0), [Sender(layout, node) for node in range(3)]
    twins = {key: Twin(function, 7, dtype, workers=3) for key in range(20)}
    for _ in range(60):
        keys = rng.choice(20, size=rng.integers(1, 9), replace=False).tolist()
        deltas = rng.normal(size=(len(keys), 7)).astype(dtype)
        shard.receive(senders[rng.integers(3)](0, keys, deltas))
        for key, delta in zip(keys, deltas, strict=True):
            twins[key].apply(delta)
    rows = by_key(*shard.table(0))
    states = shard.states(0)
    assert len(states) == function.states
    for place, key in enumerate(shard.table(0)[0].tolist()):
        assert rows[key] == twins[key].row.tolist()
        for found, wanted in zip(states, twins[key].state, strict=True):
            assert found.dtype == dtype
            assert found[place].tolist() == wanted.tolist()


def test_adarevision_without_delays_is_adagrad() -> None:
    rng = np.random.default_rng(0)
    shards = [Shard(one_table(function, dtype="f8"), 0) for function in (adagrad(0.2), adarevision(0.2))]
    for _ in range(30):
        delta = rng.normal(size=(2, 2))
        for shard in shards:
            shard.receive(Sender(shard.layout, 0)(0, [4, 5], delta))
    plain, revised = (by_key(*shard.table(0)) for shard in shards)
    np.testing.assert_allclose(revised[4], plain[4], rtol=1e-13)


def test_adarevision_by_hand() -> None:
    """Two nodes read version 0; both gradients arrive. Worked out on paper, α = 1."""
    layout = one_table(adarevision(1.0), cols=1, dtype="f8")
    shard, one, other = Shard(layout, 0), Sender(layout, 0), Sender(layout, 1)
    for node in (0, 1):
        shard.receive(fetch(node, [7]))
    shard.receive(one(0, [7], [[3.0]], versions=[0]))  # b = 0: z = 10, w = −3 / √10, G = 3
    shard.receive(other(0, [7], [[4.0]], versions=[0]))  # b = 3: z = 10 + 16 + 24 = 50
    before, after = 1 / np.sqrt(10), 1 / np.sqrt(50)
    wanted = -3 * before + (before - after) * 3 - after * 4
    np.testing.assert_allclose(shard.table(0)[1][0, 0], wanted, rtol=1e-14)
    assert [state[0, 0] for state in shard.states(0)] == [7.0, 50.0, 50.0]


def test_adarevision_keeps_the_largest_z() -> None:
    """A gradient against what others added makes z smaller; steps do not grow again."""
    layout = one_table(adarevision(1.0), cols=1, dtype="f8")
    shard, one, other = Shard(layout, 0), Sender(layout, 0), Sender(layout, 1)
    for node in (0, 1):
        shard.receive(fetch(node, [7]))
    shard.receive(one(0, [7], [[4.0]], versions=[0]))  # z = 17
    shard.receive(other(0, [7], [[-2.0]], versions=[0]))  # b = 4: z = 17 + 4 − 16 = 5
    assert [state[0, 0] for state in shard.states(0)] == [2.0, 5.0, 17.0]


@pytest.mark.parametrize("seed", range(4))
def test_adarevision_under_random_delays(seed: int) -> None:
    """Nodes hold rows of any age, send gradients of any version they hold; the twin knows what each version was."""
    rng = np.random.default_rng(seed)
    nodes, rows, cols = 4, 6, 3
    layout = one_table(adarevision(0.4), nodes=nodes, cols=cols)
    shard, senders = Shard(layout, 0), [Sender(layout, node) for node in range(nodes)]
    twins = [Twin(layout.tables[0].apply, cols, "f4", nodes) for _ in range(rows)]
    kept: dict[tuple[int, int], Row] = {}  # (key, version) -> G
    holds: list[dict[int, list[int]]] = [{} for _ in range(nodes)]  # versions a node may refer to, the newest last
    clocks = [0] * nodes

    def take(answers: Any) -> None:
        for node, message in answers:
            if not isinstance(message, Rows):
                continue
            assert message.versions is not None
            for key, version, values in zip(
                message.keys.tolist(), message.versions.tolist(), message.values, strict=True
            ):
                sums = kept.setdefault((key, version), twins[key].state[0].copy())
                assert np.array_equal(sums, twins[key].state[0])  # a version has one content
                assert np.array_equal(values, twins[key].row)
                held = holds[node].setdefault(key, [])
                assert not held or version >= held[-1]
                if version not in held:
                    held.append(version)

    for _ in range(600):
        node = int(rng.integers(nodes))
        what = rng.random()
        if what < 0.3:
            take(shard.receive(fetch(node, rng.choice(rows, 2, replace=False).tolist(), 0)))
        elif what < 0.75 and holds[node]:
            pairs = sorted({(int(k), int(rng.choice(holds[node][int(k)]))) for k in rng.choice(list(holds[node]), 3)})
            deltas = rng.normal(size=(len(pairs), cols)).astype("f4")
            keys, versions = [key for key, _ in pairs], [version for _, version in pairs]
            shard.receive(senders[node](clocks[node], keys, deltas, versions=versions))
            for (key, version), delta in zip(pairs, deltas, strict=True):
                twins[key].apply(delta, kept[key, version])
        elif clocks[node] <= min(clocks) + 2:
            clocks[node] += 1
            released = {key: held.pop(0) for key, held in holds[node].items() if len(held) > 1}
            take(shard.receive(ended(node, clocks[node], released)))
    for key, row in by_key(*shard.table(0)).items():
        assert row == twins[key].row.tolist()
    snapshots = shard.tables[0].snapshots
    assert snapshots is not None
    referred = sum(len(held) for mine in holds for held in mine.values())
    assert sum(nodes for _, _, nodes in snapshots.kept()) == referred
    assert len(snapshots) == len({(key, v) for mine in holds for key, held in mine.items() for v in held})


def test_average_of_models() -> None:
    """Three workers go 3, 6 and 0 away from the row: the row goes 3."""
    layout = one_table(average, nodes=1, workers=3, rule=BSP())
    shard, send = Shard(layout, 0), Sender(layout, 0)
    for worker, far in enumerate((3.0, 6.0, 0.0)):
        shard.receive(send(0, [1], [far], worker=worker))
    shard.receive(ended(0, 1))
    assert by_key(*shard.table(0)) == {1: [3.0, 3.0]}


def test_functions_tell_what_they_are() -> None:
    found = [repr(function) for function in (add, average, proximal(0.1, l2=2), adarevision(0.25, snapshots=9))]
    assert found == ["add", "average", "proximal(0.1, 0, 2)", "adarevision(0.25)"]


def test_proximal_gives_exact_zeros() -> None:
    layout = one_table(proximal(1.0, l1=0.5), start=0.4)
    shard = Shard(layout, 0)
    shard.receive(Sender(layout, 0)(0, [1, 2], [[0.1, -0.2], [0.9, -0.9]]))
    found = by_key(*shard.table(0))
    assert found[1] == [0.0, pytest.approx(0.1)]
    assert found[2] == [0.0, pytest.approx(0.8)]


@pytest.mark.parametrize("function", [average, adagrad(0.1), proximal(0.1), adarevision(0.1)], ids=lambda f: f.name)
def test_whole_numbers_can_only_be_added(function: ServerFunction) -> None:
    with pytest.raises(PlanError, match=rf"table 'w': {function.name} needs floats, and the table holds i4"):
        Shard(one_table(function, dtype="i4"), 0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: adagrad(0), r"adagrad\(rate=0\): give a number above 0"),
        (lambda: adagrad(0.1, start=-1), r"adagrad\(start=-1\)"),
        (lambda: adarevision(float("nan")), r"adarevision\(rate=nan\)"),
        (lambda: adarevision(0.1, snapshots=-1), "adarevision: snapshots must be a whole number at least 0; got -1"),
        (lambda: proximal(0.1, l1=-1), r"proximal\(l1=-1\): give a number, 0 or more"),
        (lambda: server_function(_SEVEN), r"apply=7 is not a function of \(row, state, delta, old, params\)"),
        (lambda: server_function(lambda row, delta: 1.0), r"apply must be a function of \(row, state, delta, old"),
        (lambda: server_function(_plain, create=lambda row: None), r"create must be a function of \(row, state, key\)"),
        (lambda: server_function(_plain, snapshot=0), r"snapshot=0; give 'row' or the number of a state"),
        (lambda: server_function(_plain, versioned=True), r"versioned=True with snapshot=None; say with snapshot="),
        (lambda: server_function(_plain, versioned=False, snapshot="row"), r"leave out snapshot="),
    ],
)
def test_misuse_is_told(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        make()


# --- functions of users ---------------------------------------------------------------------------------------------


def _plain(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        row[k] += delta[k]
    return 1.0


def _momentum(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        state[0, k] = params[1] * state[0, k] + delta[k]
        row[k] -= params[0] * state[0, k]
    return params[0]


def _by_key(row, state, key):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        row[k] = 10 * key + k
        state[0, k] = 1.0


def _compensated(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    for k in range(len(row)):
        row[k] -= delta[k] + params[0] * delta[k] * delta[k] * (row[k] - old[k])
    return 1.0


@pytest.mark.parametrize("decorate", [lambda fn: fn, numba.njit], ids=["plain", "njit"])
def test_a_users_function(decorate: Callable[[Any], Any]) -> None:
    function = server_function(decorate(_momentum), states=1, params=(0.5, 0.9))
    assert repr(function) == "_momentum(0.5, 0.9)"
    layout = one_table(function, dtype="f8")
    shard, send = Shard(layout, 0), Sender(layout, 0)
    row, speed = np.zeros(2), np.zeros(2)
    for delta in ([1.0, -2.0], [0.5, 0.25]):
        shard.receive(send(0, [3], [delta]))
        speed = 0.9 * speed + delta
        row = row - 0.5 * speed
    assert by_key(*shard.table(0)) == {3: row.tolist()}
    assert shard.states(0)[0].tolist() == [speed.tolist()]


def test_a_users_function_makes_rows() -> None:
    layout = one_table(server_function(_plain, states=1, create=_by_key))
    shard = Shard(layout, 0)
    assert rows_in(shard.receive(fetch(0, [4]))) == {4: [40.0, 41.0]}
    shard.receive(Sender(layout, 0)(0, [4, 6], [1.0, 1.0]))
    assert by_key(*shard.table(0)) == {4: [41.0, 42.0], 6: [61.0, 62.0]}
    assert (shard.states(0)[0] == 1).all()


def test_a_users_function_sees_the_row_a_change_was_computed_from() -> None:
    layout = one_table(server_function(_compensated, snapshot="row", params=(2.0,)), dtype="f8", cols=1, start=1.0)
    shard, one, other = Shard(layout, 0), Sender(layout, 0), Sender(layout, 1)
    for node in (0, 1):
        shard.receive(fetch(node, [0]))
    shard.receive(one(0, [0], [[0.25]], versions=[0]))
    assert shard.table(0)[1][0, 0] == 0.75
    shard.receive(other(0, [0], [[0.5]], versions=[0]))
    assert shard.table(0)[1][0, 0] == 0.75 - (0.5 + 2.0 * 0.25 * (0.75 - 1.0))


def test_a_users_function_on_whole_numbers() -> None:
    layout = one_table(server_function(_plain, additive=True), dtype="i8")
    shard = Shard(layout, 0)
    shard.receive(Sender(layout, 0)(0, [1, 2], [2**53 + 1, -3]))
    assert by_key(*shard.table(0)) == {1: [2**53 + 1] * 2, 2: [-3, -3]}


def _raises(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    row[0] += delta[0]
    state[0, 0] = 9.0
    if delta[0] > 1:
        raise ValueError("too much")
    return 1.0


def _nan(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    row[0] += delta[0]
    row[1] = delta[0] / (delta[0] - 2)
    return 1.0


def _nan_state(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    row[0] += delta[0]
    state[0, 0] = np.log(1.5 - delta[0])
    return 1.0


def _far(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    row[0] += delta[0]
    if delta[0] > 1:
        row[1_000_000] = 1
    return 1.0


def _writes_delta(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    delta[0] *= 2
    row[0] += delta[0]
    return 1.0


def _writes_old(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    old[0] = 1
    return 1.0


def _text(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    return "one"


def _nothing(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    row[0] += delta[0]


def _python(row, state, delta, old, params):  # type: ignore[no-untyped-def]
    return float(__import__("os").getpid())


@pytest.mark.parametrize("rule", [None, BSP()], ids=["SSP", "BSP"])
@pytest.mark.parametrize(
    ("function", "kind", "said"),
    [
        (_raises, RunError, r"failed to apply 3 changes: ValueError: too much; nothing was changed"),
        (_nan, Diverged, r"left NaN or infinity in the row 6; nothing was changed"),
        (_nan_state, Diverged, r"left NaN or infinity in the states of row 6"),
        (_far, RunError, r"IndexError"),
        (
            _writes_delta,
            RunError,
            r"cannot be compiled by Numba: it writes to delta, old or params; these are not its own",
        ),
        (
            _writes_old,
            RunError,
            r"cannot be compiled by Numba: it writes to delta, old or params; these are not its own",
        ),
        (_text, RunError, r"cannot be compiled by Numba"),
        (_nothing, RunError, r"cannot be compiled by Numba: No impl.*none\); .* return a number"),
        (_python, RunError, r"cannot be compiled by Numba"),
    ],
)
def test_a_users_function_that_misbehaves_changes_nothing(
    function: Any, kind: type[Exception], said: str, rule: Any
) -> None:
    layout = one_table(server_function(function, states=1), rule=rule, nodes=1, workers=2)
    shard, send = Shard(layout, 0), Sender(layout, 0)
    shard.receive(fetch(0, [5, 6, 7]))
    before, states = by_key(*shard.table(0)), shard.states(0)[0].copy()
    update = send(0, [5, 6, 7], [1.0, 2.0, 1.0], worker=-1 if rule is None else 0)
    sent = update.deltas.copy()
    with pytest.raises(kind, match=said) as caught:
        _applied(shard, update)
    assert f"table 'w': server function {function.__name__!r}" in str(caught.value)
    assert by_key(*shard.table(0)) == before
    assert (shard.states(0)[0] == states).all()
    assert (update.deltas == sent).all()


def _applied(shard: Shard, update: Update) -> None:
    """Bounded staleness applies an update when it comes, an exact run when its clock closes."""
    shard.receive(update)
    shard.receive(ended(0, 1))


def _bad_create(row, state, key):  # type: ignore[no-untyped-def]
    row[0] = 1.0 / (key - 3)


def test_making_a_row_fails() -> None:
    shard = Shard(one_table(server_function(_plain, create=_bad_create)), 0)
    with pytest.raises(Diverged, match=r"table 'w': server function '_plain' left NaN or infinity in the row 3"):
        shard.receive(fetch(0, [2, 3]))
    assert len(shard.table(0)[0]) == 0
    assert rows_in(shard.receive(fetch(0, [2, 4]))) == {2: [-1.0, 0.0], 4: [1.0, 0.0]}


# --- what goes back ---------------------------------------------------------------------------------------------------


def test_the_factor_goes_back_where_the_rank_asks_for_it() -> None:
    policy = Managed("1Mbit", rank="effective")
    layout = one_table(adagrad(0.5), policy=policy, dtype="f8")
    shard = Shard(layout, 0)
    shard.receive(Sender(layout, 0)(0, [1], [[1.0, 3.0]]))  # z = 2 and 10
    [(_, rows)] = shard.receive(fetch(0, [1, 2]))
    assert isinstance(rows, Rows)
    assert rows.scale is not None
    np.testing.assert_allclose(rows.scale, [0.25 / np.sqrt(2) + 0.25 / np.sqrt(10), 1.0], rtol=1e-6)
    plain = Shard(one_table(adagrad(0.5), policy=Managed("1Mbit"), dtype="f8"), 0)
    [(_, without)] = plain.receive(fetch(0, [1, 2]))
    assert isinstance(without, Rows)
    assert without.scale is None
    assert rows.nbytes == without.nbytes + 2 * 4 + (2 * 8 - 2)  # row 1 is not zero any more: 16 bytes, not 2


def test_room_for_snapshots() -> None:
    assert adarevision(0.1).allow_send(10**6, 7) == 7
    assert adarevision(0.1, snapshots=10).allow_send(12, 7) == 0
    asked = []

    def half(kept: int, wanted: int) -> int:
        asked.append((kept, wanted))
        return wanted // 2

    assert server_function(_plain, snapshot="row", allow_send=half).allow_send(3, 9) == 4
    assert asked == [(3, 9)]
