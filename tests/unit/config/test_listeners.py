"""Listeners in the settings: zones, what belongs together, a sentence for what does not."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.config.address import Address, SocketFile
from penstock.config.describe import as_toml
from penstock.config.limits import BROKER_LIMITS, Limits
from penstock.config.load import load_settings
from penstock.config.settings import Settings
from penstock.errors import ConfigError

SERVICES: dict[str, Any] = {"name": "services", "bind": "127.0.0.1:1884"}
FILES = {"certificate": "server.pem", "key": "server.key"}


def settings_with(*others: dict[str, Any], **listener: Any) -> Settings:
    """Settings with these further listeners."""
    overrides: dict[str, Any] = {f"listener.{name}": value for name, value in listener.items()}
    return load_settings(None, {"listener.others": list(others), **overrides}, {})


def mistake(*others: dict[str, Any], **listener: Any) -> str:
    environ = {"PENSTOCK_LISTENER__OTHERS": json.dumps(list(others))}
    for name, value in listener.items():
        environ[f"PENSTOCK_LISTENER__{name.upper()}"] = str(value)
    with pytest.raises(ConfigError) as error:
        load_settings(environ=environ)
    return str(error.value)


def loaded(text: str, directory: Path) -> Settings:
    path = directory / "penstock.toml"
    path.write_text(text, encoding="utf-8")
    return load_settings(path, environ={})


def test_a_zone_has_its_own_limits_and_the_brokers_for_the_rest(tmp_path: Path) -> None:
    """Seed 000: internal services 128 / 10000, devices 32 / 1000."""
    settings = loaded(
        """
        [limits]
        receive_maximum = 77

        [[listener.others]]
        name = "services"
        bind = "127.0.0.1:1884"
        limits = { max_inflight = 128, max_mqueue_len = 10000 }
        """,
        tmp_path,
    )
    main, services = settings.listener.enabled_listeners()
    assert settings.limits_of(main) == settings.limits
    zone = settings.limits_of(services)
    assert (zone.max_inflight, zone.max_mqueue_len, zone.receive_maximum) == (128, 10000, 77)
    assert settings.limits.max_inflight == 32


def test_every_limit_is_either_the_zones_or_the_brokers() -> None:
    assert set(Limits.model_fields) > BROKER_LIMITS
    for name in BROKER_LIMITS:
        zone = {**SERVICES, "limits": {name: 1}}
        assert f"limits.{name}, which bounds the whole broker" in mistake(zone)


def test_printed_listeners_read_back_are_the_same(tmp_path: Path) -> None:
    services = {
        **SERVICES,
        **FILES,
        "kind": "tls",
        "limits": {"max_inflight": 128},
        "sni": {"plant.example": FILES},
        "proxy_protocol": "any",
        "proxy_networks": ["10.0.0.0/8"],
    }
    local = {"name": "local", "kind": "unix", "bind": "/run/penstock.sock", "mode": "600"}
    environ = {
        "PENSTOCK_LISTENER__OTHERS": json.dumps([services, local]),
        "PENSTOCK_LISTENER__LIMITS": json.dumps({"max_inflight": 7}),
    }
    settings = load_settings(environ=environ)
    again = loaded(as_toml(settings), tmp_path)
    assert again == settings
    for ours, theirs in zip(
        settings.listener.enabled_listeners(), again.listener.enabled_listeners(), strict=True
    ):
        assert again.limits_of(theirs) == settings.limits_of(ours)


def test_addresses_of_each_kind() -> None:
    settings = settings_with(
        {"name": "v6", "bind": "[::1]:1883"},
        {"name": "local", "kind": "unix", "bind": "run/mqtt.sock"},
        enabled=False,
    )
    assert [listener.bind for listener in settings.listener.enabled_listeners()] == [
        Address("::1", 1883),
        SocketFile("run/mqtt.sock"),
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "udp"}, "listener.others[0].kind is 'udp'"),
        ({"kind": "unix"}, 'a path for "unix"'),
        ({"bind": "/run/mqtt.sock"}, 'a path for "unix"'),
        ({"bind": "/run/" + 110 * "x"}, "must be a path of at most 107 bytes"),
        ({"kind": "tls"}, "needs certificate and key"),
        ({"kind": "tls", "certificate": "c.pem"}, "needs certificate and key"),
        (FILES, 'only "tls" and "wss" use'),
        ({**FILES, "kind": "wss", "require_client_certificate": True}, "needs client_ca"),
        ({"proxy_protocol": "v2"}, "needs proxy_networks"),
        ({"psk_file": "keys"}, 'is for kinds "tls" and "wss" without certificates'),
        ({**FILES, "kind": "tls", "psk_file": "keys"}, "without certificates"),
        ({"proxy_networks": ["10.0.0.1/8"]}, "a network such as"),
        ({"mode": "888"}, "three octal digits"),
        ({"path": "mqtt"}, "starts with a slash"),
        ({"name": "two words"}, "letters, digits"),
        ({"name": "main"}, "two listeners are named 'main'"),
        ({"bind": "127.0.0.1:1883"}, "two listeners have the address 127.0.0.1:1883"),
        ({"bind": "127.0.0.1:8815"}, "'services' and stream.bind are both"),
        ({"bind": "0.0.0.0:1884"}, "which other machines can reach"),
        ({"limits": {"max_inflight": 70000}}, "limits.max_inflight is 70000"),
        ({"limits": {"max_inflihgt": 7}}, "did you mean max_inflight?"),
        ({"port": 1884}, "did you mean bind?"),
        ({"certfile": "server.pem"}, "did you mean certificate?"),
        ({"kind": "unix", "bind": "mqtt.sock"}, "path with a slash in it: ./mqtt.sock."),
        ({"bind": "1884"}, "such as 127.0.0.1:1883 or [::1]:1883."),
        ({"limits": 7}, "must be a table"),
        ({"colour": "red"}, "listener.others[0].colour"),
        ({"sni": {"plant.example": {"certificate": "c.pem"}}}, "key is missing"),
    ],
)
def test_a_mistake_is_one_sentence(change: dict[str, Any], said: str) -> None:
    text = mistake({**SERVICES, **change})
    assert said in text
    assert "\n" not in text


def test_client_certificates_let_others_in() -> None:
    """Who must show a certificate is not anonymous."""
    mutual = {**FILES, "kind": "tls", "client_ca": "ca.pem", "require_client_certificate": True}
    settings = settings_with({**SERVICES, **mutual, "bind": "0.0.0.0:8883"})
    assert not settings.listener.others[0].allow_anonymous


def test_pre_shared_keys_let_others_in() -> None:
    keyed = {"kind": "tls", "psk_file": "keys", "bind": "0.0.0.0:8883"}
    settings = settings_with({**SERVICES, **keyed})
    assert not settings.listener.others[0].allow_anonymous


def test_somebody_must_listen() -> None:
    assert "no client could connect" in mistake(enabled="false")


def test_bind_for_a_listener_that_is_off_says_what_to_do() -> None:
    with pytest.raises(ConfigError) as error:
        load_settings(
            None,
            {"listener.bind": "127.0.0.1:1"},
            {
                "PENSTOCK_LISTENER__ENABLED": "false",
                "PENSTOCK_LISTENER__OTHERS": json.dumps([SERVICES]),
            },
        )
    assert str(error.value) == (
        "--bind gives the address of the main listener, which is turned off (listener.enabled ="
        " false from PENSTOCK_LISTENER__ENABLED): leave out --bind, or set listener.enabled = true"
    )
