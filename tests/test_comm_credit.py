"""Credit: never more on its way than allowed, and never nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stretto.comm.credit import Credit


def test_one_message_may_always_go() -> None:
    credit = Credit(10)
    assert credit.may_send(1000)
    credit.sent(1, 1000)
    assert not credit.may_send(1)
    assert credit.acknowledged(1) == 1000
    assert credit.may_send(1000)


def test_what_was_released_before_is_not_counted_twice() -> None:
    credit = Credit(100)
    credit.sent(1, 60)
    credit.sent(1, 60)
    assert (credit.in_flight, credit.released) == (60, 1)
    credit.acknowledged(1)
    credit.sent(1, 60)
    assert credit.in_flight == 0


def test_an_old_acknowledgement_frees_nothing() -> None:
    credit = Credit(100)
    for sequence in (1, 2, 3):
        credit.sent(sequence, 30)
    assert credit.acknowledged(2) == 60
    assert credit.acknowledged(1) == 0
    assert credit.in_flight == 30


def test_reset_begins_again() -> None:
    credit = Credit(100)
    credit.sent(1, 90)
    credit.reset()
    assert (credit.in_flight, credit.released, credit.may_send(100)) == (0, 0, True)


@given(st.integers(1, 200), st.lists(st.tuples(st.booleans(), st.integers(1, 150)), max_size=60))
def test_bytes_in_flight_stay_within_the_limit(limit: int, steps: list[tuple[bool, int]]) -> None:
    credit, sizes, acknowledged = Credit(limit), [0], 0
    for send, number in steps:
        if send and credit.may_send(number):
            sizes.append(number)
            credit.sent(len(sizes) - 1, number)
        elif not send:
            acknowledged = max(acknowledged, min(number, len(sizes) - 1))
            credit.acknowledged(acknowledged)
        flying = sizes[acknowledged + 1 :]
        assert credit.in_flight == sum(flying)
        assert credit.in_flight <= limit or len(flying) == 1
        assert credit.may_send(1) or credit.in_flight + 1 > limit
