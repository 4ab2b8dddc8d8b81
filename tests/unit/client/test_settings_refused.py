"""What no server could be told is refused before anybody waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Client
from penstock.client.options import Options, Settings
from penstock.errors import ConfigError
from penstock.protocol.packets import Will
from tests.support.scripted_server import NOBODY

TOO_LONG = "x" * 70_000


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("will", ("a", "b"), r"will is \('a', 'b'\), and must be a Will, such as"),
        ("tls", "ca.pem", "tls is 'ca.pem', and must be a TlsFiles"),
        ("password", 7, "password is 7, and must be text or bytes"),
        ("keep_alive_s", "60", "keep_alive_s is '60', and must be a number"),
    ],
)
def test_a_setting_of_another_kind_is_one_sentence(name: str, value: object, said: str) -> None:
    """``will=("a", "b")`` was an AttributeError."""
    wrong: Any = {name: value}
    with pytest.raises(ConfigError, match=said):
        Options(**wrong)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(username=TOO_LONG),
        Settings(client_id=TOO_LONG),
        Settings(client_id="a\ud800"),
        Settings(username="a\ud800"),
        Settings(username="a", password="a\ud800"),
        Settings(username="a", password=TOO_LONG),
        Settings(user_properties=[(TOO_LONG, "")]),
        Settings(will=Will("a", b"x" * 65_536)),
        Settings(will=Will("a", b"", qos=3)),
        Settings(will=Will(TOO_LONG, b"")),
        Settings(will=Will("a\0", b"")),
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_settings_that_connect_cannot_carry_are_refused(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="CONNECT cannot be encoded"):
        Client(NOBODY, **settings)


@pytest.mark.parametrize("topic", ["", "a/#", "+"])
def test_a_will_that_nobody_can_publish(topic: str) -> None:
    with pytest.raises(ConfigError, match="will"):
        Client(NOBODY, will=Will(topic, b""))


def test_settings_that_connect_can_just_carry_are_taken() -> None:
    client = Client(NOBODY, username="x" * 65_535, will=Will("a", b"x" * 65_535))
    assert client.options.username == "x" * 65_535
    assert Client(NOBODY, version="3.1.1", client_id="x" * 65_535).client_id == "x" * 65_535


def test_a_session_that_nobody_could_find_again() -> None:
    with pytest.raises(ConfigError, match="session_expiry_s needs a client_id"):
        Client(NOBODY, session_expiry_s=60)
    with pytest.raises(ConfigError, match="clean_start = False needs the client_id"):
        Client(NOBODY, clean_start=False)
    Client(NOBODY, session_expiry_s=0)


@pytest.mark.parametrize(
    "header", [("X-Käse", "x"), ("X-A", "b\r\nX-C: d"), ("X-A", "€"), ("X-\tA", "b")]
)
def test_headers_that_are_none(header: tuple[str, str]) -> None:
    with pytest.raises(ConfigError, match="must be printable ASCII"):
        Client("ws://127.0.0.1:1", headers=(header,))


@pytest.mark.parametrize(
    ("unknown", "hint"),
    [
        ("clientid", r"clientid is not a setting of a client; did you mean client_id\?"),
        ("keepalive_s", r"did you mean keep_alive_s\?"),
        ("zzz", r"zzz is not a setting of a client$"),
    ],
)
def test_keywords_that_there_are_not(unknown: str, hint: str) -> None:
    settings: dict[str, Any] = {unknown: 1}
    with pytest.raises(ConfigError, match=hint):
        Client(NOBODY, **settings)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("localhost", r"Put the scheme before it: mqtt://localhost$"),
        ("localhost:1883", r"Put the scheme before it: mqtt://localhost:1883$"),
        ("mqtt://u:p@h", r"User name and password are given as username= and password=$"),
    ],
)
def test_urls_that_people_try(url: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        Client(url)
