"""Packets that are much work each, one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Publish, Subscribe, Subscription, Unsubscribe
from penstock.protocol.properties import Properties
from tests.attacks.attack import (
    SECONDS,
    TIMEOUT_S,
    Attack,
    Target,
    check,
    mosquitto_by_default,
    one_of,
    play,
    send_all,
    swallow,
)
from tests.support.mosquitto_broker import Mosquitto

FULL: Final = SECONDS >= 30
LARGE_BYTES: Final = 256_000_000 if FULL else 20_000_000
FILTERS: Final = 30_000
LINES: Final = 200


def user_properties(target: Target) -> None:
    """Publish packets of a mebibyte that is all user properties."""
    made = target.log_in("properties")
    pairs = [(f"n{number}", "v") for number in range(80_000)]
    packet = encode(Publish("t", b"", 0, properties=Properties(user_properties=pairs)), V5)
    while target.goes_on:
        made.sendall(packet)
        target.did["packets"] += 1
        swallow(made, 0.001)


def many_filters(target: Target) -> None:
    """Subscribe to 30,000 filters in a packet, and leave them, again and again."""
    made = target.log_in("filters")
    names = [f"a/{number}/+/b/#" for number in range(FILTERS)]
    asked = encode(Subscribe(1, [Subscription(name, 0) for name in names]), V5)
    left = encode(Unsubscribe(2, names), V5)
    while target.goes_on:
        made.sendall(asked + left)
        answered = 0
        while answered == 0 and target.goes_on:
            answered = swallow(made, 0.05)
        target.did["rounds"] += 1


def _access_list(directory: Path) -> Path:
    """Write an access list none of whose lines match but the last; both brokers read it."""
    path = directory / "access.acl"
    lines = [f"topic read other/{number}/+/#" for number in range(LINES)]
    path.write_text("\n".join([*lines, "topic readwrite #"]) + "\n")
    return path


def access_list(directory: Path) -> dict[str, object]:
    """Return the settings with that list."""
    return {
        "access.acl_file": _access_list(directory),
        "limits.subscriptions_per_session_max": 100_000,
    }


def mosquitto_with_access_list(directory: Path) -> Mosquitto:
    """Return a Mosquitto with that list."""
    path = _access_list(directory)
    return mosquitto_by_default(directory, f"allow_anonymous true\nacl_file {path}\n")


def mosquitto_with_room(directory: Path) -> Mosquitto:
    """Return a Mosquitto that keeps a gibibyte for a session."""
    return mosquitto_by_default(directory, "allow_anonymous true\nmax_queued_bytes 1073741824\n")


def deep_retained(target: Target) -> None:
    """Retain messages a hundred levels deep, and ask for them."""
    made = target.log_in("deep")
    for number in range(3000):
        topic = f"{number}/" + "/".join("x" * 99)
        send_all(made, Publish(topic, b"x", 0, retain=True))
        target.did["retained"] += 1
    while target.goes_on:
        send_all(made, Subscribe(1, [Subscription("+/" * 99 + "x", 0)]))
        swallow(made, 0.05)
        target.did["SUBSCRIBE"] += 1


def large_messages(target: Target) -> None:
    """Publish very large QoS 1 messages that a session keeps."""
    subscriber = target.log_in("large-subscriber", expiry_s=3600)
    send_all(subscriber, Subscribe(1, [Subscription("large", 1)]))
    swallow(subscriber)
    target.let_go(subscriber)
    made = target.log_in("large")
    made.settimeout(60)
    packet = encode(Publish("large", bytes(LARGE_BYTES), 1, packet_id=1), V5)
    while target.goes_on:
        made.sendall(packet)
        made.settimeout(60)
        assert made.recv(2) == b"\x40\x02"
        made.recv(2)
        target.did["messages"] += 1


ATTACKS: Final = [
    Attack("a mebibyte of user properties", "one client", user_properties),
    Attack(
        "SUBSCRIBE with 30,000 filters",
        f"an access list of {LINES} lines",
        many_filters,
        prepare=access_list,
        mosquitto=mosquitto_with_access_list,
    ),
    Attack("retained topics of 100 levels", "one client", deep_retained),
    Attack(
        "large QoS 1 messages",
        f"{LARGE_BYTES:,} bytes each, for a stored session",
        large_messages,
        {"limits.max_packet_size_bytes": 268_435_460, "durability.retention_bytes_max": 1 << 30},
        mosquitto=mosquitto_with_room,
    ),
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.name)
def test_one_packet_is_not_one_turn(
    attack: Attack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
