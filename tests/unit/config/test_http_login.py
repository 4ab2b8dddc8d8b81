"""Mistakes in [http_login]: one sentence each."""

import pytest

from penstock.config.load import load_settings
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"http_login.url": "users.example"}, "must be http://HOST"),
        ({"http_login.url": "ftp://users.example/"}, "must be http://HOST"),
        ({"http_login.url": "http://a:b@users.example/"}, "no user name or password in it"),
        (
            {"http_login.url": "http://users.example/", "http_login.ca_file": "ca.pem"},
            "http_login.ca_file is for https://",
        ),
        ({"http_login.timeout_s": 0}, "http_login.timeout_s is 0"),
    ],
)
def test_each_mistake_is_said(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(None, settings, {})
    assert sentence in str(raised.value)


def test_with_a_service_an_open_address_is_allowed_and_anonymous_clients_are_not() -> None:
    settings = load_settings(
        None, {"http_login.url": "http://users.example/", "listener.bind": "0.0.0.0:1883"}, {}
    )
    assert not settings.allows_anonymous(settings.listener)
