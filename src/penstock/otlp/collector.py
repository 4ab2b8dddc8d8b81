"""Sends metrics and spans to a collector over OTLP, by the exporters of OpenTelemetry's SDK.

The exporters report a failure in log lines only, one for every attempt. These lines are captured,
and the last one is the reason in our own log lines: one when the collector stops accepting, one a
minute while it does not accept, one when it accepts again.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

import requests
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExportResult

from penstock.otlp.message_traces import Span
from penstock.otlp.sdk_spans import sdk_span
from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

REQUEST_S_MAX: Final = 5.0
"""Time limit of a request with the exporter's retries, in seconds."""

STUCK_S: Final = 30.0
"""Time in seconds after which a request is stuck."""

WARNING_INTERVAL_S: Final = 60.0
"""Time in seconds between two log lines about the same failure."""


@dataclass(frozen=True, slots=True)
class CollectorEndpoint:
    """The address of a collector, with the headers and certificates for it.

    Attributes:
        endpoint: the collector's URL, without v1/….
        headers: HTTP headers sent with each request.
        ca_file: PEM file of the authorities of the collector's certificate; None: those of certifi.
        certificate: PEM file of our own certificate; None for none.
        key: PEM file of our private key; None for none.
    """

    endpoint: str
    headers: dict[str, str]
    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None

    def url(self, signal: str) -> str:
        """Return the URL to which ``signal``, "traces" or "metrics", is sent."""
        return f"{self.endpoint.rstrip('/')}/v1/{signal}"


@final
class _ErrorCapture(logging.Handler):
    """Captures the last error that an exporter logged, with the warning of its last attempt."""

    def __init__(self, exporter: str) -> None:
        super().__init__()
        library = logging.getLogger(exporter)
        library.addHandler(self)
        library.propagate = False
        self.text = ""
        self._attempt = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Store the text of a log record."""
        text = record.getMessage()
        if record.levelno < logging.ERROR:
            self._attempt = f" {text}"
        else:
            self.text, self._attempt = text + self._attempt, ""


@final
class Collector:
    """The connection to one collector.

    Args:
        endpoint: the address, headers and certificates.
        resource: the OpenTelemetry resource that describes this broker.
    """

    def __init__(self, endpoint: CollectorEndpoint, resource: Resource) -> None:
        self._endpoint = endpoint
        self._resource = resource
        self._errors = {
            "traces": _ErrorCapture(OTLPSpanExporter.__module__),
            "metrics": _ErrorCapture(OTLPMetricExporter.__module__),
        }
        self._spans = OTLPSpanExporter(
            endpoint.url("traces"),
            endpoint.ca_file,
            endpoint.key,
            endpoint.certificate,
            endpoint.headers,
            REQUEST_S_MAX,
            Compression.Gzip,
            _session(),
        )
        self._metrics = OTLPMetricExporter(
            endpoint.url("metrics"),
            endpoint.ca_file,
            endpoint.key,
            endpoint.certificate,
            endpoint.headers,
            REQUEST_S_MAX,
            Compression.Gzip,
            _session(),
        )
        self._begun_s: dict[str, float] = {}  # by signal: when its request began, monotonic
        self._warned_s: dict[str, float] = {}  # by failing signal: monotonic time of the last line

    def send_spans(self, spans: list[Span], dropped: int) -> bool:
        """Send spans; return whether the collector accepted them.

        Args:
            spans: the spans to be sent.
            dropped: the number of spans dropped until now, for the log.
        """
        sdk_spans = [sdk_span(span, self._resource) for span in spans]
        with self._timed("traces"):
            is_accepted = self._spans.export(sdk_spans) is SpanExportResult.SUCCESS
        self._log_outcome(
            "traces", is_accepted, f"; {dropped} spans were dropped" if dropped else ""
        )
        return is_accepted

    def send_metrics(self, metrics: MetricsData) -> bool:
        """Send metrics; return whether the collector accepted them."""
        with self._timed("metrics"):
            is_accepted = self._metrics.export(metrics) is MetricExportResult.SUCCESS
        self._log_outcome("metrics", is_accepted, "")
        return is_accepted

    def stuck(self) -> str:
        """Return the address of a request that has been under way for far too long, empty if there
        is none: the library limits each wait for a part of an answer, and not the whole."""
        now_s = time.monotonic()
        late = [name for name, at_s in list(self._begun_s.items()) if now_s - at_s > STUCK_S]
        return self._endpoint.url(late[0]) if late else ""

    @contextlib.contextmanager
    def _timed(self, signal: str) -> Iterator[None]:
        self._begun_s[signal] = time.monotonic()
        try:
            yield
        finally:
            del self._begun_s[signal]

    def close(self) -> None:
        """Shut both exporters down."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown()

    def _log_outcome(self, signal: str, is_accepted: bool, note: str) -> None:
        now_s = time.monotonic()
        warned_s = self._warned_s.get(signal)
        if is_accepted:
            if warned_s is not None:
                del self._warned_s[signal]
                logger.warning(
                    "the collector takes %s again%s", Sentence(self._endpoint.url(signal)), note
                )
        elif warned_s is None or now_s - warned_s >= WARNING_INTERVAL_S:
            self._warned_s[signal] = now_s
            logger.warning(
                "the collector does not take %s%s: %s",
                Sentence(self._endpoint.url(signal)),
                note,
                Sentence(self._errors[signal].text),
            )


def _session() -> requests.Session:
    """Return an HTTP session that ignores the authorities, passwords and proxies of the environment
    and of ~/.netrc."""
    session = requests.Session()
    session.trust_env = False
    return session
