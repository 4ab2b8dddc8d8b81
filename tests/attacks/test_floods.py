"""Floods of what is allowed: messages, pings, connections that come and go, take-overs."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import (
    Connect,
    Disconnect,
    Pingreq,
    Publish,
    Subscribe,
    Subscription,
    Will,
)
from tests.attacks.attack import TIMEOUT_S, Attack, Target, check, one_of, play, send_all, swallow

SOURCE: Final = "127.0.0.2"  # the others come from 127.0.0.1
CLIENTS: Final = 20


def _clients(target: Target) -> list[socket.socket]:
    return [target.log_in(f"flood-{number}", source=SOURCE) for number in range(CLIENTS)]


def _flood(target: Target, data: bytes, name: str, count: int) -> None:
    """Send ``data``, which holds ``count`` packets, by all clients for as long as it goes on."""
    clients = _clients(target)
    for made in clients:
        made.setblocking(False)
    left = [data] * CLIENTS
    while target.goes_on:
        for number, made in enumerate(clients):
            with contextlib.suppress(BlockingIOError):
                left[number] = left[number][made.send(left[number]) :]
            if not left[number]:
                left[number] = data
                target.did[name] += count
            with contextlib.suppress(BlockingIOError):
                made.recv(1 << 20)


def messages(target: Target) -> None:
    """Publish at QoS 0 to nobody, as fast as can be."""
    _flood(target, encode(Publish("flood", b"x"), V5) * 1000, "QoS 0 messages", 1000)


def pings(target: Target) -> None:
    """Ping as fast as can be."""
    _flood(target, encode(Pingreq(), V5) * 10_000, "PINGREQ", 10_000)


def to_one_who_does_not_read(target: Target) -> None:
    """Publish at QoS 0 to subscribers that read nothing."""
    for number in range(CLIENTS):
        deaf = target.log_in(f"deaf-{number}", source=SOURCE)
        send_all(deaf, Subscribe(1, [Subscription("flood", 0)]))
    _flood(target, encode(Publish("flood", bytes(1000)), V5) * 100, "QoS 0 messages", 100)


def at_qos1(target: Target) -> None:
    """Publish at QoS 1 as the window allows, to a subscriber that acknowledges nothing."""
    deaf = target.log_in("deaf", source=SOURCE)
    send_all(deaf, Subscribe(1, [Subscription("flood", 1)]))
    clients = _clients(target)
    window = [encode(Publish("flood", bytes(100), 1, packet_id=one), V5) for one in range(1, 21)]
    while target.goes_on:
        for made in clients:
            made.sendall(b"".join(window))
            target.did["QoS 1 messages"] += len(window)
        for made in clients:
            heard = 0
            while heard < len(window) * 4 and target.goes_on:
                heard += swallow(made, 0.002)


def come_and_go(target: Target) -> None:
    """Connect with a will, and leave without DISCONNECT; twenty at a time."""
    will = Will("flood/will", b"gone", 1)
    while target.goes_on:
        now = []
        for number in range(CLIENTS):
            made = target.dial(source=SOURCE)
            made.sendall(encode(Connect(f"passing-{number}", V5, True, 0, will), V5))
            now.append(made)
        for made in now:
            made.recv(64)
            target.let_go(made)
            target.did["connections"] += 1


def take_over(target: Target) -> None:
    """Connect under one client identifier, so that each ends the one before."""
    while target.goes_on:
        now = [target.log_in("the-same", expiry_s=60, source=SOURCE) for _ in range(CLIENTS)]
        target.did["take-overs"] += CLIENTS
        send_all(now[-1], Subscribe(1, [Subscription("flood", 1)]), Disconnect())
        for made in now:
            target.let_go(made)


ATTACKS: Final = [
    Attack("a flood of QoS 0", f"{CLIENTS} clients", messages),
    Attack("a flood of PINGREQ", f"{CLIENTS} clients", pings),
    Attack(
        "a flood to subscribers that do not read",
        f"{CLIENTS} clients, {CLIENTS} subscribers, 1,000 bytes",
        to_one_who_does_not_read,
    ),
    Attack(
        "a flood of QoS 1 to a subscriber that acknowledges nothing", f"{CLIENTS} clients", at_qos1
    ),
    Attack("connections that come and go, with wills", f"{CLIENTS} at once", come_and_go),
    Attack("take-overs", f"{CLIENTS} in a row", take_over),
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.name)
def test_a_flood_has_its_share(attack: Attack, tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.facts.total() > 0
    assert outcome.memory_mib - outcome.memory_before_mib < 512
