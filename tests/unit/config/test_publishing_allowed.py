"""Through which stream services rows may be published: where everyone may publish anyway."""

from __future__ import annotations

import pytest

from penstock.config.settings import Settings

OPEN = {"bind": "0.0.0.0:8815", "allow_anonymous": True}


@pytest.mark.parametrize(
    ("settings", "allowed"),
    [
        ({}, True),
        ({"stream": {"bind": "[::1]:8815"}}, True),
        ({"stream": OPEN}, False),
        ({"access": {"password_file": "users"}}, False),
        ({"access": {"acl_file": "rules"}}, False),
        ({"stream": OPEN | {"allow_publish": True}}, True),
        ({"access": {"password_file": "users"}, "stream": {"allow_publish": True}}, True),
    ],
)
def test_without_a_word_only_where_everyone_may(settings: dict[str, object], allowed: bool) -> None:
    assert Settings.model_validate(settings).allows_stream_publishing() is allowed
