"""Operators of a broker under test: users with roles, and requests as the page makes them."""

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final, final

from penstock.auth.files import write_passwords
from penstock.auth.scram import keys_for, line_of
from tests.support.admin_http import Answer, get
from tests.support.broker import Broker

PASSWORD: Final = "a password of operators"
ROLES: Final = {"victor": "viewer", "olga": "operator", "ada": "admin"}


def with_operators(directory: Path, roles: Mapping[str, str] = ROLES) -> dict[str, object]:
    """Settings of a broker with an admin process, and with these users; ``device`` has no role."""
    users = directory / "passwords"
    line = line_of(keys_for(PASSWORD))
    write_passwords(users, dict.fromkeys((*roles, "device"), line))
    return {
        "admin.bind": "127.0.0.1:0",
        "admin.users": json.dumps(dict(roles)),
        "access.password_file": users,
        "listener.allow_anonymous": "true",
    }


def basic(user: str, password: str = PASSWORD) -> str:
    """An ``Authorization`` header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@final
class Visit:
    """A session of the page."""

    def __init__(self, broker: Broker, user: str, password: str = PASSWORD) -> None:
        self._broker = broker
        told = json.dumps({"user": user, "password": password}).encode()
        self.answer = get(
            broker, "/page/login", "POST", told, **{"Content-Type": "application/json"}
        )
        self.cookie = self.answer.headers.get("set-cookie", "").partition(";")[0]
        self.csrf_token = self.answer.json.get("csrf_token", "")

    def ask(self, path: str, told: object = None, **headers: str) -> Answer:
        """A GET, or with something to tell an act with the second secret."""
        headers = {"Cookie": self.cookie} | headers
        if told is None:
            return get(self._broker, path, **headers)
        defaults = {"Content-Type": "application/json", "X-CSRF-Token": self.csrf_token}
        return get(self._broker, path, "POST", json.dumps(told).encode(), **(defaults | headers))
