"""Threads that do one thing together: all are waited for, errors come back, nothing is left behind."""

from __future__ import annotations

import threading

import pytest

from stretto.runtime.blocks.team import Team


def test_every_member_does_its_share_and_the_last_one_ends_the_wait() -> None:
    team = Team(8)
    done: list[int] = []
    for _ in range(200):
        done.clear()
        call = team.call(done.append, [(k,) for k in range(8)])
        assert call.wait(60)
        assert sorted(done) == list(range(8))
    team.close()


def test_waiting_ends_when_time_is_up_and_can_be_taken_up_again() -> None:
    team, gate = Team(2), threading.Event()
    call = team.call(lambda wait: wait and gate.wait(60), [(True,), (False,)])
    assert not call.wait(0.0)
    gate.set()
    assert call.wait(60)
    assert call.wait(0.0), "once over, always over"
    team.close()


def test_an_error_of_a_member_is_raised_by_check_and_the_team_lives_on() -> None:
    def work(k: int) -> None:
        if k == 1:
            raise ValueError("share 1")

    team = Team(3)
    call = team.call(work, [(0,), (1,), (2,)])
    assert call.wait(60)
    with pytest.raises(ValueError, match="share 1"):
        call.check()
    again = team.call(work, [(0,), (0,), (0,)])
    assert again.wait(60)
    again.check()
    team.close()
    assert not [thread for thread in threading.enumerate() if thread in team._threads]
