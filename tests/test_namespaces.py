"""`st.tables` and `st.faults`: their names, what stands behind them, and the old places, which warn."""

from __future__ import annotations

import warnings

import pytest

import stretto as st
from stretto.errors import PlanError

TABLES = (
    *("Table", "BSP", "SSP", "ASP", "Eager", "Lazy", "Managed"),
    *("add", "adagrad", "adarevision", "average", "proximal", "server_function"),
)
FAULTS = ("Crash", "Delay", "Pause", "Reset", "SlowLink", "SlowNode")
TAKEN = ("add", "average")  # merge rules of replicated states have these names now
BOTH = ("BSP", "SSP", "ASP")  # rules of tables and of tasks: public in both places
MOVED = [*(("tables", name) for name in TABLES if name not in (*TAKEN, *BOTH)), *(("faults", name) for name in FAULTS)]


def test_the_names_of_the_namespaces() -> None:
    assert sorted(st.tables.__all__) == sorted([*TABLES, "plan"])
    assert sorted(st.faults.__all__) == sorted(FAULTS)
    assert set(st.tables.__all__) <= set(dir(st.tables))
    assert callable(st.tables.plan)
    with pytest.raises(AttributeError, match=r"module 'stretto\.tables' has no attribute 'Tables'"):
        st.tables.Tables  # noqa: B018


@pytest.mark.parametrize(("namespace", "name"), MOVED)
def test_the_old_place_warns_and_names_the_new_one(namespace: str, name: str) -> None:
    new = getattr(getattr(st, namespace), name)
    message = rf"^stretto\.{name} is deprecated .*; use stretto\.{namespace}\.{name} instead$"
    for _ in range(2):  # not remembered: a second line warns as well
        with pytest.warns(FutureWarning, match=message):
            assert getattr(st, name) is new
    assert name not in st.__all__
    assert name not in dir(st)


@pytest.mark.parametrize("name", TAKEN)
def test_a_merge_rule_is_no_server_function(name: str) -> None:
    assert getattr(st, name) is not getattr(st.tables, name)
    with pytest.raises(PlanError, match="apply"):
        st.tables.Table(rows=1, cols=1, apply=getattr(st, name)())


@pytest.mark.parametrize("name", BOTH)
def test_a_rule_is_public_in_both_places_without_a_warning(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert getattr(st, name) is getattr(st.tables, name)
    assert name in st.__all__
