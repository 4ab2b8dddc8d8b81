"""However a connection is ended on purpose: what was taken over from it is acknowledged, and the
farewell comes last."""

from collections.abc import Callable
from typing import Final

import pytest

from penstock.engine.server.draining import Draining
from penstock.engine.values.access import Authorize
from penstock.operators import admin_actions
from penstock.protocol import reasons
from penstock.protocol.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from tests.unit.engine.bench import Bench, Line

KEEP_ALIVE_S: Final = 10


def stop(bench: Bench, _: Line) -> None:
    bench.server.shut_down(reasons.SERVER_SHUTTING_DOWN, "stop", bench.now)


def hand_over(bench: Bench, _: Line) -> None:
    bench.server.shut_down(reasons.USE_ANOTHER_SERVER, "hand-over", bench.now, {"": "other:1883"})


def kick(bench: Bench, line: Line) -> None:
    assert admin_actions.kick(bench.server, line.session, "", bench.now)


def remove(bench: Bench, line: Line) -> None:
    assert admin_actions.remove_session(bench.server, line.session, bench.now)


def drain(bench: Bench, _: Line) -> None:
    admin_actions.drain(bench.server, Draining(reasons.SERVER_MOVED, "", 1.0, bench.now))
    bench.server.tick(bench.now)


def take_over(bench: Bench, line: Line) -> None:
    bench.line(line.version).send(Connect("c", line.version, False, 0))


def clean_start(bench: Bench, line: Line) -> None:
    bench.line(line.version).send(Connect("c", line.version, True, 0))


def silence(bench: Bench, line: Line) -> None:
    bench.pass_s(1.5 * KEEP_ALIVE_S + 1)
    line.connection.tick(bench.now)


def revoke(bench: Bench, line: Line) -> None:
    line.session.username = "alice"
    bench.server.set_authorize(Authorize(), {"alice"}, bench.now)


def break_the_protocol(_: Bench, line: Line) -> None:
    line.send(Connect("c", line.version, True, 0))


def leave(_: Bench, line: Line) -> None:
    line.send(Disconnect())


ENDS: Final[dict[Callable[[Bench, Line], None], int | None]] = {
    stop: reasons.SERVER_SHUTTING_DOWN,
    hand_over: reasons.USE_ANOTHER_SERVER,
    kick: reasons.ADMINISTRATIVE_ACTION,
    remove: reasons.ADMINISTRATIVE_ACTION,
    drain: reasons.SERVER_MOVED,
    take_over: reasons.SESSION_TAKEN_OVER,
    clean_start: reasons.SESSION_TAKEN_OVER,
    silence: reasons.KEEP_ALIVE_TIMEOUT,
    revoke: reasons.NOT_AUTHORIZED,
    break_the_protocol: reasons.PROTOCOL_ERROR,
    leave: None,
}


def ended_by(*left_out: Callable[[Bench, Line], None]) -> pytest.MarkDecorator:
    ends = [end for end in ENDS if end not in left_out]
    return pytest.mark.parametrize(
        ("end", "code"),
        [(end, ENDS[end]) for end in ends],
        ids=[end.__name__ for end in ends],
    )


every_end = ended_by()


def taken_over(bench: Bench, version: int) -> tuple[Line, list[Packet]]:
    """A client with messages in the commit under way and in the open batch; its answers."""
    line = bench.join("c", version, durable=True, keep_alive_s=KEEP_ALIVE_S)
    line.send(Publish("t", b"0", 2, packet_id=9))
    bench.commit()
    assert line.read() == [Pubrec(9)]
    line.send(Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 2, packet_id=2))
    return line, [Puback(1), Pubrec(2), Pubcomp(9), Puback(3)]


@every_end
@pytest.mark.parametrize("version", [3, 4, 5])
def test_messages_taken_over_are_acknowledged_and_the_farewell_is_last(
    end: Callable[[Bench, Line], None], code: int | None, version: int
) -> None:
    """[MQTT-4.13.1-1]"""
    bench = Bench()
    line, answers = taken_over(bench, version)
    under_way = bench.seal()
    line.send(Pubrel(9), Publish("t", b"3", 1, packet_id=3))
    end(bench, line)
    assert line.connection.link.is_closed
    assert line.read() == [], "nothing of it is on disk"
    bench.finish(under_way)
    bench.commit()
    told = line.read()
    if code is not None and version == 5:
        farewell = told.pop()
        assert isinstance(farewell, Disconnect)
        assert farewell.reason_code == code
    assert told == answers
    assert line.connection.link.is_drained


@every_end
def test_the_farewell_goes_at_once_if_nothing_waits(
    end: Callable[[Bench, Line], None], code: int | None
) -> None:
    bench = Bench()
    line = bench.join("c", 5, keep_alive_s=KEEP_ALIVE_S)
    end(bench, line)
    told = line.read()
    assert [packet.reason_code for packet in told if isinstance(packet, Disconnect)] == (
        [] if code is None else [code]
    )
    assert line.connection.link.is_drained


@ended_by(take_over, clean_start)  # these need the store themselves
def test_while_the_store_fails_nothing_is_waited_for(
    end: Callable[[Bench, Line], None], code: int | None
) -> None:
    bench = Bench()
    line, _ = taken_over(bench, 5)
    bench.server.context.store_health.mark_failed("the disk is full")
    end(bench, line)
    assert line.connection.link.is_drained
    told = line.read()
    assert [packet.reason_code for packet in told if isinstance(packet, Disconnect)] == (
        [] if code is None else [code]
    )
    assert all(isinstance(packet, Disconnect) for packet in told)
    bench.server.context.store_recovered()
    bench.commit()
    assert line.read() == [], "it is closed"


def test_a_client_that_waits_too_long_for_the_last_commit_gets_the_farewell_alone() -> None:
    bench = Bench()
    line, _ = taken_over(bench, 5)
    under_way = bench.seal()
    kick(bench, line)
    link = line.connection.link
    drained = [link.is_drained]
    link.stop_draining()
    bench.write_ready()
    drained.append(link.is_drained)
    assert drained == [False, True]
    [told] = line.read()
    assert isinstance(told, Disconnect)
    bench.finish(under_way)
    bench.commit()
    assert line.read() == []
    assert link.pending_bytes == 0


@pytest.mark.parametrize("gives_up", [False, True])
def test_no_disconnect_goes_before_a_connack(gives_up: bool) -> None:
    """[MQTT-3.14.0-1]"""
    bench = Bench()
    line = bench.line()
    line.send(Connect("c", 5, True, 0))
    under_way = bench.seal()
    kick(bench, line)
    if gives_up:
        line.connection.link.stop_draining()
    bench.finish(under_way)
    bench.commit()
    assert [type(packet) for packet in line.read()] == ([] if gives_up else [Connack, Disconnect])


def test_qos_0_that_waits_behind_a_commit_is_not_sent_behind_the_farewell() -> None:
    bench = Bench()
    line = bench.subscriber("c", "t", 0)
    publisher = bench.join("p")
    publisher.send(Publish("t", b"1", 1, packet_id=1))
    under_way = bench.seal()
    publisher.send(Publish("t", b"2"))
    kick(bench, line)
    bench.finish(under_way)
    bench.commit()
    told = line.read()
    assert told[:-1] == [Publish("t", b"1"), Publish("t", b"2")]
    assert isinstance(told[-1], Disconnect)
