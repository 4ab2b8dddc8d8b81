"""Thousands of shared groups on one filter: made, left in reverse order, left by disconnecting."""

from __future__ import annotations

import socket
from typing import Final

import pytest

from penstock.protocol.packets import Disconnect, Subscribe, Subscription, Unsubscribe
from tests.attacks.attack import TIMEOUT_S, Attack, Target, check, one_of, play, send_all, swallow

GROUPS: Final = 10_000
CLIENTS: Final = 3


def _names(client: int) -> list[str]:
    return [f"$share/g{client}-{number}/t" for number in range(GROUPS)]


def _subscribe(made: socket.socket, names: list[str]) -> None:
    for first in range(0, len(names), 1000):
        some = [Subscription(name, 1) for name in names[first : first + 1000]]
        send_all(made, Subscribe(1, some))
        swallow(made)


def leave(target: Target) -> None:
    """Make all groups, and leave them by UNSUBSCRIBE in reverse order, or by DISCONNECT."""
    while target.goes_on:
        clients = [target.log_in(f"groups-{number}") for number in range(CLIENTS)]
        for number, made in enumerate(clients):
            _subscribe(made, _names(number))
        for number, made in enumerate(clients):
            names = _names(number)
            if number % 2 == 0:
                for end in range(len(names), 0, -1000):
                    send_all(made, Unsubscribe(2, names[max(0, end - 1000) : end][::-1]))
                    swallow(made)
            send_all(made, Disconnect())
            target.let_go(made)
        target.did["rounds"] += 1


ATTACKS: Final = [
    Attack("shared groups on one filter", f"{CLIENTS} clients, {GROUPS:,} groups each", leave)
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.name)
def test_leaving_is_cheap(attack: Attack, tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.facts["rounds"] >= 1
