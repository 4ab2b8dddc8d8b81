"""The doors beside MQTT: the control socket, the stream service, the page and API of operators.

Whoever can reach them sends rubbish, begins requests and does not end them, and does not read what
is answered; the broker's clients must not notice, and SIGTERM must be obeyed.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest

from penstock.control.admin_requests import ListSessions
from tests.attacks.attack import CLOSED, TIMEOUT_S, Attack, Target, check, play, swallow
from tests.support.broker import address_of

CONNECTIONS: Final = 50
CLIENTS: Final = 300
RUBBISH: Final = b"\x00\xff{[" * 25_000  # 100 kB without an end of line
SLOWLY: Final = b"GET /api/v1/clients HTTP/1.1\r\nHost: x\r\n"
GUESS: Final = b"GET /api/v1/clients HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer guess\r\n\r\n"


def _control(target: Target) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(10)
    made.connect(str(target.data_dir / "control"))
    return made


def control_rubbish(target: Target) -> None:
    """Send what is no request, and requests without an end."""
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(_control(target)).sendall(b'{"type":')
            target.did["unended requests"] += 1
        while target.goes_on:
            with contextlib.suppress(OSError), _control(target) as made:
                made.sendall(RUBBISH + b"\n")
                made.recv(4096)
                target.did["requests of rubbish"] += 1


def control_unread(target: Target) -> None:
    """Ask for long answers, and read none of them."""
    for number in range(CLIENTS):
        target.log_in(f"{'long-name-' * 100}{number}")
    asked = msgspec.json.encode(ListSessions(limit=CLIENTS)) + b"\n"
    unread: list[socket.socket] = []
    try:
        for _ in range(CONNECTIONS):
            made = _control(target)
            made.sendall(asked)
            unread.append(made)
            target.did["answers that nobody reads"] += 1
        while target.goes_on:
            time.sleep(0.05)
    finally:
        _KEPT.extend(unread)  # still open when the broker is to stop


_KEPT: list[socket.socket] = []  # until the process ends


def _tokens(directory: Path) -> dict[str, object]:
    file = directory / "tokens"
    file.write_text(f"operator:{secrets.token_hex(32)} admin\n")
    file.chmod(0o600)
    return {"admin.token_file": file}


def _http(target: Target, pieces: Sequence[bytes]) -> None:
    """Many connections to the admin process, each of which gets one piece after the other."""
    address = address_of(target.admin_url)
    open_now: list[socket.socket] = []
    while target.goes_on:
        with contextlib.suppress(OSError):
            while len(open_now) < CONNECTIONS:
                open_now.append(target.dial(address))
                target.did["connections"] += 1
        for made in list(open_now):
            try:
                for piece in pieces:
                    made.sendall(piece)
                target.did["requests"] += 1
                swallow(made, 0.001)
            except OSError:
                open_now.remove(made)
                target.let_go(made)
                target.did[CLOSED] += 1


def guesses(target: Target) -> None:
    """Guess tokens of operators, as fast as it goes."""
    _http(target, [GUESS])


def unended(target: Target) -> None:
    """Begin requests, and send one more header now and then, without an end."""
    _http(target, [SLOWLY, b"X-More: x\r\n"])


def stream_rubbish(target: Target) -> None:
    """Send the stream service what is no HTTP/2, and connections that say nothing."""
    silent = [target.dial(target.stream_address) for _ in range(CONNECTIONS)]
    target.did["silent connections"] += len(silent)
    while target.goes_on:
        made = target.dial(target.stream_address)
        with contextlib.suppress(OSError):
            made.sendall(RUBBISH)
            swallow(made, 0.001)
        target.let_go(made)
        target.did["connections with rubbish"] += 1


WITH_API: Final = {"admin.bind": "127.0.0.1:0"}
NOT_THERE: Final = "it has no such door"
ATTACKS: Final = [
    Attack(
        "control socket: rubbish",
        f"{CONNECTIONS} requests without an end",
        control_rubbish,
        mosquitto=NOT_THERE,
    ),
    Attack(
        "control socket: answers that nobody reads",
        f"{CONNECTIONS} of {CLIENTS:,} sessions each",
        control_unread,
        mosquitto=NOT_THERE,
    ),
    Attack(
        "API: guessed tokens",
        f"{CONNECTIONS} connections",
        guesses,
        WITH_API,
        prepare=_tokens,
        mosquitto=NOT_THERE,
    ),
    Attack(
        "API: requests without an end",
        f"{CONNECTIONS} connections",
        unended,
        WITH_API,
        prepare=_tokens,
        mosquitto=NOT_THERE,
    ),
    Attack(
        "stream service: rubbish",
        f"{CONNECTIONS} connections",
        stream_rubbish,
        {"stream.enabled": "true"},
        mosquitto=NOT_THERE,
    ),
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_clients_notice_nothing(attack: Attack, tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.stop_s < 10
    assert "Traceback" not in outcome.log
