"""A session belongs to the user who made it (MQTT 5 §5.4.2)."""

from __future__ import annotations

from typing import Final

import pytest

from penstock.engine.values.drop_reasons import SESSION_ENDED
from penstock.engine.values.event_kinds import KINDS, REFUSED
from penstock.engine.values.options import EventOptions, ServerOptions
from penstock.engine.values.records import SessionRecord
from penstock.protocol import reasons
from penstock.protocol.packets import Connect, Publish, Subscribe, Subscription, Will
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, ByName, Line, publishes

VERSIONS: Final = (3, 4, 5)
USERS: Final = ("alice", "mallory", None)


def connect(
    username: str | None, clean: bool, version: int = 5, will: Will | None = None
) -> Connect:
    properties = Properties(session_expiry_interval=1000) if version == 5 else None
    return Connect("c", version, clean, 0, will, username, None, properties)


def bench_of(options: ServerOptions | None = None, events: EventOptions | None = None) -> Bench:
    return Bench(authenticate=ByName(), options=options, events=events)


def with_unacknowledged(bench: Bench, owner: str | None, version: int) -> Line:
    """The owner, connected, with one message in its window."""
    line, connack = bench.connect(connect(owner, False, version))
    assert connack.reason_code == reasons.SUCCESS
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    line.read()
    bench.publish("t", b"yours")
    assert len(publishes(line.read())) == 1
    return line


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("stranger", USERS)
@pytest.mark.parametrize("owner", USERS)
@pytest.mark.parametrize("is_away", [False, True])
def test_another_user_touches_nothing(
    owner: str | None, stranger: str | None, version: int, clean: bool, is_away: bool
) -> None:
    """Neither the connection nor the window, the queue and the subscriptions of its owner."""
    if owner == stranger:
        return
    bench = bench_of()
    line = with_unacknowledged(bench, owner, version)
    if is_away:
        line.cut()
        bench.commit()
    session = line.session
    _, connack = bench.connect(connect(stranger, clean, version))
    assert (connack.reason_code, connack.session_present) == (reasons.NOT_AUTHORIZED, False)
    assert line.session is session
    assert line.connection.link.is_closed == is_away
    assert bench.server.drops.counts[SESSION_ENDED] == 0
    assert session.username == owner
    back, connack = bench.connect(connect(owner, False, version))
    assert connack.session_present == (version > 3), "MQTT 3.1 does not tell"
    (message,) = publishes(back.read())
    assert (message.payload, message.dup) == (b"yours", True)


def test_the_owner_is_known_after_a_restart() -> None:
    for owner in USERS:
        bench = bench_of()
        with_unacknowledged(bench, owner, 5)
        bench.restart()
        for stranger in USERS:
            if stranger != owner:
                _, connack = bench.connect(connect(stranger, True))
                assert connack.reason_code == reasons.NOT_AUTHORIZED
        _, connack = bench.connect(connect(owner, False))
        assert connack.session_present


def test_a_will_of_another_user_is_neither_disarmed_nor_replaced() -> None:
    bench = bench_of()
    watcher = bench.subscriber("w", "will", 1)
    will = Will("will", b"alice is lost", 1, False, Properties(will_delay_interval=10))
    line, _ = bench.connect(connect("alice", False, will=will))
    line.cut()
    bench.commit()
    for clean in (False, True):
        bench.connect(connect("mallory", clean, will=Will("will", b"mallory", 0, False)))
    assert watcher.read() == []
    bench.pass_s(10)
    bench.commit()
    assert [message.payload for message in publishes(watcher.read())] == [b"alice is lost"]


def test_an_ended_session_belongs_to_nobody() -> None:
    bench = bench_of()
    line, _ = bench.connect(connect("alice", False))
    line.cut()
    bench.pass_s(1000)
    _, connack = bench.connect(connect("mallory", False))
    assert (connack.reason_code, connack.session_present) == (reasons.SUCCESS, False)


def test_one_of_an_older_store_is_the_next_users() -> None:
    """Its record does not tell whether the owner was anonymous or not written yet."""
    bench = bench_of()
    bench.store._sessions["c"] = SessionRecord("c", 1, 1000, 0)
    bench.restart()
    _, connack = bench.connect(connect("alice", False))
    assert connack.session_present
    _, connack = bench.connect(connect(None, False))
    assert connack.reason_code == reasons.NOT_AUTHORIZED
    bench.restart()
    _, connack = bench.connect(connect(None, False))
    assert connack.reason_code == reasons.NOT_AUTHORIZED


def test_users_who_share_identifiers_on_purpose_do() -> None:
    bench = bench_of(ServerOptions(client_ids_shared=True))
    first = with_unacknowledged(bench, "alice", 5)
    second, connack = bench.connect(connect("bob", False))
    assert (connack.reason_code, connack.session_present) == (reasons.SUCCESS, True)
    assert first.connection.link.is_closed
    assert len(publishes(second.read())) == 1
    assert second.session.username == "bob"


def test_the_refusal_and_its_event_say_why() -> None:
    bench = bench_of(events=EventOptions(KINDS))
    why = "the session of this client identifier belongs to another user"
    events = bench.server.context.events
    assert events is not None
    bench.connect(connect("alice", False))
    line, connack = bench.connect(connect("mallory", True))
    assert connack.properties is not None
    assert connack.properties.reason_string == why
    assert why in (line.connection.close_reason or "")
    (event,) = events.take(REFUSED)
    assert (event["client"], event["reason"]) == ("c", why)


def test_publishing_as_another_user_with_that_name_is_not_possible() -> None:
    bench = bench_of()
    bench.connect(connect("alice", False))
    line = bench.line()
    end = bench.server.context.batch.next_offset
    line.send(connect("mallory", True), Publish("t", b"", 1, packet_id=1))
    assert bench.server.context.batch.next_offset == end
