"""The settings of OpenTelemetry: what could not work is refused, and secrets are named by files."""

import pytest

from penstock.config.load import load_settings
from penstock.errors import ConfigError

HERE: dict[str, object] = {"opentelemetry.endpoint": "http://127.0.0.1:4318"}


def test_without_an_endpoint_nothing_is_sent() -> None:
    assert not load_settings(None, {}, {}).opentelemetry.endpoint
    assert not load_settings(None, {"events.enabled": True}, {}).sends_traces


def test_traces_need_events() -> None:
    assert not load_settings(None, HERE, {}).sends_traces
    assert load_settings(None, HERE | {"events.enabled": True}, {}).sends_traces
    no_ratio = HERE | {"events.enabled": True, "opentelemetry.trace_ratio": 0}
    assert not load_settings(None, no_ratio, {}).sends_traces


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"opentelemetry.endpoint": "127.0.0.1:4318"}, "must be http://"),
        ({"opentelemetry.endpoint": "http://"}, "must be http://"),
        ({"opentelemetry.endpoint": "http://h:4318/?a=b"}, "must be http://"),
        ({"opentelemetry.endpoint": "https://u:p@h"}, "headers_file"),
        (HERE | {"opentelemetry.ca_file": "ca.pem"}, "are for https://"),
        ({"opentelemetry.certificate": "cert.pem"}, "belong together"),
        ({"opentelemetry.resource_attributes": {"1a": "x"}}, "start with a letter"),
        (HERE | {"durability.persistence": "memory"}, "needs durability.persistence"),
        (
            HERE
            | {
                "events.enabled": True,
                "stream.client_ca": "ca.pem",
                "stream.certificate": "c.pem",
                "stream.key": "c.key",
            },
            "trace_ratio = 0",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(None, settings, {})


def test_files_are_arguments_by_their_names() -> None:
    settings = {"opentelemetry.endpoint": "https://h", "opentelemetry.headers_file": "headers"}
    assert load_settings(None, settings, {}).opentelemetry.file_options == (
        "--headers-file",
        "headers",
    )
