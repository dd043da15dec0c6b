"""Large calls of hosts that Ray started go in chunks, in both directions."""

from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install 'stretto[cluster]'")

from stretto.runtime.cluster.hosts import ray_fleet
from stretto.runtime.cluster.hosts.fleet import packed


class Actor:
    """An actor whose messages are counted; their results are available at once."""

    def __init__(self) -> None:
        self.real = ray_fleet.HostActor.__new__(ray_fleet.HostActor)
        self.real._arrived, self.real._answers = {}, {}
        self.real._host = SimpleNamespace(  # type: ignore[assignment]
            double=lambda array: array * 2, total=lambda array: float(array.sum()), zeros=np.zeros
        )
        self.sizes: list[int] = []

    def __getattr__(self, method: str) -> Any:
        def remote(*args: Any) -> Any:
            found = getattr(self.real, method)(*args)
            self.sizes.append(max(len(one) for one in (*args, found) if isinstance(one, bytes)))
            return found

        return SimpleNamespace(remote=remote)


def called(actor: Actor, method: str, *args: Any) -> Any:
    messages = ray_fleet._messages(actor, method, packed(args))
    ref = next(messages)
    while True:
        try:
            ref = messages.send(ref)
        except StopIteration as end:
            return pickle.loads(end.value)


@pytest.mark.parametrize("length", [0, 1, 12, 13, 125, 126, 1000, 4321])
def test_what_is_large_goes_in_chunks(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    monkeypatch.setattr(ray_fleet, "_CHUNK", 1000)
    actor = Actor()
    array = np.arange(length, dtype=np.int64)
    np.testing.assert_array_equal(called(actor, "double", array), array * 2)
    assert called(actor, "total", array) == array.sum()
    assert called(actor, "zeros", length).shape == (length,)
    assert max(actor.sizes) <= 1000 + ray_fleet._TICKET
    assert not actor.real._arrived  # nothing is kept
    assert not actor.real._answers


def test_small_calls_are_one_message() -> None:
    actor = Actor()
    assert called(actor, "total", np.ones(3)) == 3.0
    assert len(actor.sizes) == 1


def test_an_answer_may_be_read_several_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tasks that begin with one call all wait for its answer."""
    monkeypatch.setattr(ray_fleet, "ray", SimpleNamespace(get=lambda ref, timeout: ref))
    answer = ray_fleet._RayAnswer(0, ray_fleet._messages(Actor(), "total", packed((np.ones(3),))))
    assert [answer.result(0.0) for _ in range(3)] == [3.0] * 3
