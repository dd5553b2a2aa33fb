"""The broker: channels by batch ID, each of the newest message, with deadlines."""

from __future__ import annotations

from vflbench.algorithms.split.broker import ROUNDING, Broker


def test_a_channel_holds_the_newest_message_and_knows_no_other() -> None:
    broker = Broker()
    for channel, message in ((7, "old"), (2, "x"), (7, "new")):
        broker.publish(channel, message)
    assert broker.dropped == 1 and [broker.holds(channel) for channel in (7, 2, 0)] == [True, True, False]
    assert [broker.next(7), broker.next(7)] == ["new", None]
    assert broker.next(2) == "x" and broker.next(0) is None and broker.dropped == 1
    assert broker.channels == {}  # nothing stays of a channel that is empty


def test_deadlines_end_with_a_message_or_in_their_order() -> None:
    broker = Broker()
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
    broker = Broker()
    for channel in (1, 2):
        broker.publish(channel, "message")
    broker.wait(1, 3.0)
    broker.wait(2, 4.0)
    broker.discard(1)
    assert (broker.holds(1), broker.holds(2), broker.dropped, broker.deadline()) == (False, True, 0, 4.0)
    broker.discard(2)
    broker.discard(5)
    assert broker.channels == {} and broker.deadline() is None
