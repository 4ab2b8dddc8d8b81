"""A bridge over a link that is slow, cut, half closed or silent: both directions at once.

QoS 1: nothing is lost, and what comes again comes after what came before it. QoS 2: nothing is lost
and nothing comes again, unless the remote broker publishes it as a new message, against the rule
(``Line.published_after_pubrel``). Order is kept in either case (delivery contract, rules 4 and 5).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.protocol.packets import Publish
from tests.support.bridged import Line, client, each_remote, first_of_each, numbered
from tests.support.deadline import wait_for
from tests.support.raw_client import RawClient
from tests.support.seen_packets import DOWN, UP

COUNT = 50

Disturb = Callable[[Line, int], None]


def again_and_again(fault: Callable[[Line], None]) -> Disturb:
    """With every tenth message, each time on a connection that stands."""

    def disturb(line: Line, number: int) -> None:
        if number % 10 == 5:
            wait_for("the next connection", lambda: line.proxy.open_connections > 0)
            fault(line)

    return disturb


def in_the_middle(begin: Callable[[Line], None], end: Callable[[Line], None]) -> Disturb:
    """From the tenth message to the fortieth."""

    def disturb(line: Line, number: int) -> None:
        if number == 10:
            begin(line)
        elif number == 40:
            end(line)

    return disturb


def unreachable(line: Line) -> None:
    line.proxy.refuse()
    line.proxy.reset()


FAULTS: dict[str, tuple[Disturb, bool]] = {  # and whether it ends connections
    "delay": (in_the_middle(lambda at: at.proxy.delay(0.05), lambda at: at.proxy.delay(0)), False),
    "throttle": (
        in_the_middle(lambda at: at.proxy.throttle(5_000), lambda at: at.proxy.throttle(0)),
        False,
    ),
    "partition": (
        in_the_middle(lambda at: at.proxy.partition(), lambda at: at.proxy.heal()),
        False,
    ),
    "half close up": (again_and_again(lambda at: at.proxy.half_close(UP)), True),
    "half close down": (again_and_again(lambda at: at.proxy.half_close(DOWN)), True),
    "reset": (again_and_again(lambda at: at.proxy.reset()), True),
    "refuse": (in_the_middle(unreachable, lambda at: at.proxy.accept()), True),
}


def everything(receiver: RawClient, last: bytes) -> list[bytes]:
    """All that comes up to the first ``last``."""
    came: list[bytes] = []
    while not came or came[-1] != last:
        came.append(receiver.take().payload)
    return came


def rest(receiver: RawClient) -> list[bytes]:
    """What comes after that: repetitions of QoS 1."""
    return [packet.payload for packet in receiver.settle() if isinstance(packet, Publish)]


def exchange(line: Line, qos: int, disturb: Disturb) -> None:
    """Messages both ways while the link is disturbed; what they are worth at the other end."""
    payloads = numbered(COUNT)
    line.connected()
    with (
        line.far(kept=True) as far,
        line.near(line.into, kept=True) as near,
        client(line.local, f"{line.name}-sends") as here,
        client(line.remote, f"{line.name}-answers") as there,
    ):
        for number, payload in enumerate(payloads):
            disturb(line, number)
            here.publish(line.out, payload, qos)
            there.publish(line.into, payload, qos)
        gone_out, came_in = everything(far, payloads[-1]), everything(near, payloads[-1])
        line.all_gone()
        gone_out, came_in = gone_out + rest(far), came_in + rest(near)
    assert (first_of_each(gone_out), first_of_each(came_in)) == (payloads, payloads)
    if qos == 2:
        again = line.published_after_pubrel()
        assert again == [] or line.leads_to == "mosquitto"
        assert gone_out == payloads
        assert Counter(came_in) - Counter(payloads) <= Counter(again)


@pytest.mark.parametrize("qos", [1, 2], ids=["QoS 1", "QoS 2"])
@pytest.mark.parametrize("fault", FAULTS)
@each_remote
def test_nothing_is_lost_and_order_is_kept(line: Line, fault: str, qos: int) -> None:
    disturb, ends_connections = FAULTS[fault]
    exchange(line, qos, disturb)
    assert (line.proxy.connections > 1) == ends_connections


@pytest.mark.bridge(keep_alive_s=5)
def test_a_partition_that_outlives_the_keep_alive(line: Line) -> None:
    """The bridge gives the connection up and dials another; what it had sent arrives all the same.

    It is the remote broker's to sort out: it hears of the end of the first connection only when
    the partition heals, and gets from it what the second brings again.
    """

    def disturb(line: Line, number: int) -> None:
        if number == 10:
            line.proxy.partition()
        elif number == 40:
            wait_for(
                "the bridge to give up",
                lambda: re.search(f"bridge {line.name}: .* nothing for 1.5 x", line.local.log()),
            )
            line.proxy.heal()

    exchange(line, 2, disturb)
    assert line.proxy.connections > 1
