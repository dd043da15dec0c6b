"""The machinery of the hostile tests: it must notice what it is meant to notice."""

from __future__ import annotations

import ctypes
import os
import time
import warnings
from typing import Any

import pytest

from hostile import Case, faults, run_cases
from stretto.errors import DataError


def misbehave(how: str) -> Any:
    """Behave as `how` says."""
    if how == "segfault":
        ctypes.string_at(1)
    elif how == "exit":
        os._exit(3)
    elif how == "spin":
        while True:
            pass
    elif how == "wait":
        time.sleep(3600)
    elif how == "ours":
        raise DataError("on purpose")
    elif how == "foreign":
        raise KeyError("by mistake")
    elif how == "leave":
        raise SystemExit(0)
    elif how == "allocate":
        return len(bytearray(1 << 40))
    elif how == "warn":
        print("a line on stdout, which is the children's way to answer")
        warnings.warn("careful", UserWarning, stacklevel=1)
    elif how == "unpicklable":
        return lambda: None
    return how


def unhappy() -> None:
    raise RuntimeError("cannot warm up")


def test_every_outcome_is_told_and_the_next_case_runs() -> None:
    hows = ["fine", "segfault", "fine", "exit", "fine", "spin", "fine", "wait", "fine", "ours", "foreign"]
    hows += ["leave", "allocate", "warn", "unpicklable", "fine"]
    cases = [Case(f"{number}-{how}", (how,)) for number, how in enumerate(hows)]
    verdicts = run_cases(misbehave, cases, limit=1.0, workers=2, memory=1 << 30)
    assert [verdict.case for verdict in verdicts] == cases
    found = {verdict.case.args[0]: verdict for verdict in verdicts}
    assert {how: found[how].outcome for how in found} == {
        **dict.fromkeys(["fine", "warn"], "returned"),
        **dict.fromkeys(["segfault", "exit"], "signal"),
        **dict.fromkeys(["spin", "wait"], "hang"),
        **dict.fromkeys(["ours", "foreign", "leave", "allocate", "unpicklable"], "raised"),
    }
    assert all(verdict.value == "fine" for verdict in verdicts if verdict.case.args == ("fine",))
    assert "SIGSEGV" in found["segfault"].message
    assert "misbehave" in found["segfault"].trace
    assert "misbehave" in found["spin"].trace
    assert "exited with 3" in found["exit"].message
    assert found["warn"].warnings == (("builtins.UserWarning", "careful"),)
    assert found["allocate"].error == "builtins.MemoryError"
    named = [line.split(":")[0] for line in faults(verdicts, allowed=["builtins.SystemExit"])]
    assert named == ["1-segfault", "3-exit", "5-spin", "7-wait", "10-foreign", "12-allocate", "14-unpicklable"]


def test_a_child_that_cannot_start_is_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="cannot warm up"):
        run_cases(misbehave, [Case("one", ("fine",))], warm=unhappy)


def test_a_case_that_ruins_the_end_of_its_process_is_named() -> None:
    verdicts = run_cases(ruin_the_end, [Case("one"), Case("two")], workers=1)
    assert [verdict.outcome for verdict in verdicts] == ["returned", "signal"]
    assert "SIGABRT" in verdicts[1].message


def ruin_the_end() -> None:
    import atexit

    atexit.register(os.abort)


def test_names_are_unique_and_functions_can_be_imported() -> None:
    with pytest.raises(ValueError, match="unique"):
        run_cases(misbehave, [Case("one"), Case("one")])
    with pytest.raises(ValueError, match="cannot be imported"):
        run_cases(lambda: None, [Case("one")])
