"""The broker: channels by batch ID, oldest first, bounded, with deadlines."""

from __future__ import annotations

from collections import defaultdict

import hypothesis.strategies as st
from hypothesis import given, settings

from vflbench.algorithms.split.broker import ROUNDING, Broker


def test_a_channel_is_first_in_first_out_and_knows_no_other() -> None:
    broker = Broker(3)
    for channel, message in ((7, "a"), (2, "x"), (7, "b"), (7, "c")):
        broker.publish(channel, message)
    assert (broker.depth(7), broker.depth(2), broker.depth(0)) == (3, 1, 0)
    assert [broker.next(7) for _ in range(4)] == ["a", "b", "c", None]
    assert broker.next(2) == "x" and broker.next(0) is None and broker.dropped == 0
    assert broker.channels == {}  # nothing stays of a channel that is empty


def test_a_full_channel_drops_its_oldest() -> None:
    broker = Broker(2)
    for message in range(5):
        broker.publish(1, message)
        broker.publish(2, message) if message < 2 else None
        assert broker.depth(1) <= 2
    assert broker.dropped == 3 and broker.depth(2) == 2
    assert [broker.next(1), broker.next(1)] == [3, 4]
    one = Broker(1)
    one.publish(0, "old")
    one.publish(0, "new")
    assert (one.next(0), one.next(0), one.dropped) == ("new", None, 1)


def test_deadlines_end_with_a_message_or_in_their_order() -> None:
    broker = Broker(1)
    assert broker.deadline() is None and broker.expired(1e9) == []
    for channel, until in ((4, 2.0), (1, 4.0), (3, 5.0), (2, 5.0), (9, 8.0)):
        broker.wait(channel, until)
    broker.publish(4, "came")  # nobody waits there any longer
    assert broker.deadline() == 4.0
    assert broker.expired(3.9) == []
    assert broker.expired(5.0) == [1, 3, 2]  # earliest first, then as they began to wait
    assert broker.expired(5.0) == [] and broker.deadline() == 8.0
    broker.wait(9, 9.0)  # another deadline takes the place of the first
    assert broker.expired(8.0) == []
    assert broker.expired(9.0 - ROUNDING / 2) == [9]  # a clock is a rounding short
    assert broker.deadline() is None


def test_discarding_removes_what_is_there_and_who_waits() -> None:
    broker = Broker(4)
    for message in range(4):
        broker.publish(1, message)
    broker.publish(2, 0)
    broker.wait(1, 3.0)
    broker.wait(2, 4.0)
    broker.discard(1)
    assert (broker.depth(1), broker.depth(2), broker.dropped, broker.deadline()) == (0, 1, 0, 4.0)
    assert broker.next(1) is None
    broker.discard(2)
    broker.discard(5)
    assert broker.depth(2) == 0 and broker.channels == {} and broker.deadline() is None


OPERATIONS = st.lists(st.tuples(st.sampled_from(["publish", "next", "discard"]), st.integers(0, 3)), max_size=60)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 3), OPERATIONS)
def test_against_plain_lists(capacity: int, operations: list[tuple[str, int]]) -> None:
    broker, lists, dropped = Broker(capacity), defaultdict[int, list[int]](list), 0
    for number, (what, channel) in enumerate(operations):
        if what == "publish":
            broker.publish(channel, number)
            lists[channel].append(number)
            dropped += len(lists[channel]) > capacity
            lists[channel] = lists[channel][-capacity:]
        elif what == "next":
            assert broker.next(channel) == (lists[channel].pop(0) if lists[channel] else None)
        else:
            broker.discard(channel)
            lists[channel] = []
        assert [broker.depth(c) for c in range(4)] == [len(lists[c]) for c in range(4)] and broker.dropped == dropped
