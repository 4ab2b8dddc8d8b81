"""No password in what quotes a setting: errors, log lines, `penstock config`."""

import json
import logging

import pytest

from penstock.config.describe import as_toml
from penstock.config.load import load_settings
from penstock.errors import ConfigError
from penstock.masking import is_secret, mask_secrets
from penstock.telemetry.logs import get_logger

SECRET = "s3cr:et/@x"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:secret@host/a", "https://user:********@host/a"),
        ("at amqp://u:p@h:5672/v, twice", "at amqp://u:********@h:5672/v, twice"),
        (f"'mqtt://u:{SECRET}@host:1883'", "'mqtt://u:********@host:1883'"),
        ("wss://h/mqtt?X-Amz-Signature=1f&a=b", "wss://h/mqtt?X-Amz-Signature=********&a=b"),
        (
            "jdbc:postgresql://h/d;user=u;password=p;x=1",
            "jdbc:postgresql://h/d;user=u;password=********;x=1",
        ),
        ("aws_secret_access_key=abc/+=", "aws_secret_access_key=********"),
        ("https://h.blob.net/c?sv=1&sig=abc%3D", "https://h.blob.net/c?sv=1&sig=********"),
        ("{'name': 'r', 'password': 's \"x'}", "{'name': 'r', 'password': '********'}"),
        ("R(name='r', password='s \"x')", "R(name='r', password='********')"),
        ("https://user@host/", "https://user@host/"),
        ("mqtt://h:1883/a@b", "mqtt://h:1883/a@b"),
        ("mqtt://h:1883/a@b,mqtt://u:p@h", "mqtt://h:1883/a@b,mqtt://u:********@h"),
        ("x.password=p", "x.password=********"),
        ("--password-file=users token_file=t a=b", "--password-file=users token_file=t a=b"),
    ],
)
def test_a_text_that_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert mask_secrets(text) == shown
    assert mask_secrets(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a." * 200_000 + "=",
        "'=" + "password." * 40_000 + "=",
        "@" + "://:" * 100_000,
        "password='" + 'token="' * 60_001,
    ],
)
def test_the_time_grows_with_the_text_and_not_with_its_square(text: str) -> None:
    """A client identifier of 16 KiB took 18 s once; these would take hours."""
    assert len(mask_secrets(text)) < 2 * len(text)


def test_names_tell_a_secret_from_the_file_it_is_in() -> None:
    assert all(map(is_secret, ("password", "apiKey", "X-Auth-Token", "client_secret")))
    assert not any(map(is_secret, ("password_file", "readers_per_token_max", "keys", "key")))


def test_the_printed_settings_have_no_secret() -> None:
    remote = {
        "name": "r",
        "addresses": [f"wss://h/mqtt?access_token={SECRET[:5]}"],
        "username": "u",
        "password": SECRET,
        "user_properties": {"api-key": SECRET, "plant": "p"},
        "forwards": [{"topic_filters": ["a/#"], "direction": "out"}],
    }
    jwt = {"PENSTOCK_JWT_LOGIN__KEYS": f"https://u:{SECRET}@keys.example/"}
    environ = {"PENSTOCK_BRIDGE__REMOTES": json.dumps([remote]), **jwt}
    printed = as_toml(load_settings(environ=environ))
    assert SECRET[:5] not in printed
    assert 'plant" = "p"' in printed
    assert "https://u:********@keys.example/" in printed


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BRIDGE__REMOTES", '[{"name": "r", "addresses": ["mqtt://u:s3cret@h"]}]'),
        ("BRIDGE__REMOTES", '[{"name": "r", "addresses": ["mqtt://h"], "password": 5353}]'),
        ("BRIDGE__REMOTES", '{"name": "r", "password": "s3cret"}'),
        ("HTTP_LOGIN__URL", "ftp://u:s3cret@h/"),
        ("HTTP_LOGIN__URL", "http://u:s3cret@h/"),
    ],
)
def test_a_mistake_in_a_setting_quotes_no_secret(name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={f"PENSTOCK_{name}": value})
    assert "s3cret" not in str(caught.value)
    assert "5353" not in str(caught.value)


def test_a_line_of_the_log_quotes_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    logger = get_logger("masking")
    with caplog.at_level(logging.INFO):
        logger.info("%s: %s", "https://u:secret@h/", ValueError("jdbc:x;password=secret"))
    assert caplog.messages == ["https://u:********@h/: jdbc:x;password=********"]
