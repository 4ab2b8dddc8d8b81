"""Seed 003, "Normal Operation": what a bridge sends, and when a message leaves its queue.

What the seed calls an inflight marker is a place in the in-flight window (``inflight/messages``);
its tier 1 is the queue on the log (``queue/messages``).
"""

from __future__ import annotations

import pytest

from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from tests.support.bridged import Line, assert_drawn, drawn, each_mode, each_remote
from tests.support.deadline import wait_until_logged
from tests.support.seen_packets import DOWN, UP

FOUR_WAYS = ["PUBLISH M1", "PUBREC M1", "PUBREL M1", "PUBCOMP M1"]


@each_mode
def test_qos_0_with_persist_true_is_fire_and_forget(line: Line) -> None:
    """No packet identifier, no marker, no answer."""
    line.connected()
    with line.far() as far:
        line.publish(0, b"M1")
        assert (far.take().payload, far.settle()) == (b"M1", [])
    line.told("sent/messages", "1")
    assert (line.tells("inflight/messages"), line.tells("acknowledged/messages")) == ("0", "0")
    assert_drawn(line, ["PUBLISH M1"])
    (packet,) = line.proxy.passed(UP, PUBLISH)
    assert (packet.qos, packet.packet_id) == (0, 0)


@each_mode
def test_qos_0_is_lost_where_its_sending_fails(line: Line) -> None:
    """Seed: "If send fails, message is lost (no retry mechanism for QoS 0)."""
    line.connected()
    cut = line.proxy.cut_before(UP, PUBLISH)
    with line.far() as far:
        line.publish(0, b"M1")
        cut.wait()
        line.connected(2)
        line.publish(1, b"M2")
        assert far.take().payload == b"M2"
    assert_drawn(line, ["PUBLISH M1 lost", "PUBLISH M2", "PUBACK M2"])


@each_mode
def test_qos_1_with_persist_true_is_removed_by_its_puback(line: Line) -> None:
    line.connected()
    puback = line.proxy.swallow(DOWN, PUBACK)
    with line.far() as far:
        line.publish(1, b"M1")
        assert far.take().payload == b"M1"
        puback.wait()
        line.tiers(0, 1)  # the marker is set, and nothing but PUBACK takes it away
        assert line.tells("acknowledged/messages") == "0"
        line.proxy.reset()
        assert far.take().payload == b"M1"  # at least once
        line.all_gone()
    assert_drawn(line, ["PUBLISH M1", "PUBACK M1 lost"], 1)
    assert_drawn(line, ["PUBLISH M1 DUP", "PUBACK M1"], 2)
    line.told("acknowledged/messages", "1")
    assert (line.tells("sent/messages"), line.tells("resent/messages")) == ("1", "1")


@each_remote
def test_qos_2_with_persist_true_is_removed_by_its_pubcomp(line: Line) -> None:
    line.connected()
    pubcomp = line.proxy.swallow(DOWN, PUBCOMP)
    with line.far() as far:
        line.publish(2, b"M1")
        assert far.take().payload == b"M1"
        pubcomp.wait()
        line.tiers(0, 1)
        assert line.tells("acknowledged/messages") == "0"
        line.proxy.reset()
        line.all_gone()
        assert far.settle() == []  # exactly once
    assert_drawn(line, [*FOUR_WAYS[:3], "PUBCOMP M1 lost"], 1)
    assert_drawn(line, ["PUBREL M1", "PUBCOMP M1"], 2)
    line.told("acknowledged/messages", "1")


LOST = [
    pytest.param(UP, PUBLISH, ["PUBLISH M1 DUP", *FOUR_WAYS[1:]], id="PUBLISH"),
    pytest.param(DOWN, PUBREC, ["PUBLISH M1 DUP", *FOUR_WAYS[1:]], id="PUBREC"),
    pytest.param(UP, PUBREL, FOUR_WAYS[2:], id="PUBREL"),
    pytest.param(DOWN, PUBCOMP, FOUR_WAYS[2:], id="PUBCOMP"),
]


@each_mode
@pytest.mark.parametrize(("way", "kind", "repeated"), LOST)
def test_qos_2_if_any_step_fails_it_stays_in_the_queue(
    line: Line, way: str, kind: int, repeated: list[str]
) -> None:
    """Seed: "4-way handshake", cut at each of its steps, and exactly once each time."""
    line.connected()
    cut = line.proxy.cut_before(way, kind, refuse=True)
    with line.far() as far:
        line.publish(2, b"M1")
        cut.wait()
        line.told("connected", "0")
        line.tiers(0, 1)
        line.go_up()
        line.all_gone()
        assert (far.take().payload, far.settle()) == (b"M1", [])
    steps = {PUBLISH: 1, PUBREC: 2, PUBREL: 3, PUBCOMP: 4}[kind]
    assert_drawn(line, [*FOUR_WAYS[: steps - 1], f"{FOUR_WAYS[steps - 1]} lost"], 1)
    assert_drawn(line, repeated, 2)


@pytest.mark.bridge(persist=False)
@pytest.mark.parametrize("qos", [1, 2], ids=["QoS 1", "QoS 2"])
@each_mode
def test_qos_1_and_2_with_persist_false_are_downgraded(line: Line, qos: int) -> None:
    """Seed: "Original QoS (1 or 2) is forcefully downgraded to QoS 0", and the log warns of it."""
    line.connected()
    wait_until_logged(line.local, f"bridge {line.name}: persist is false")
    with line.far() as far:
        line.publish(qos, b"M1")
        message = far.take()
        assert (message.payload, message.qos) == (b"M1", 0)
    line.told("sent/messages", "1")
    assert (line.tells("inflight/messages"), line.tells("acknowledged/messages")) == ("0", "0")
    assert_drawn(line, ["PUBLISH M1"])


@pytest.mark.bridge(version="3.1.1")
@pytest.mark.parametrize("kind", [PUBACK, PUBREC], ids=["PUBACK", "PUBREC"])
def test_mqtt_311_repeats_the_same_way(line: Line, kind: int) -> None:
    qos = 1 if kind == PUBACK else 2
    line.connected()
    cut = line.proxy.cut_before(DOWN, kind)
    with line.far() as far:
        line.publish(qos, b"M1")
        cut.wait()
        line.connected(2)
        line.all_gone()
        came = [far.take().payload, *([far.take().payload] if qos == 1 else [])]
        assert (set(came), far.settle()) == ({b"M1"}, [])
    assert drawn(line, 2)[0] == "PUBLISH M1 DUP"
