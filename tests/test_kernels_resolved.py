"""Types that are resolved once, and fewer passes, change how long compiling takes and not what is compiled."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core.types.functions import BaseFunction

from stretto.kernels.build import linking, resolved
from stretto.kernels.core.compile import Kernel, inner

RESOLVE = BaseFunction.get_call_type


def compiled(profile: str) -> str:
    """The optimised LLVM code of a kernel and its helper, compiled now; without names and addresses."""

    @inner
    def least(x: Any, y: Any) -> Any:
        return min(x * y, x + 1.5)

    def sums_worker(x: Any, k: Any, out: Any) -> None:
        for i in range(k, x.shape[0]):
            out[i % 4] += least(x[i], x[i - k]) * max(k, 2) + max(x[i] * out[0], x[i] + 1.5)

    dispatcher: Any = Kernel(sums_worker)[profile]
    x, out = np.arange(9.0), np.zeros(4)
    dispatcher(x, 1, out)
    (form,) = dispatcher.overloads.values()
    return re.sub(r'[@%]("[^"]*"|[\w.$]+)|i64 \d{9,}|constant \[.*', "name", form.library.get_llvm_str())


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRETTO_CACHE", str(tmp_path))


def test_the_code_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Both profiles in turn: `min` has an implementation for each, under the same types.
    quick = [compiled(profile) for profile in ("exact", "fast", "exact", "fast")]
    monkeypatch.setattr(linking, "once", contextlib.nullcontext)
    monkeypatch.setattr(linking, "_LEFT_OUT", set())
    plain = [compiled(profile) for profile in ("exact", "fast")]
    assert quick == plain * 2
    assert plain[0] != plain[1]


def test_a_call_is_resolved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving: list[tuple[Any, ...]] = []

    def count(self: Any, context: Any, args: Any, kws: Any) -> Any:
        resolving.append((self, *args))
        return RESOLVE(self, context, args, kws)

    monkeypatch.setattr(resolved, "_resolve", count)
    monkeypatch.setattr(BaseFunction, "get_call_type", count)
    monkeypatch.setattr(resolved, "_signatures", {})
    monkeypatch.setattr(resolved, "_flags", [None, {}])
    compiled("exact")
    first = len(resolving)
    assert first > 0
    compiled("exact")
    assert len(resolving) - first <= first // 4  # none but those that take functions as arguments


def test_numba_s_own_way_is_back_afterwards() -> None:
    compiled("exact")
    assert BaseFunction.get_call_type is RESOLVE
    with pytest.raises(ZeroDivisionError), resolved.once(), resolved.once():
        1 // (BaseFunction.get_call_type is RESOLVE)
    assert BaseFunction.get_call_type is RESOLVE
