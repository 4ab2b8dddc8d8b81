"""A commit: what makes it one that must be written, and where its messages stand in the log."""

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.session import Session
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.log_columns import columns_of
from penstock.engine.values.message import Message
from penstock.engine.values.records import (
    ProducerRecord,
    SessionRecord,
    SessionState,
    SubscriptionRecord,
    WillRecord,
)
from penstock.engine.values.steady_clock import ClockRecord, Leads
from penstock.engine.wire.link import DeferredPackets, Link, Turn

MESSAGE = Message("t", b"x")


def test_packets_and_bodies_that_wait_for_a_commit_are_nothing_to_write() -> None:
    commit = Commit(7)
    link = Link(Turn())
    link.send_after_commit(b"\xd0\x00")
    commit.deferred_packets.append(link.seal())
    session = Session("c", 1, 0, EngineContext(7), EngineLimits(), Drops())
    commit.body_requests.append((session, [3]))
    assert isinstance(commit.deferred_packets[0], DeferredPackets)
    assert not commit.has_writes
    assert (commit.appended_count, commit.next_offset) == (0, 7)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("messages", MESSAGE),
        ("ended", ("c", 1)),
        ("sessions", SessionRecord("c", 1, 10, 0)),
        ("subscriptions", SubscriptionRecord(1, "t", None)),
        ("progress", SessionState(1, 1, 1, [], [], [], [], [], [])),
        ("retained", ("t", None)),
        ("wills", ("c", WillRecord(MESSAGE, 0, 0))),
        ("producers", ("p", ProducerRecord("p", 1, 0))),
    ],
)
def test_each_kind_of_change_is_something_to_write(kind: str, change: object) -> None:
    commit = Commit(7)
    getattr(commit, kind).append(change)
    assert commit.has_writes


def test_the_clock_alone_is_something_to_write() -> None:
    commit = Commit(7)
    commit.clock = ClockRecord(1, 2, 3, "boot", Leads([]))
    assert commit.has_writes


def test_messages_stand_in_the_log_from_the_base_on_however_they_are_collected() -> None:
    listed, in_columns = Commit(7), Commit(7)
    listed.messages = [MESSAGE, MESSAGE]
    in_columns.columns = columns_of([MESSAGE, MESSAGE])
    for commit in (listed, in_columns):
        assert (commit.appended_count, commit.next_offset, commit.has_writes) == (2, 9, True)
