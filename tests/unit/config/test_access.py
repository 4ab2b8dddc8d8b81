"""Mistakes in [access]: one sentence each."""

import pytest

from penstock.config.load import load_settings
from penstock.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"access.failure_delay_s": 20, "access.failure_delay_s_max": 10},
            "access.failure_delay_s is 20 and must not be above access.failure_delay_s_max",
        ),
        ({"access.ban_exempt": ["10.0.0.1/8"]}, "must be a network such as"),
        ({"access.ban_s": 0}, "access.ban_s is 0"),
        ({"access.ban_failures": 1001}, "access.ban_failures is 1001"),
        ({"access.failures_burst": -1}, "access.failures_burst is -1"),
    ],
)
def test_each_mistake_is_said(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_settings(None, settings, {})
    assert sentence in str(raised.value)
