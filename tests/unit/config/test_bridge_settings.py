"""The settings of bridges."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config import Limits, Settings
from penstock.config.address import Address
from penstock.config.bridge import Bridge, Remote, parse_remote

FORWARDS: Any = ({"topic_filters": ("#",)},)


@pytest.mark.parametrize(
    ("url", "address", "is_encrypted"),
    [
        ("mqtt://broker.example", Address("broker.example", 1883), False),
        ("mqtts://broker.example", Address("broker.example", 8883), True),
        ("mqtt://192.0.2.7:1884", Address("192.0.2.7", 1884), False),
        ("mqtts://[2001:db8::1]:99", Address("2001:db8::1", 99), True),
        ("mqtt://[::1]", Address("::1", 1883), False),
    ],
)
def test_addresses_are_urls(url: str, address: Address, is_encrypted: bool) -> None:
    assert parse_remote(url) == (address, is_encrypted)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "broker",
        "http://broker",
        "mqtt://",
        "mqtt://a:b",
        "mqtt://u:p@a",
        "mqtt://a/t",
        "mqtt://a:0",
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="mqtt://HOST:PORT"):
        parse_remote(url)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ca": "ca.pem"}, "only mqtts:// addresses use"),
        ({"addresses": ("mqtts://a",), "certificate": "c.pem"}, "both certificate and key"),
        ({"limits": {"sessions_max": 5}}, "bounds the whole broker"),
        ({"forwards": ({"topic_filters": ("#",), "local_prefix": "a/#"},)}, "beginning of a topic"),
        ({"forwards": ({"topic_filters": ("#",), "local_prefix": "a"},)}, "makes no topic filter"),
        ({"forwards": ({"topic_filters": ("$SYS/#",), "direction": "in"},)}, "the broker's own"),
        ({"forwards": ()}, "at least 1"),
        ({"name": "a b"}, "1 to 64 letters"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"name": "up", "addresses": ("mqtt://a",), "forwards": FORWARDS}
    with pytest.raises(ValidationError, match=said):
        Remote(**given | settings)


def test_names_differ() -> None:
    remote = Remote(name="up", addresses=("mqtt://a",), forwards=FORWARDS)
    with pytest.raises(ValidationError, match="names 'up' twice"):
        Bridge(remotes=(remote, remote))


def test_the_queue_of_a_bridge_has_no_limit_unless_it_is_given_one() -> None:
    settings = Settings()
    given: dict[str, Any] = {"name": "up", "addresses": ("mqtt://a",), "forwards": FORWARDS}
    free = settings.limits_of_bridge(Remote(**given, limits=Limits(max_inflight=5)))
    assert (free.max_inflight, free.max_mqueue_len, free.mqueue_overflow) == (5, 0, "spill")
    bounded = settings.limits_of_bridge(
        Remote(**given, limits=Limits(max_mqueue_len=9, mqueue_overflow="drop_oldest"))
    )
    assert (bounded.max_mqueue_len, bounded.mqueue_overflow) == (9, "drop_oldest")
