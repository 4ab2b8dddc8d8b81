"""The settings of bridges."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config.bridge import Bridge, RemoteBroker
from penstock.config.limits import Limits
from penstock.config.settings import Settings

FORWARDS: Any = ({"topic_filters": ("#",)},)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ca": "ca.pem"}, "only mqtts:// and wss:// addresses use"),
        ({"addresses": ("mqtts://a",), "certificate": "c.pem"}, "both certificate and key"),
        ({"psk": "ab" * 16}, "a pre-shared key, which only mqtts://"),
        ({"addresses": ("mqtts://a",), "psk": "ab" * 16}, "both psk_identity and psk"),
        ({"limits": {"sessions_max": 5}}, "bounds the whole broker"),
        ({"forwards": ({"topic_filters": ("#",), "local_prefix": "a/#"},)}, "beginning of a topic"),
        ({"forwards": ({"topic_filters": ("#",), "local_prefix": "a"},)}, "makes no topic filter"),
        ({"forwards": ({"topic_filters": ("$SYS/#",), "direction": "in"},)}, "the broker's own"),
        ({"forwards": ()}, "at least 1"),
        ({"name": "a b"}, "1 to 64 letters"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"name": "up", "addresses": ("mqtt://a",), "forwards": FORWARDS}
    with pytest.raises(ValidationError, match=said):
        RemoteBroker(**given | settings)


def test_names_differ() -> None:
    remote = RemoteBroker(name="up", addresses=("mqtt://a",), forwards=FORWARDS)
    with pytest.raises(ValidationError, match="names 'up' twice"):
        Bridge(remotes=(remote, remote))


def test_the_queue_of_a_bridge_has_no_limit_unless_it_is_given_one() -> None:
    settings = Settings()
    given: dict[str, Any] = {"name": "up", "addresses": ("mqtt://a",), "forwards": FORWARDS}
    free = settings.limits_of_bridge(RemoteBroker(**given, limits=Limits(max_inflight=5)))
    assert (free.max_inflight, free.max_mqueue_len, free.mqueue_overflow) == (5, 0, "spill")
    bounded = settings.limits_of_bridge(
        RemoteBroker(**given, limits=Limits(max_mqueue_len=9, mqueue_overflow="drop_oldest"))
    )
    assert (bounded.max_mqueue_len, bounded.mqueue_overflow) == (9, "drop_oldest")
