"""Filters that all match one topic: the walk of the trie and the grants of one message."""

from __future__ import annotations

import socket
from itertools import product
from typing import Final

import pytest

from penstock.protocol.packets import Publish, Subscribe, Subscription
from penstock.protocol.properties import Properties
from tests.attacks.attack import TIMEOUT_S, Attack, Target, check, one_of, play, send_all, swallow

LEVELS: Final = 13
TOPIC: Final = "/".join("a" * LEVELS)
FILTERS: Final = ["/".join([*levels, "#"]) for levels in product("a+", repeat=LEVELS)]


def with_identifiers(target: Target) -> None:
    """Subscribe to all of them, each with an identifier of its own, and publish."""
    subscriber = target.log_in("overlapping")
    for number, topic_filter in enumerate(FILTERS, 1):
        properties = Properties(subscription_identifiers=[number])
        send_all(subscriber, Subscribe(1, [Subscription(topic_filter, 0)], properties))
        if number % 64 == 0:
            swallow(subscriber, 0.001)
    _publish(target, subscriber)


def of_seven_clients(target: Target) -> None:
    """Subscribe seven clients to all of them, and publish."""
    clients = [target.log_in(f"overlapping-{number}") for number in range(7)]
    for client in clients:
        for first in range(0, len(FILTERS), 512):
            some = [Subscription(topic_filter, 0) for topic_filter in FILTERS[first : first + 512]]
            send_all(client, Subscribe(1, some))
            swallow(client, 0.001)
    _publish(target, *clients)


def _publish(target: Target, *subscribers: socket.socket) -> None:
    publisher = target.log_in("overlapping-publisher")
    while target.goes_on:
        send_all(publisher, *[Publish(TOPIC, b"")] * 20)
        target.did["QoS 0 messages"] += 20
        swallow(publisher)
        for subscriber in subscribers:
            swallow(subscriber, 0.001)


ATTACKS: Final = [
    Attack(
        "overlapping filters, each with an identifier",
        "8,192 filters of one client",
        with_identifiers,
    ),
    Attack("overlapping filters of seven clients", "65,536 filters in all", of_seven_clients),
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.name)
def test_nobody_waits_for_ever(attack: Attack, tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.facts["QoS 0 messages"] >= 20
