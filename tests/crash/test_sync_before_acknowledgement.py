"""No acknowledgement leaves before the fsync: read from the system calls of the real broker."""

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.kinds import V5, V311
from penstock.protocol.packets import Puback, Pubcomp, Publish, Pubrec, Pubrel
from tests.support.broker import SERVE, Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients
from tests.support.raw_client import RawClient
from tests.support.sync_check import Verdict, check
from tests.support.system_calls import command, read_calls

PUBLISHERS: Final = 4
ROUNDS: Final = 12
BURST: Final = 5
UNSYNCED: Final = (sys.executable, str(Path(__file__).with_name("unsynced_broker.py")), "serve")

pytestmark = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
)


def traced(directory: Path, clients: Clients, serve: Sequence[str]) -> Verdict:
    """Run clients against a traced broker and check its trace."""
    trace = directory / "trace"
    broker = Broker(directory, command=[*command(trace), *serve])
    try:
        broker.start()
        publish_and_deliver(broker, clients)
        assert broker.stop() == 0
        wait_for("strace to end", lambda: not broker.family())
    finally:
        broker.close()
    return check(read_calls(trace.read_text().splitlines()))


def publish_and_deliver(broker: Broker, clients: Clients) -> None:
    """Several publishers at once at QoS 1 and 2; a subscriber that acknowledges everything."""
    subscriber = clients.join(broker, "s", V5, clean_start=False, expiry_s=3600)
    subscriber.subscribe("t/#")
    publishers = []
    for number in range(PUBLISHERS):
        version = (V311, V5)[number % 2]
        expiry_s = 3600 if version == V5 else None
        publishers.append(
            clients.join(broker, f"p{number}", version, clean_start=False, expiry_s=expiry_s)
        )
    for turn in range(ROUNDS):
        for number, publisher in enumerate(publishers):
            publisher.send(*burst(number, turn))
        for publisher in publishers:
            take_acknowledgements(publisher, turn)
        for _ in range(PUBLISHERS * BURST):
            subscriber.take()
    for client in (subscriber, *publishers):
        client.disconnect()


def burst(number: int, turn: int) -> list[Publish]:
    """Messages with payloads found nowhere else."""
    return [
        Publish(
            f"t/{number}",
            b"<marker %d-%d-%d>" % (number, turn, position),
            1 + position % 2,
            packet_id=1 + turn * BURST + position,
        )
        for position in range(BURST)
    ]


def take_acknowledgements(publisher: RawClient, turn: int) -> None:
    """The acknowledgements of one burst, and the rest of the QoS 2 flow."""
    for message in burst(0, turn):
        if message.qos == 1:
            assert publisher.expect(Puback).packet_id == message.packet_id
        else:
            assert publisher.expect(Pubrec).packet_id == message.packet_id
    released = [message.packet_id for message in burst(0, turn) if message.qos == 2]
    publisher.send(*(Pubrel(packet_id) for packet_id in released))
    for packet_id in released:
        assert publisher.expect(Pubcomp).packet_id == packet_id


def test_no_acknowledgement_leaves_before_the_fsync(tmp_path: Path, clients: Clients) -> None:
    verdict = traced(tmp_path, clients, SERVE)
    qos2 = PUBLISHERS * ROUNDS * (BURST // 2)
    qos1 = PUBLISHERS * ROUNDS * BURST - qos2
    assert verdict.checked == {
        "Puback": qos1,
        "Pubrec": qos2,
        "Pubcomp": qos2,
        "Publish": qos1 + qos2,
        "Pubrel": qos2,
    }
    assert verdict.violations == []


def test_a_broker_that_does_not_sync_is_caught(tmp_path: Path, clients: Clients) -> None:
    """The same run with the sync switched off: nearly nothing it promises is on disk."""
    verdict = traced(tmp_path, clients, UNSYNCED)
    checked = sum(verdict.checked.values())
    assert len(verdict.violations) > checked * 0.9, verdict.violations
