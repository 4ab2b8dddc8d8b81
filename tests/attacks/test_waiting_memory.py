"""What waits in memory for clients that read nothing, or acknowledge nothing they are sent."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

import pytest

from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.protocol.packets import Publish, Subscribe, Subscription
from tests.attacks.attack import TIMEOUT_S, Attack, Target, check, one_of, play, send_all, swallow

SOURCE: Final = "127.0.0.2"  # the others come from 127.0.0.1
MIB: Final = 2**20
CLIENTS: Final = 150
BODY: Final = bytes(MIB - 1000)
COPIED: Final = bytes(200_000)  # for each client: larger ones are there once for all

# However slow the machine: so much that it would be seen if it stayed in memory.
UNREAD_MIN: Final = 100  # the system takes a few MiB of each client
SENT_MIB_MIN: Final = 400
QUEUED: Final = 60


def _subscribers(target: Target, qos: int, expiry_s: int) -> list[socket.socket]:
    """Return clients that subscribed to topics of their own and to one of all."""
    made: list[socket.socket] = []
    for number in range(CLIENTS):
        one = target.log_in(f"greedy-{number}", expiry_s=expiry_s, source=SOURCE)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wanted = [Subscription(f"own/{number}", qos), Subscription("all", qos)]
        send_all(one, Subscribe(1, wanted))
        made.append(one)
    return made


def _send(target: Target, publisher: socket.socket, topic: str, qos: int) -> None:
    packet_id = target.did["MiB sent"] % 65_000 + 1 if qos else 0
    send_all(publisher, Publish(topic, BODY, qos, packet_id=packet_id))
    target.did["MiB sent"] += 1
    swallow(publisher, 0.001)


def unread(target: Target) -> None:
    """Many are sent the same large messages, and read nothing."""
    _subscribers(target, 0, 0)
    publisher = target.log_in("greedy-publisher", source=SOURCE)
    while target.goes_on or target.did["messages sent"] < UNREAD_MIN:
        send_all(publisher, Publish("all", COPIED, 0))
        target.did["messages sent"] += 1


def unacknowledged(target: Target) -> None:
    """Many are sent large messages, each others, and acknowledge none."""
    _fill(target, 0)


def unacknowledged_stored(target: Target) -> None:
    """The same; their sessions outlive the connection, so that the log has the messages."""
    _fill(target, NEVER_EXPIRES_S)


def _fill(target: Target, expiry_s: int) -> None:
    greedy = _subscribers(target, 1, expiry_s)
    publisher = target.log_in("greedy-publisher", source=SOURCE)
    while target.goes_on or target.did["MiB sent"] < SENT_MIB_MIN:
        for number, one in enumerate(greedy):
            _send(target, publisher, f"own/{number}", 1)
            with contextlib.suppress(OSError):
                swallow(one, 0.0001)


def fetched(target: Target) -> None:
    """Many come back at once to full queues, which the log has, and read nothing."""
    _subscribers(target, 1, NEVER_EXPIRES_S)
    publisher = target.log_in("greedy-publisher", source=SOURCE)
    for number in range(CLIENTS):
        target.let_go(
            target.log_in(f"greedy-{number}", expiry_s=NEVER_EXPIRES_S, source=SOURCE, clean=False)
        )
    for _ in range(QUEUED):
        _send(target, publisher, "all", 1)
    while target.goes_on or target.did["came back"] < CLIENTS:
        for number in range(CLIENTS):
            target.log_in(f"greedy-{number}", expiry_s=NEVER_EXPIRES_S, source=SOURCE, clean=False)
            target.did["came back"] += 1


BOUND_MIB: Final = 32
OWN_MIB: Final = 220  # of the store for what is logged, commits, what was read at once
SETTINGS: Final[dict[str, object]] = {
    "memory.waiting_bytes_max": BOUND_MIB * MIB,
    "memory.unsent_bytes_max": BOUND_MIB * MIB,
}
SIZE: Final = f"{CLIENTS} clients, 1 MiB each, {BOUND_MIB} MiB for all"
ATTACKS: Final = [
    Attack(
        "messages that many do not read",
        f"{CLIENTS} clients, 200 KB each, {BOUND_MIB} MiB for all",
        unread,
        SETTINGS | {"listener.write_buffer_bytes_max": 8 * MIB},
    ),
    Attack("large messages that nobody acknowledges", SIZE, unacknowledged, SETTINGS),
    Attack("the same, of sessions that are stored", SIZE, unacknowledged_stored, SETTINGS),
    Attack("full queues that are asked for at once", SIZE, fetched, SETTINGS),
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.play.__name__)
def test_memory_that_waits_for_one_user_is_bounded(
    attack: Attack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.memory_mib - outcome.memory_before_mib < 2 * BOUND_MIB + OWN_MIB
