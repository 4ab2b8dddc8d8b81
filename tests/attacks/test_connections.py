"""Connections themselves: idle ones of one address, and TLS handshakes begun and never ended."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
from pathlib import Path
from typing import Final

import pytest
import trustme

from tests.attacks.attack import (
    SECONDS,
    TIMEOUT_S,
    Attack,
    Target,
    check,
    mosquitto_by_default,
    play,
)
from tests.support.broker import address_of
from tests.support.mosquitto_broker import Mosquitto

SOURCE: Final = "127.0.0.2"  # the others come from 127.0.0.1
FULL: Final = SECONDS >= 30
CONNECTIONS_MAX: Final = 5_000 if FULL else 200
OF_AN_ADDRESS: Final = CONNECTIONS_MAX // 2
HANDSHAKES_AT_ONCE: Final = 50


def idle(target: Target) -> None:
    """Open connections that say nothing, as many as are taken, and open those again that end."""
    poll = select.poll()
    open_now: dict[int, socket.socket] = {}
    while target.goes_on:
        if len(open_now) < 2 * CONNECTIONS_MAX:
            with contextlib.suppress(OSError):
                made = target.dial(source=SOURCE)
                open_now[made.fileno()] = made
                poll.register(made, select.POLLIN)
                target.did["connections"] += 1
        for number, _ in poll.poll(0 if len(open_now) < 2 * CONNECTIONS_MAX else 10):
            poll.unregister(number)
            target.let_go(open_now.pop(number))  # nothing is ever sent: it was closed
            target.did["closed"] += 1


def handshakes(target: Target) -> None:
    """Make the broker sign, at the cost of a ClientHello: handshakes that stop half-way."""
    hello = _client_hello()
    url = next(url for url in target.urls if url.startswith("mqtts"))
    while target.goes_on:
        begun: list[socket.socket] = []
        for _ in range(HANDSHAKES_AT_ONCE):
            made = target.dial(address_of(url), SOURCE)
            made.sendall(hello)
            begun.append(made)
        for made in begun:
            with contextlib.suppress(OSError):
                target.did["answered"] += bool(made.recv(4096))
            target.let_go(made)


def _client_hello() -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    beginning = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        beginning.do_handshake()
    return outgoing.read()


def _certificate(directory: Path) -> tuple[Path, Path]:
    """Write a certificate of a server, with an RSA key as most have, and its key."""
    authority = trustme.CA(key_type=trustme.KeyType.RSA)
    made = authority.issue_cert("localhost", key_type=trustme.KeyType.RSA)
    chain, key = directory / "server.pem", directory / "server.key"
    made.cert_chain_pems[0].write_to_path(chain)
    made.private_key_pem.write_to_path(key)
    key.chmod(0o600)
    return chain, key


def encrypted(directory: Path) -> dict[str, object]:
    """Return the settings of a second listener, with TLS."""
    chain, key = _certificate(directory)
    files = {"certificate": str(chain), "key": str(key)}
    return {
        "listener.others": json.dumps(
            [{"name": "tls", "kind": "tls", "bind": "127.0.0.1:0", **files}]
        )
    }


def mosquitto_encrypted(directory: Path) -> Mosquitto:
    """Return a Mosquitto with a second listener, with TLS."""
    chain, key = _certificate(directory)
    lines = f"certfile {chain}\nkeyfile {key}\n"
    return mosquitto_by_default(directory, "allow_anonymous true\n", second=("mqtts", lines))


IDLE: Final = Attack(
    "idle connections of one address",
    f"a broker for {CONNECTIONS_MAX:,}, half of them for one address",
    idle,
    {
        "listener.max_connections": CONNECTIONS_MAX,
        "listener.connections_per_address_max": OF_AN_ADDRESS,
        "listener.connections_per_address_exempt": "[]",
    },
    mosquitto="it counts no connections by address",
)
HANDSHAKES: Final = Attack(
    "TLS handshakes that stop half-way",
    f"{HANDSHAKES_AT_ONCE} at once, RSA key of 2,048 bits",
    handshakes,
    prepare=encrypted,
    mosquitto=mosquitto_encrypted,
)
ATTACKS: Final = [IDLE, HANDSHAKES]


@pytest.mark.timeout(TIMEOUT_S)
def test_one_address_leaves_room_for_others(tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(IDLE, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.facts["connections"] >= OF_AN_ADDRESS
    assert outcome.facts["closed"] > 0


@pytest.mark.timeout(TIMEOUT_S)
def test_others_go_on_beside_handshakes(tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(HANDSHAKES, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.facts["answered"] > 0
    assert outcome.memory_mib - outcome.memory_before_mib < 64
