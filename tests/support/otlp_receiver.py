"""A collector for tests: takes OTLP over HTTP or HTTPS on loopback and decodes it.

::

      with OtlpReceiver() as collector:  ─▶ collector.url ─▶ … ─▶ collector.spans(), .metrics()
      collector.close(), OtlpReceiver(port=…)                     it is away, and there again
"""

import contextlib
import gzip
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def attributes_of(pairs: Any) -> dict[str, str | int | bool | float]:
    """Attributes by their names."""
    return {pair.key: _value(pair) for pair in pairs}


def _value(pair: KeyValue) -> Any:
    return getattr(pair.value, str(pair.value.WhichOneof("value")))


@final
class OtlpReceiver:
    """A collector.

    Args:
        port: where it listens; 0 for any.
        certificate: certificate and key, PEM files; with them it speaks TLS.
        status: what it answers.
    """

    def __init__(
        self, port: int = 0, certificate: tuple[str, str] | None = None, status: int = 200
    ) -> None:
        self.status = status
        self.headers: list[dict[str, str]] = []
        self.resources: list[dict[str, str | int | bool | float]] = []
        self._spans: list[Span] = []
        self._metrics: dict[str, Metric] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            scheme = "https"
        self.port = self._server.server_port
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def spans(self) -> list[Span]:
        """The spans that came."""
        with self._lock:
            return list(self._spans)

    def metrics(self) -> dict[str, Metric]:
        """The metrics that came last, by name."""
        with self._lock:
            return dict(self._metrics)

    def points(self, name: str) -> dict[tuple[str, ...], float]:
        """The values of a sum or gauge, by the values of their attributes."""
        metric = self.metrics().get(name)
        if metric is None:
            return {}
        points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
        return {
            tuple(str(value) for value in attributes_of(point.attributes).values()): (
                point.as_double if point.HasField("as_double") else point.as_int
            )
            for point in points
        }

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> None:
        with self._lock:
            self.headers.append(headers)
            if path.endswith("/v1/traces"):
                traces = ExportTraceServiceRequest.FromString(body)
                for resource in traces.resource_spans:
                    self.resources.append(attributes_of(resource.resource.attributes))
                    for scope in resource.scope_spans:
                        self._spans.extend(scope.spans)
            else:
                assert path.endswith("/v1/metrics"), path
                found = ExportMetricsServiceRequest.FromString(body)
                for one in found.resource_metrics:
                    self.resources.append(attributes_of(one.resource.attributes))
                    for each in one.scope_metrics:
                        self._metrics = {metric.name: metric for metric in each.metrics}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            """Answers one connection."""

            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                """Take one request."""
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if receiver.status == 200:
                    named = {name.lower(): value for name, value in self.headers.items()}
                    receiver._take(self.path, named, body)
                self.send_response(receiver.status)
                self.send_header("Content-Length", "0")
                with contextlib.suppress(OSError):
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler
