"""Seed 003, "Disconnect", "Reconnect" and "Intermittent Network Scenarios".

Tier 1 is the queue on the log, tier 2 the in-flight window (docs/bridges.md). The seed moves
everything to a second buffer in memory, without a bound, while the remote broker is away; here
tier 2 holds what was sent and not acknowledged, has the bound of the window, and nothing joins it
while the remote broker is away: what waits stays on the log.
"""

from __future__ import annotations

import re

import pytest

from penstock.protocol.kinds import CONNECT, PUBACK, PUBLISH, PUBREC
from tests.support.bridged import (
    Line,
    drawn,
    each_mode,
    each_remote,
    first_of_each,
    numbered,
)
from tests.support.deadline import wait_for
from tests.support.fault_proxy import FOREVER
from tests.support.seen_packets import DOWN, UP

ANSWER = {1: PUBACK, 2: PUBREC}  # the first that the remote broker gives, by QoS

each_qos = pytest.mark.parametrize("qos", [1, 2], ids=["QoS 1", "QoS 2"])
one_by_one = pytest.mark.bridge(limits={"max_inflight": 1})
two_at_once = pytest.mark.bridge(limits={"max_inflight": 2})


# -- disconnect ----------------------------------------------------------------------------


@each_mode
@each_qos
@two_at_once
def test_two_tier_buffering_during_disconnect(line: Line, qos: int) -> None:
    """The seed's tier 2 takes all that is polled; ours what was sent, here two messages."""
    line.connected()
    answers = line.proxy.swallow(DOWN, ANSWER[qos], times=FOREVER)
    line.publish(qos, b"M1", b"M2", b"M3")
    answers.wait(2)
    line.tiers(1, 2)
    line.go_down()
    line.publish(qos, b"M4")
    line.tiers(2, 2)  # M1 and M2 in tier 2, M3 and M4 in tier 1
    assert line.proxy.payloads(UP) == [b"M1", b"M2"]


@each_mode
@pytest.mark.parametrize("qos", [0, 1, 2], ids=["QoS 0", "QoS 1", "QoS 2"])
def test_qos_comparison_during_disconnect(line: Line, qos: int) -> None:
    """Seed: "ALL QoS levels are buffered during disconnection." """
    line.connected()
    line.go_down()
    line.publish(qos, *numbered(3))
    line.tiers(3, 0)
    with line.far() as far:
        line.go_up()
        came = [far.take() for _ in range(3)]
        assert [(one.payload, one.qos) for one in came] == [(one, qos) for one in numbered(3)]
    line.all_gone()


@pytest.mark.bridge(persist=False)
@pytest.mark.parametrize("qos", [1, 2], ids=["QoS 1", "QoS 2"])
def test_qos_comparison_during_disconnect_persist_false(line: Line, qos: int) -> None:
    """Downgraded before it is queued, then as QoS 0."""
    line.connected()
    line.go_down()
    line.publish(qos, b"M1")
    line.tiers(1, 0)
    with line.far() as far:
        line.go_up()
        message = far.take()
        assert (message.payload, message.qos) == (b"M1", 0)


@pytest.mark.bridge(limits={"mqueue_store_qos0": False})
def test_qos_0_is_not_buffered_where_the_settings_say_so(line: Line) -> None:
    """Not in the seed, whose tier 2 takes everything: it is dropped, and counted."""
    line.connected()
    line.go_down()
    line.publish(0, b"M1")
    line.told("dropped/qos_0_while_offline", "1")
    line.tiers(0, 0)


@pytest.mark.bridge(limits={"max_mqueue_len": 3, "mqueue_overflow": "drop_oldest"})
def test_the_queue_has_the_bound_that_the_settings_give_it(line: Line) -> None:
    """The seed: "Buffer is unbounded (limited only by available memory)"; ours as it is set."""
    line.connected()
    line.go_down()
    line.publish(1, *numbered(5))
    line.told("dropped/queue_full", "2")
    line.tiers(3, 0)
    with line.far() as far:
        line.go_up()
        assert far.take_payloads(3) == numbered(3, 2)


@each_mode
def test_the_lag_is_the_age_of_the_oldest(line: Line) -> None:
    """``lag_s``: from 0, on while the remote broker is away, also for what is in flight; to 0."""
    line.connected()
    line.told("lag_s", "0.0")
    swallowed = line.proxy.swallow(DOWN, PUBACK)
    line.publish(1, b"M1")
    swallowed.wait()
    in_flight_s = wait_for("an age", lambda: float(line.tells("lag_s")))
    line.go_down()
    later_s = wait_for(
        "a greater age", lambda: age if (age := float(line.tells("lag_s"))) > in_flight_s else 0
    )
    line.publish(1, b"M2")
    wait_for("that of the oldest", lambda: float(line.tells("lag_s")) > later_s)
    line.go_up()
    line.all_gone()
    line.told("lag_s", "0.0")


# -- reconnect -----------------------------------------------------------------------------


@pytest.mark.bridge(port="closed", reconnect_s_min=0.1, reconnect_s_max=0.4)
def test_exponential_backoff_reconnection(line: Line) -> None:
    """The pause doubles up to the longest, a quarter shorter or longer, and begins anew."""
    expected_s = [0.1, 0.2, 0.4, 0.4, 0.4]

    def pauses_s() -> list[float]:
        said = re.findall(rf"bridge {line.name}: .*; again in (\d+\.\d) s", line.local.log())
        return [float(one) for one in said]

    wait_for("attempts", lambda: len(pauses_s()) >= len(expected_s))
    for pause_s, middle_s in zip(pauses_s(), expected_s, strict=False):
        assert 0.75 * middle_s - 0.05 <= pause_s <= 1.25 * middle_s + 0.05
    assert int(line.tells("attempt")) > 1
    line.go_up()
    line.connected()
    line.told("attempt", "0")
    line.told("state", "connected")


@each_remote
@each_qos
@two_at_once
def test_message_flow_on_reconnect(line: Line, qos: int) -> None:
    """Phase 1: tier 2, with DUP; phase 2: tier 1. "This ensures message ordering is preserved".

    M1 and M2 had arrived, and were not acknowledged: at QoS 1 they come twice.
    """
    line.connected()
    answers = line.proxy.swallow(DOWN, ANSWER[qos], times=FOREVER)
    with line.far() as far:
        line.publish(qos, b"M1", b"M2", b"M3", b"M4", b"M5")
        answers.wait(2)
        line.go_down()
        line.proxy.forget_rules()
        line.go_up()
        line.all_gone()
        first = [b"M1", b"M2"] if qos == 1 else []
        expected = [*first, b"M1", b"M2", b"M3", b"M4", b"M5"]
        assert (far.take_payloads(len(expected)), far.settle()) == (expected, [])
    sent = [(one.payload, one.dup) for one in line.proxy.passed(UP, PUBLISH) if one.connection > 1]
    assert sent == [(b"M1", True), (b"M2", True), (b"M3", False), (b"M4", False), (b"M5", False)]


@each_mode
@each_qos
def test_reconnect_with_qos_1_2_retry(line: Line, qos: int) -> None:
    """It goes out again with each connection, and is removed when it is acknowledged at last."""
    line.connected()
    cuts = line.proxy.cut_before(DOWN, ANSWER[qos], times=3)
    line.publish(qos, b"M1")
    cuts.wait(3)
    line.connected(4)
    line.all_gone()
    sent = line.proxy.passed(UP, PUBLISH)
    assert [(one.connection, one.dup) for one in sent] == [
        (1, False),
        (2, True),
        (3, True),
        (4, True),
    ]
    assert len({one.packet_id for one in sent}) == 1
    line.told("acknowledged/messages", "1")
    assert (line.tells("sent/messages"), line.tells("resent/messages")) == ("1", "3")


# -- intermittent network ------------------------------------------------------------------


@each_remote
@each_qos
@one_by_one
def test_network_flapping_scenario(line: Line, qos: int) -> None:
    """As drawn, one message at a time; M2 comes twice at QoS 1, for only its PUBACK was lost."""
    line.connected()
    with line.far() as far:
        line.publish(qos, b"M1")  # the network is up
        assert far.take().payload == b"M1"
        line.all_gone()

        line.go_down()
        line.publish(qos, b"M2", b"M3")
        line.tiers(2, 0)

        before_ack = line.proxy.cut_before(DOWN, ANSWER[qos], refuse=True)
        line.go_up()  # briefly
        before_ack.wait()
        line.told("connected", "0")
        line.tiers(1, 1)  # M2 retry pending
        line.publish(qos, b"M4")
        line.tiers(2, 1)

        line.go_up()  # stable
        line.all_gone()
        repeated = [b"M2"] if qos == 1 else []
        expected = [b"M2", *repeated, b"M3", b"M4"]
        assert (far.take_payloads(len(expected)), far.settle()) == (expected, [])
    answer = "PUBACK" if qos == 1 else "PUBREC"
    assert [told for told in drawn(line) if told.startswith(("PUBLISH", answer))] == [
        "PUBLISH M1",
        f"{answer} M1",
        "PUBLISH M2",
        f"{answer} M2 lost",
        "PUBLISH M2 DUP",
        f"{answer} M2",
        "PUBLISH M3",
        f"{answer} M3",
        "PUBLISH M4",
        f"{answer} M4",
    ]


@each_remote
@each_qos
@pytest.mark.parametrize("way", [UP, DOWN])
def test_a_link_that_flaps_again_and_again(line: Line, way: str, qos: int) -> None:
    """Every 23rd packet of one direction is the last of its connection, whatever it is."""
    line.connected()
    line.proxy.cut_before(way, lambda packet: packet.kind != CONNECT, nth=23, times=12)
    payloads = numbered(120)
    with line.far(kept=True) as far:
        line.publish(qos, *payloads)
        came: list[bytes] = []
        while not came or came[-1] != payloads[-1]:
            came.append(far.take().payload)
        line.all_gone()
        came += [packet.payload for packet in far.settle() if hasattr(packet, "payload")]
    assert first_of_each(came) == payloads
    if qos == 2:
        assert came == payloads
    assert line.proxy.connections > 5


@pytest.mark.parametrize("qos", [0, 1, 2], ids=["QoS 0", "QoS 1", "QoS 2"])
@pytest.mark.parametrize(
    "persist",
    [
        pytest.param(True, marks=pytest.mark.bridge(persist=True), id="persist=true"),
        pytest.param(False, marks=pytest.mark.bridge(persist=False), id="persist=false"),
    ],
)
def test_qos_behaviour_comparison_intermittent_network(line: Line, persist: bool, qos: int) -> None:
    """The network breaks while M1 is sent: lost, or sent again. M2 comes in any case."""
    line.connected()
    cut = line.proxy.cut_before(UP, PUBLISH)
    with line.far() as far:
        line.publish(qos, b"M1")
        cut.wait()
        line.connected(2)
        line.publish(1, b"M2")
        survives = persist and qos > 0
        expected = [b"M1", b"M2"] if survives else [b"M2"]
        assert far.take_payloads(len(expected)) == expected
    line.all_gone()
    line.told("resent/messages", "1" if survives else "0")
