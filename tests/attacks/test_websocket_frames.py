"""WebSocket frames without content, before CONNECT: pings, and empty binary frames."""

from __future__ import annotations

import contextlib
import json
import socket
from typing import Final

import pytest

from tests.attacks.attack import (
    TIMEOUT_S,
    Attack,
    Target,
    check,
    mosquitto_by_default,
    one_of,
    play,
    swallow,
)
from tests.support.broker import address_of

PING: Final = bytes((0x89, 0x80, 0, 0, 0, 0))  # FIN, masked, no payload
WEBSOCKET: Final = {"name": "ws", "kind": "ws", "bind": "127.0.0.1:0"}
EMPTY: Final = bytes((0x82, 0x80, 0, 0, 0, 0))
CONNECTIONS: Final = 5
_UPGRADE: Final = (
    b"GET /mqtt HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


def _flood(target: Target, frame: bytes) -> None:
    url = next(url for url in target.urls if url.startswith("ws"))
    open_now: list[socket.socket] = []
    while target.goes_on:
        with contextlib.suppress(OSError):
            while len(open_now) < CONNECTIONS:
                made = target.dial(address_of(url.removesuffix("/mqtt")))
                made.sendall(_UPGRADE)
                made.recv(4096)
                made.settimeout(0.2)
                open_now.append(made)
                target.did["connections"] += 1
        for made in list(open_now):
            try:
                made.sendall(frame * 14_000)
                target.did["frames"] += 14_000
                swallow(made, 0.001)
            except OSError:  # closed, or not read any more
                open_now.remove(made)
                target.let_go(made)


ATTACKS: Final = [
    Attack(
        f"WebSocket: {name} before CONNECT",
        f"{CONNECTIONS} connections",
        lambda target, frame=frame: _flood(target, frame),  # type: ignore[misc]
        {"listener.others": json.dumps([WEBSOCKET])},
        mosquitto=lambda directory: mosquitto_by_default(
            directory, second=("ws", "protocol websockets\n")
        ),
    )
    for name, frame in (("empty pings", PING), ("empty binary frames", EMPTY))
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.name)
def test_frames_that_say_nothing_end(
    attack: Attack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.facts["connections"] > CONNECTIONS  # they were closed
