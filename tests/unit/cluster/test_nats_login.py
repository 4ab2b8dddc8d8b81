"""The login at NATS servers: what a file may have, and what is said of one that has something
else."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from penstock.cluster.nats_login import read_login
from penstock.errors import ConfigError
from tests.support.nats_credentials import Operator


def test_without_a_file_nothing_is_said() -> None:
    assert read_login("").fields("challenge") == {}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("user:password\n", {"user": "user", "pass": "password"}),
        ("user:pass:word", {"user": "user", "pass": "pass:word"}),
        ("  token \n", {"auth_token": "token"}),
    ],
)
def test_a_line_is_a_password_or_a_token(tmp_path: Path, text: str, fields: dict[str, str]) -> None:
    file = tmp_path / "login"
    file.write_text(text)
    assert read_login(str(file)).fields("challenge") == fields


def test_a_credentials_file_signs_each_challenge(tmp_path: Path) -> None:
    file = tmp_path / "user.creds"
    file.write_text(Operator().credentials())
    login = read_login(str(file))
    first, second = login.fields("first"), login.fields("second")
    assert first["jwt"] == second["jwt"]
    assert first["sig"] != second["sig"]
    assert len(base64.urlsafe_b64decode(first["sig"] + "==")) == 64
    assert login.fields("first") == first


def test_a_file_without_a_login_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "login"
    whole = Operator().credentials()
    begin = whole.index("\nSU") + 1
    other = "A" if whole[begin + 10] != "A" else "B"
    for text, words in (
        ("", "has no login"),
        ("a\nb", "has no login"),
        (whole[: whole.index("NKEY Seed")], "no key of a NATS user"),
        (whole.replace("\nSU", "\nSA"), "no key of a NATS user"),
        (whole[: begin + 10] + other + whole[begin + 11 :], "damaged"),
        (whole[: begin + 10] + whole[begin + 12 :], "no key of a NATS user"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=words):
            read_login(str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_login(str(tmp_path / "nowhere"))
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_login(str(file))
