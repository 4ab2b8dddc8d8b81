"""The dialect of bridges, protocol levels 0x83 and 0x84: spoken by others to us, and by us."""

from __future__ import annotations

import socket
from contextlib import closing
from functools import partial

from penstock.protocol.kinds import V31, V311
from penstock.protocol.packets import Connack, Connect, Publish, Will
from tests.support.bridged import Start, bridge, client, connected, with_bridges
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S, wait_for, wait_until_logged
from tests.support.raw_client import RawClient

STATE = "$SYS/broker/connection/foreign/state"


def joined(broker: Broker, name: str, version: int, will: Will | None = None) -> RawClient:
    """A foreign bridge that was let in."""
    foreign = RawClient(broker.address, version)
    foreign.send(Connect(name, version, will=will, is_bridge=True))
    assert foreign.expect(Connack) == Connack(0)
    return foreign


def test_a_foreign_bridge_is_sent_retain_as_published_and_nothing_of_its_own(
    shared_broker: Broker, name: str
) -> None:
    for version in (V31, V311):
        topic = f"{name}/{version}"
        with joined(shared_broker, topic, version) as foreign, client(shared_broker, name) as near:
            foreign.subscribe(f"{name}/#")
            near.publish(topic, b"1", 1, retain=True)
            near.publish(topic, b"", 1, retain=True)
            near.publish(topic, b"2", 1)
            came = [foreign.take() for _ in range(3)]
            assert [(one.payload, one.retain) for one in came] == [
                (b"1", True),
                (b"", True),
                (b"2", False),
            ]
            foreign.publish(topic, b"its own", 1)
            near.publish(topic, b"not its own", 1)
            assert foreign.take().payload == b"not its own"


def test_the_notification_of_a_foreign_bridge_is_told_like_the_rest_of_sys(
    shared_broker: Broker, name: str
) -> None:
    state = STATE.replace("foreign", name)
    with joined(shared_broker, name, V311, Will(state, b"0", 1, True)) as foreign:
        foreign.publish(state, b"1", 1, retain=True)
        with client(shared_broker, f"{name}-watches", state) as watching:
            assert watching.take().payload == b"1"
            foreign.drop()
            assert watching.take().payload == b"0"
        with client(shared_broker, f"{name}-clears", state) as clearing:
            assert clearing.take().payload == b"0"
            clearing.publish(state, b"", 1, retain=True)
            assert clearing.take().payload == b""
        with client(shared_broker, f"{name}-later", state) as later:
            assert later.settle() == []


def test_no_other_topic_of_sys_is_open(shared_broker: Broker, name: str) -> None:
    for topic in ("$SYS/broker/connection/a/b/state", "$SYS/broker/connection//state", "$SYS/a"):
        with RawClient(shared_broker.address, V311) as foreign:
            foreign.send(Connect(name, V311, will=Will(topic, b"0"), is_bridge=True))
            assert foreign.expect(Connack).reason_code != 0


def test_a_remote_broker_that_does_not_know_the_dialect_is_spoken_to_without(start: Start) -> None:
    """By return code 1, and by hanging up."""
    with closing(socket.create_server(("127.0.0.1", 0))) as remote:
        remote.settimeout(DEADLINE_S)
        settings = bridge(remote.getsockname(), version="3.1.1")
        local = start(with_bridges(settings))
        levels: list[int] = []
        for answer in (b"\x20\x02\x00\x01", b"", b"", b"\x20\x02\x00\x00"):
            accepted = remote.accept()[0]
            with accepted:
                accepted.settimeout(DEADLINE_S)
                levels.append(accepted.recv(1000)[8])
                accepted.sendall(answer)
                if len(levels) == 4:
                    connected(local)
        assert levels == [0x84, 0x04, 0x84, 0x04]
        wait_until_logged(local, "may not know the dialect of bridges")


def test_our_bridge_keeps_copies_of_retained_messages_up_to_date(
    start: Start, shared_broker: Broker, name: str
) -> None:
    forwards = [{"topic_filters": [f"{name}/#"], "direction": "both"}]
    remote = bridge(shared_broker.address, version="3.1.1", forwards=forwards, client_id=name)
    local = start(with_bridges(remote))
    connected(local)
    topic = f"{name}/a"

    def is_kept(payload: bytes) -> bool:
        with client(local, "looks", topic) as looking:
            found = [one.payload for one in looking.settle() if isinstance(one, Publish)]
            return found == ([payload] if payload else [])

    with client(shared_broker, f"{name}-sets") as setting:
        for payload in (b"1", b"2", b""):
            setting.publish(topic, payload, 1, retain=True)
            setting.settle()
            wait_for(f"{payload!r}", partial(is_kept, payload))
    assert "may not know" not in local.log()
