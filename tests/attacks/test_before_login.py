"""What a client can do that has shown no password: wrong ones, and packets it never ends."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connect, Publish
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
    swallow,
)
from tests.support.environment import environment
from tests.support.mosquitto_broker import Mosquitto

USER: Final = ("others", "a password of theirs")
GUESSES_AT_ONCE: Final = 20
HALVES: Final = 5000 if SECONDS >= 30 else 300
HALF_BYTES: Final = 960_000


def password_file(directory: Path) -> dict[str, object]:
    """Write a file of one user with ``penstock passwd``."""
    path = directory / "users"
    name, password = USER
    subprocess.run(
        [sys.executable, "-m", "penstock", "passwd", "--create", str(path), name],
        input=f"{password}\n",
        text=True,
        check=True,
        capture_output=True,
        env=environment(),
    )
    return {"access.password_file": path}


def mosquitto_with_passwords(directory: Path) -> Mosquitto:
    """Return a Mosquitto with the same user."""
    path = directory / "users"
    command = ["mosquitto_passwd", "-b", "-c", str(path), *USER]
    subprocess.run(command, check=True, capture_output=True)
    return mosquitto_by_default(directory, f"password_file {path}\n")


def guess(target: Target) -> None:
    """Guess the password of the others, on many connections at once."""
    while target.goes_on:
        waiting = []
        for number in range(GUESSES_AT_ONCE):
            with contextlib.suppress(OSError):
                made = target.dial()
                connect = Connect(f"guess-{number}", V5, True, 0)
                connect.username = USER[0]
                connect.password = str(target.did["guesses"]).encode()
                made.sendall(encode(connect, V5))
                waiting.append(made)
                target.did["guesses"] += 1
        for made in waiting:
            made.settimeout(0.2)
            with contextlib.suppress(OSError):
                target.did["refusals heard"] += made.recv(64).startswith(b"\x20")
            target.let_go(made)


def half_connects(target: Target) -> None:
    """Begin as many CONNECT of 960 kB as there may be connections, and end none."""
    pairs = [("n", "v" * 60_000)] * 16
    whole = encode(Connect("half", V5, properties=Properties(user_properties=pairs)), V5)
    _halves(target, whole[:-1], logged_in=False)


def half_publishes(target: Target) -> None:
    """The same after CONNECT, with PUBLISH."""
    whole = encode(Publish("t", bytes(HALF_BYTES), 1, packet_id=1), V5)
    _halves(target, whole[:-1], logged_in=True)


def _halves(target: Target, half: bytes, logged_in: bool) -> None:
    for number in range(HALVES):
        if not target.goes_on:
            return
        try:
            made = target.log_in(f"half-{number}") if logged_in else target.dial()
            made.settimeout(0.2)
            made.sendall(half)
            target.did["halves sent"] += 1
        except OSError:
            target.did["not taken"] += 1
    while target.goes_on:
        with contextlib.suppress(OSError):
            swallow(target.dial(), 0.05)


ATTACKS: Final = [
    Attack(
        "wrong passwords",
        f"{GUESSES_AT_ONCE} connections at once",
        guess,
        prepare=password_file,
        user=USER,
        mosquitto=mosquitto_with_passwords,
    ),
    Attack("CONNECT that lacks its last byte", f"{HALVES:,} of 960 kB", half_connects),
    Attack("PUBLISH that lacks its last byte", f"{HALVES:,} of 960 kB", half_publishes),
]


MEMORY_MIB_MAX: Final[dict[Callable[[Target], None], int]] = {  # more than before, whatever is sent
    half_connects: 64,
    half_publishes: 256 + 64,  # memory.half_received_bytes_max
    guess: 512,  # argon2 takes 64 MiB for each thread
}


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.name)
def test_others_get_in(attack: Attack, tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.memory_mib - outcome.memory_before_mib < MEMORY_MIB_MAX[attack.play]
