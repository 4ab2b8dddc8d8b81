"""The wall clock is set while a broker runs: what takes a time takes just that.

Each test sees both directions, and a month: before, an interval stood still for as long as the
clock had been set back, and ended at once when it was set forward.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock.engine
from penstock.engine.values.event_kinds import CLOCK_JUMPED, DISCONNECTED, KINDS
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.mount_point import without_mount_point
from penstock.engine.values.options import EventOptions
from penstock.operators.listing import session_summary
from penstock.operators.selection import SessionSelection
from penstock.protocol.packets import Connect, Publish, Subscribe, Subscription, Will
from penstock.protocol.properties import Properties
from tests.unit.engine.bench import Bench, Line

HOUR_S = 3600
MONTH_S = 30 * 24 * HOUR_S

jumps = pytest.mark.parametrize("step_s", [-2 * HOUR_S, 2 * HOUR_S, MONTH_S, -MONTH_S])


def payloads(line: Line) -> list[bytes]:
    """What PUBLISH packets came."""
    return [packet.payload for packet in line.read() if isinstance(packet, Publish)]


def publish(line: Line, payload: bytes, expiry_s: int, retain: bool = False) -> None:
    properties = Properties(message_expiry_interval=expiry_s)
    line.send(Publish("t", payload, 1, retain, packet_id=1, properties=properties))
    line.bench.commit()


@jumps
def test_a_will_delay(step_s: int) -> None:
    bench = Bench()
    watcher = bench.subscriber("w", "t", 0)
    will = Will("t", b"gone", 0, properties=Properties(will_delay_interval=60))
    bench.join("c", durable=True, will=will).connection.lost("cut", bench.now)
    bench.pass_s(1)
    bench.jump_s(step_s)
    bench.pass_s(58)
    bench.commit()
    assert payloads(watcher) == []
    bench.pass_s(1)
    bench.commit()
    assert payloads(watcher) == [b"gone"]


@jumps
def test_the_expiry_of_a_session(step_s: int) -> None:
    bench = Bench()
    bench.join("c", durable=True, expiry_s=60).connection.lost("cut", bench.now)
    bench.pass_s(1)
    bench.jump_s(step_s)
    bench.pass_s(58)
    assert "c" in bench.server.registry.sessions
    bench.pass_s(1)
    assert "c" not in bench.server.registry.sessions


@jumps
@pytest.mark.parametrize("restarts", [False, True])
def test_the_expiry_of_a_message_that_waits(step_s: int, restarts: bool) -> None:
    bench = Bench()
    bench.subscriber("c", "t", 1).connection.lost("cut", bench.now)
    publisher = bench.join("p")
    publish(publisher, b"short", 60)
    publish(publisher, b"long", 100)
    bench.jump_s(step_s)
    publish(publisher, b"new", 60)
    if restarts:
        bench.commit()
        bench.restart()
    bench.pass_s(61)
    line = bench.join("c", durable=True)
    bench.commit()
    (packet,) = [packet for packet in line.read() if isinstance(packet, Publish)]
    assert packet.payload == b"long"
    assert packet.properties is not None
    assert packet.properties.message_expiry_interval == 39


@jumps
@pytest.mark.parametrize("restarts", [False, True])
def test_the_expiry_of_a_retained_message(step_s: int, restarts: bool) -> None:
    bench = Bench()
    publish(bench.join("p"), b"kept", 60, retain=True)
    bench.jump_s(step_s)
    if restarts:
        bench.commit()
        bench.restart()
    bench.pass_s(59)
    other = bench.join("o", durable=True)
    other.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    assert payloads(other) == [b"kept"]
    bench.pass_s(1)
    late = bench.join("l")
    late.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    assert payloads(late) == []


@jumps
def test_a_copy_of_a_retained_message_in_the_log(step_s: int) -> None:
    """It joins the log after the jump, and expires as if there had been none."""
    bench = Bench()
    publish(bench.join("p"), b"kept", 60, retain=True)
    bench.jump_s(step_s)
    bench.pass_s(10)
    line = bench.join("s", durable=True, receive_maximum=1)
    line.send(Subscribe(1, [Subscription("t", 1)]))
    bench.commit()
    (packet,) = [packet for packet in line.read() if isinstance(packet, Publish)]
    assert packet.properties is not None
    assert packet.properties.message_expiry_interval == 50
    copy = bench.store.read([bench.server.context.batch.next_offset - 1])
    (message,) = copy.values()
    assert message.internal
    assert message.received_at_us == bench.now.wall_us - 10_000_000
    assert message.expires_at_us == bench.now.steady_us + 50_000_000


@jumps
def test_qos_2_that_is_never_released(step_s: int) -> None:
    bench = Bench(EngineLimits(await_rel_timeout_s=60))
    line = bench.join("c", durable=True)
    line.send(Publish("t", b"x", 2, packet_id=7))
    bench.commit()
    session = bench.server.registry.sessions["c"]
    bench.pass_s(1)
    bench.jump_s(step_s)
    bench.pass_s(58)
    assert session.inbound.awaits_release(7)
    bench.pass_s(1)
    assert not session.inbound.awaits_release(7)


@jumps
def test_the_time_that_a_client_was_here_does_not_jump(step_s: int) -> None:
    bench = Bench(events=EventOptions(KINDS, ("#",)))
    line = bench.join("c", durable=True)
    session = bench.server.registry.sessions["c"]
    bench.pass_s(5)
    bench.jump_s(step_s)
    line.connection.lost("cut", bench.now)
    events = bench.server.context.events
    assert events is not None
    assert [event["by_us"] for event in events.take(CLOCK_JUMPED)] == [step_s * 1_000_000]
    assert [event["duration_us"] for event in events.take(DISCONNECTED)] == [5_000_000]
    bench.pass_s(5)
    told = session_summary(bench.server, session)
    assert told.since_us == bench.now.wall_us - 5_000_000
    assert told.expires_at_us == bench.now.wall_us + (HOUR_S - 5) * 1_000_000
    assert SessionSelection(older_than_s=4.9).has(session, None, bench.now)
    assert not SessionSelection(older_than_s=5).has(session, None, bench.now)


@jumps
def test_new_messages_have_the_new_date(step_s: int) -> None:
    bench = Bench()
    publish(bench.join("p"), b"before", 60)
    before_us = bench.now.wall_us
    bench.jump_s(step_s)
    publish(bench.join("q"), b"after", 60)
    dates = [message.received_at_us for message in bench.store.read([0, 1]).values()]
    assert dates == [before_us, before_us + step_s * 1_000_000]


@jumps
def test_a_message_for_a_mounted_client_keeps_its_times(step_s: int) -> None:
    bench = Bench()
    bench.jump_s(step_s)
    publish(bench.join("p"), b"x", 60)
    (message,) = bench.store.read([0]).values()
    changed = without_mount_point(message, "")
    assert changed is not None
    assert changed.expires_at_us == message.expires_at_us == bench.now.steady_us + 60_000_000
    assert changed.steady_us == message.steady_us == bench.now.steady_us


def test_a_session_that_was_taken_up_again() -> None:
    """The moment it was left counts, not what the clock said then."""
    bench = Bench()
    bench.join("c", durable=True, expiry_s=60).connection.lost("cut", bench.now)
    bench.pass_s(50)
    bench.jump_s(-HOUR_S)
    again, connack = bench.connect(
        Connect("c", 5, False, 0, properties=Properties(session_expiry_interval=60))
    )
    assert connack.session_present
    bench.pass_s(50)
    again.connection.lost("cut", bench.now)
    bench.pass_s(59)
    assert "c" in bench.server.registry.sessions
    bench.pass_s(1)
    assert "c" not in bench.server.registry.sessions


def test_nothing_is_due_by_the_wall_clock() -> None:
    """The engine dates messages and events by it, and does nothing else with it."""
    dating = re.compile(r"now_us = now\.wall_us|(?<![-=+<>] )(?<!expired\()now\.wall_us(?=,|\)|$)")
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(Path(penstock.engine.__file__).parent.glob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if "now.wall_us" in dating.sub("", line)
    ]
    assert found == []
