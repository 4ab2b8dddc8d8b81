"""OpenTelemetry: where metrics and traces of messages are sent."""

from __future__ import annotations

import json
import re
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from penstock.config.group import SettingsGroup
from penstock.engine.values.change_effects import AT_ONCE, RESTART, takes_effect

ATTRIBUTES_MAX: Final = 64
_ATTRIBUTE_LENGTH_MAX: Final = 256
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_.-]{0,127}")


@takes_effect(AT_ONCE)
class OpenTelemetry(SettingsGroup):
    """Metrics and traces of messages for an OpenTelemetry collector, sent by a process beside the
    broker (docs/opentelemetry.md)."""

    endpoint: Annotated[str, RESTART] = ""
    """URL of a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318: metrics are sent
    to its path v1/metrics, spans to v1/traces. Empty: nothing is sent."""

    headers_file: str = ""
    """File of headers that are sent along, one NAME: VALUE a line, such as a token. Empty: none.
    Read again at SIGHUP, as are the other files."""

    ca_file: str = ""
    """PEM file of the authorities that sign the collector's certificate; empty for those that
    Python's certifi knows."""

    certificate: str = ""
    """PEM file of the certificate that is shown to the collector. Empty for none."""

    key: str = ""
    """PEM file of the certificate's private key, without a password."""

    interval_s: float = Field(default=60.0, ge=0, le=86_400)
    """Time between two sets of metrics, in seconds. 0 to 86400; 0 sends none."""

    trace_ratio: float = Field(default=1.0, ge=0, le=1)
    """Share, 0 to 1, of the followed messages without a trace context of their publisher that
    become traces. Where a message has a traceparent, its sampled flag decides. Messages are
    followed as events.topic_filters and events.sample_one_in say. 0 reads no events at all."""

    trace_s_max: float = Field(default=60.0, ge=1, le=3600)
    """Time until a trace is sent although receivers have not acknowledged their message yet, in
    seconds; what happens to it later is in no trace. 1 to 3600."""

    open_spans_max: int = Field(default=20_000, ge=100, le=1_000_000)
    """Most spans of messages in delivery that the process has in memory, 4 KiB each at most. Beyond
    that the oldest trace is sent as it is. 100 to 1000000."""

    unsent_spans_max: int = Field(default=20_000, ge=100, le=1_000_000)
    """Most spans that wait to be sent, 4 KiB each at most; further spans are dropped and counted.
    100 to 1000000."""

    service_name: str = Field(default="penstock", min_length=1, max_length=_ATTRIBUTE_LENGTH_MAX)
    """The resource attribute service.name; at most 256 characters."""

    resource_attributes: dict[str, str] = Field(default={}, max_length=ATTRIBUTES_MAX)
    """Further resource attributes, such as { "deployment.environment.name" = "plant 7" }, at most
    64."""

    stream_host: str = ""
    """Name or address under which the process reaches the broker's own stream service, where its
    certificate does not name stream.bind. Empty: stream.bind."""

    stream_ca_file: str = ""
    """PEM file of the authorities that sign the certificate of the broker's own stream service,
    from which events are read; needed where the system does not trust those of
    stream.certificate."""

    @field_validator("resource_attributes")
    @classmethod
    def _are_attributes(cls, attributes: dict[str, str]) -> dict[str, str]:
        for name, value in attributes.items():
            if _NAME.fullmatch(name) is None or len(value) > _ATTRIBUTE_LENGTH_MAX:
                raise ValueError(
                    "a table of names of letters, digits and . _ - that start with a letter, at"
                    " most 128 characters, with texts of at most 256"
                )
        return attributes

    @model_validator(mode="after")
    def _parts_fit(self) -> OpenTelemetry:
        if bool(self.certificate) != bool(self.key):
            raise ValueError(
                "opentelemetry.certificate and opentelemetry.key, two PEM files, belong together"
            )
        if not self.endpoint:
            return self
        parts = urlsplit(self.endpoint)
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
        if not is_web or parts.query or parts.fragment:
            raise ValueError(
                f"opentelemetry.endpoint is {self.endpoint!r}, but must be http://HOST[:PORT] or"
                " https://HOST[:PORT], and the path before v1/traces if there is one"
            )
        if parts.username is not None:
            raise ValueError(
                "opentelemetry.endpoint must have no user name or password in it: write them into"
                " opentelemetry.headers_file"
            )
        if parts.scheme == "http" and (self.ca_file or self.certificate):
            raise ValueError(
                "opentelemetry.ca_file and opentelemetry.certificate are for https://, and"
                " opentelemetry.endpoint is http://"
            )
        return self

    @property
    def file_options(self) -> tuple[str, ...]:
        """The command-line options that give the OpenTelemetry process its files."""
        file_by_option = {
            "--headers-file": self.headers_file,
            "--ca-file": self.ca_file,
            "--certificate": self.certificate,
            "--key": self.key,
            "--stream-ca-file": self.stream_ca_file,
        }
        return tuple(
            part for option, file in file_by_option.items() if file for part in (option, file)
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """The command-line options that give the OpenTelemetry process its other settings."""
        return (
            "--endpoint",
            self.endpoint,
            "--interval-s",
            str(self.interval_s),
            "--trace-ratio",
            str(self.trace_ratio),
            "--trace-s-max",
            str(self.trace_s_max),
            "--open-spans-max",
            str(self.open_spans_max),
            "--unsent-spans-max",
            str(self.unsent_spans_max),
            "--service-name",
            self.service_name,
            "--resource-attributes",
            json.dumps(self.resource_attributes),
        )
