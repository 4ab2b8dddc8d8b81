"""The settings of the admin process: what could not work, or would be open, is refused."""

import pytest

from penstock.config.load import load_settings
from penstock.errors import ConfigError


def test_without_an_address_there_is_none() -> None:
    assert not load_settings(None, {}, {}).admin.bind
    assert not load_settings(None, {"admin.bind": ""}, {}).admin.bind


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"admin.bind": "0.0.0.0:8080"}, "metrics are for everyone there"),
        ({"admin.bind": "127.0.0.1:1883"}, "admin.bind and listener.bind are both 127.0.0.1:1883"),
        ({"admin.bind": "127.0.0.1:8815"}, "admin.bind and stream.bind are both"),
        (
            {"admin.bind": "127.0.0.1:8080", "durability.persistence": "memory"},
            "needs durability.persistence",
        ),
        ({"admin.bind": "8080"}, "HOST:PORT"),
        ({"admin.certificate": "cert.pem"}, "belong together"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(None, settings, {})


def test_an_address_for_others_is_accepted_with_a_token() -> None:
    settings = {"admin.bind": "0.0.0.0:8080", "admin.token_file": "tokens"}
    assert load_settings(None, settings, {}).admin.file_options == ("--token-file", "tokens")
