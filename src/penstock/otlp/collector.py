"""The collector: takes metrics and spans over OTLP, by the exporters of OpenTelemetry's SDK.

The exporters tell of a failure in log lines only. Those are kept from the log, where they would
stand for every attempt, and the last one is the reason in ours: one when the collector takes
nothing any more, one a minute while it does not, one when it does again.
"""

from __future__ import annotations

import logging
import time
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
"""How long a request may take, with the attempts of the exporter, seconds."""

AGAIN_S: Final = 60.0
"""Time between two log lines about a collector that takes nothing, seconds."""


@dataclass(frozen=True, slots=True)
class CollectorEndpoint:
    """The address of a collector, with the headers and certificates for it.

    Attributes:
        endpoint: its URL, without v1/….
        headers: sent with each request.
        ca_file: PEM file of the authorities of its certificate; None: those of certifi.
        certificate: PEM file of our own certificate; None for none.
        key: PEM file of its private key.
    """

    endpoint: str
    headers: dict[str, str]
    ca_file: str | None = None
    certificate: str | None = None
    key: str | None = None

    def url(self, signal: str) -> str:
        """Return the URL that a signal is sent to: "traces" or "metrics"."""
        return f"{self.endpoint.rstrip('/')}/v1/{signal}"


@final
class _ErrorCapture(logging.Handler):
    """Keeps the last error that an exporter logged, with the warning of the attempt before."""

    def __init__(self, exporter: str) -> None:
        super().__init__()
        library = logging.getLogger(exporter)
        library.addHandler(self)
        library.propagate = False
        self.text = ""
        self._attempt = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a log record."""
        text = record.getMessage()
        if record.levelno < logging.ERROR:
            self._attempt = f" {text}"
        else:
            self.text, self._attempt = text + self._attempt, ""


@final
class Collector:
    """One collector.

    Args:
        endpoint: its address, headers and certificates.
        resource: the sender, as OpenTelemetry describes one.
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
        self._away: dict[str, float] = {}  # by signal: when a line told of it, monotonic seconds

    def take_spans(self, spans: list[Span], lost: int) -> bool:
        """Send spans; return whether the collector has them.

        Args:
            spans: the spans to be sent.
            lost: spans that were dropped until now, for the log.
        """
        made = [sdk_span(span, self._resource) for span in spans]
        is_taken = self._spans.export(made) is SpanExportResult.SUCCESS
        self._tell("traces", is_taken, f"; {lost} spans were dropped" if lost else "")
        return is_taken

    def take_metrics(self, metrics: MetricsData) -> bool:
        """Send metrics; return whether the collector has them."""
        is_taken = self._metrics.export(metrics) is MetricExportResult.SUCCESS
        self._tell("metrics", is_taken, "")
        return is_taken

    def close(self) -> None:
        """Shut both exporters down."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown()

    def _tell(self, signal: str, is_taken: bool, more: str) -> None:
        now_s = time.monotonic()
        told_s = self._away.get(signal)
        if is_taken:
            if told_s is not None:
                del self._away[signal]
                logger.warning(
                    "the collector takes %s again%s", Sentence(self._endpoint.url(signal)), more
                )
        elif told_s is None or now_s - told_s >= AGAIN_S:
            self._away[signal] = now_s
            logger.warning(
                "the collector does not take %s%s: %s",
                Sentence(self._endpoint.url(signal)),
                more,
                Sentence(self._errors[signal].text),
            )


def _session() -> requests.Session:
    """Return a session that takes its authorities, passwords and proxies from the settings alone,
    and not from the environment or ~/.netrc."""
    session = requests.Session()
    session.trust_env = False
    return session
