"""Whose session it is, and whose share: a real broker with users, killed and started again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from argon2 import PasswordHasher

from penstock.auth.files import write_passwords
from penstock.protocol import reasons
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Publish
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.fixtures import NEWEST_FIRST, Clients, running_broker
from tests.support.raw_client import RawClient

USERS: Final = ("alice", "bob", None)
SESSIONS_MAX: Final = 40


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    passwords = tmp_path / "passwords"
    hasher = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
    write_passwords(passwords, {name: hasher.hash(f"{name}'s") for name in USERS if name})
    passwords.chmod(0o600)
    settings = {
        "access.password_file": passwords,
        "listener.allow_anonymous": "true",
        "limits.sessions_max": SESSIONS_MAX,
    }
    with running_broker(tmp_path, settings) as started:
        yield started


def log_in(
    clients: Clients, broker: Broker, client_id: str, user: str | None, version: int, clean: bool
) -> tuple[RawClient, Connack]:
    client = clients.open(broker, version)
    properties = None
    if version == V5:
        properties = Properties(session_expiry_interval=3600, request_problem_information=0)
    password = None if user is None else f"{user}'s".encode()
    client.send(Connect(client_id, version, clean, 0, None, user, password, properties))
    return client, client.expect(Connack)


@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_nobody_else_gets_a_session_before_and_after_a_crash(
    broker: Broker, clients: Clients, version: int
) -> None:
    """Its unacknowledged message was dropped, and Clean Start removed the session."""
    for owner in USERS:
        name = f"of-{owner}"
        client, answer = log_in(clients, broker, name, owner, version, False)
        assert answer.reason_code == reasons.SUCCESS
        client.subscribe(f"{name}/t")
        clients.join(broker, "publisher").publish(f"{name}/t", b"yours", qos=1)
        client.expect(Publish)
    for crashed in (False, True):
        if crashed:
            broker.kill()
            broker.start()
        for owner in USERS:
            for stranger in USERS:
                for clean in (False, True):
                    if stranger != owner:
                        answer = log_in(clients, broker, f"of-{owner}", stranger, version, clean)[1]
                        assert answer.reason_code == reasons.NOT_AUTHORIZED
    for owner in USERS:
        client, answer = log_in(clients, broker, f"of-{owner}", owner, version, False)
        assert answer.reason_code == reasons.SUCCESS
        assert client.expect(Publish).payload == b"yours"


def test_eternal_sessions_of_one_user_keep_nobody_out(broker: Broker, clients: Clients) -> None:
    """Nor do they after a crash: whose they are is stored with them."""
    codes: list[int] = []
    for number in range(SESSIONS_MAX):
        client, answer = log_in(clients, broker, f"hog-{number}", "bob", V5, False)
        codes.append(answer.reason_code)
        client.drop()
    room = SESSIONS_MAX // 4
    assert codes == [reasons.SUCCESS] * room + [reasons.QUOTA_EXCEEDED] * (SESSIONS_MAX - room)
    for crashed in (False, True):
        if crashed:
            broker.kill()
            broker.start()
        refused = log_in(clients, broker, "one-more", "bob", V5, False)[1]
        assert refused.reason_code == reasons.QUOTA_EXCEEDED
        for user in ("alice", None):
            answer = log_in(clients, broker, f"of-{user}", user, V5, False)[1]
            assert answer.reason_code == reasons.SUCCESS
