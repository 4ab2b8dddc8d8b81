"""The OpenTelemetry process: a process beside the broker that sends metrics and traces.

::

    broker ◀─ control socket: metrics ──── thread "metrics" ────────────────▶ collector, OTLP
      ╰ stream service ◀─ events ── thread "events" ─▶ spans ─▶ thread "spans" ─▶

The process never slows the broker: it sends one request at a time, runs at a lower priority, keeps
a bounded number of spans, and drops spans that the collector does not accept.

It prints `ready URL` once its threads run, and ends with exit code 0 on SIGTERM, on SIGINT, or when
its standard input ends because its parent has ended.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, final

from opentelemetry.sdk.resources import Resource

from penstock.auth.header_file import read_headers
from penstock.control.client import ask
from penstock.control.metric_families import COUNTER, GAUGE, Family
from penstock.control.metric_requests import Metrics, ReadMetrics
from penstock.errors import ConfigError, PenstockError
from penstock.otlp.collector import WARNING_INTERVAL_S, Collector, CollectorEndpoint
from penstock.otlp.event_feed import EventFeed
from penstock.otlp.message_traces import MessageTraces, Span
from penstock.otlp.metric_points import metrics_data
from penstock.otlp.span_queue import SpanQueue
from penstock.stream.client import StreamClient
from penstock.stream.credentials import Credentials
from penstock.telemetry.logs import Sentence, configure_logs, get_logger
from penstock.telemetry.sign_of_life import SIGN_S, give_sign
from penstock.telemetry.terminal import guard_terminals
from penstock.version import __version__

logger = get_logger(__name__)

NICENESS: Final = 5
READ_INTERVAL_S: Final = 0.5
METRICS_S_MAX: Final = 9.0
SERVICE_S: Final = 5.0
"""Time in seconds that the stream service may be unreachable before that is logged."""

SHUTDOWN_S_MAX: Final = 3.0
"""Time limit for sending the last spans at the end, in seconds."""

PAUSE_S_MIN: Final = 0.5
PAUSE_S_MAX: Final = 30.0

SENT: Final = Family("opentelemetry_spans_sent", COUNTER, "Spans that the collector has taken")
DROPPED: Final = Family(
    "opentelemetry_spans_dropped", COUNTER, "Spans dropped because the collector did not take them"
)
WAITING: Final = Family("opentelemetry_spans_waiting", GAUGE, "Spans that wait for the collector")
OPEN: Final = Family("opentelemetry_spans_open", GAUGE, "Spans of messages that are under way")
CUT: Final = Family(
    "opentelemetry_traces_cut", COUNTER, "Traces sent before all receivers had their message"
)
MISSED: Final = Family(
    "opentelemetry_events_missed",
    COUNTER,
    "Times that events had left the log before they were read",
)


@final
class Exporter:
    """The threads of the process.

    Args:
        options: the arguments of the process.
        collector: the collector to which the threads send.
        resource: the OpenTelemetry resource that describes this broker.

    Attributes:
        exit_code: the exit code of the process, once ``run`` has returned.
    """

    def __init__(
        self, options: argparse.Namespace, collector: Collector, resource: Resource
    ) -> None:
        self.exit_code = 0
        self._options = options
        self._collector = collector
        self._resource = resource
        self._stop = threading.Event()
        self._all_read = threading.Event()  # no more spans will be queued
        self._queue = SpanQueue(options.unsent_spans_max)
        self._traces: MessageTraces | None = None
        self._cut_before = 0  # traces that were cut in earlier epochs of the log
        self._feed: EventFeed | None = None
        self._started_ns = 0
        self._warned_s: dict[str, float] = {}  # by subject, monotonic seconds

    def run(self) -> None:
        """Send metrics and spans until ``stop``."""
        works = []
        if self._options.interval_s > 0:
            works.append(self._send_metrics)
        if self._options.stream:
            works += [self._read_events, self._send_spans]
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        while give_sign() and not self._stop.wait(SIGN_S):
            if address := self._collector.stuck():
                logger.error(
                    "the collector at %s does not end its answer: the process starts anew",
                    Sentence(address),
                )
                self.exit_code = 1
                self.stop()
        ends_s = time.monotonic() + SHUTDOWN_S_MAX
        for thread in threads:
            thread.join(max(0.0, ends_s - time.monotonic()))
        self._collector.close()

    def handle_exception(self, raised: threading.ExceptHookArgs) -> None:
        """End the process with an error after an exception in a thread; the broker restarts it."""
        logger.error("a defect: %s", Sentence(repr(raised.exc_value)))
        self.exit_code = 1
        self.stop()

    def stop(self) -> None:
        """Let the threads send the queued spans and end."""
        self._stop.set()
        self._queue.wake()

    # -- metrics -------------------------------------------------------------------------

    def _send_metrics(self) -> None:
        while True:
            try:
                found = ask(self._options.data_dir, ReadMetrics(), Metrics, METRICS_S_MAX)
            except PenstockError as error:
                self._warn("metrics", f"the broker's metrics cannot be read: {error}")
            else:
                now_ns = time.time_ns()
                self._set_start(found, now_ns)
                own = self._own_metrics()
                data = metrics_data(found, own, self._resource, self._started_ns, now_ns)
                self._collector.send_metrics(data)
            if self._stop.wait(self._options.interval_s):
                return

    def _set_start(self, found: Metrics, now_ns: int) -> None:
        """Set the start time of the broker, once: a start time that changes means a reset of
        counters."""
        if not self._started_ns:
            uptime_s = found.samples["uptime_seconds"][0].value
            self._started_ns = now_ns - int(uptime_s * 1e9)

    def _own_metrics(self) -> list[tuple[Family, float]]:
        """Return the metrics of this process."""
        traces, feed = self._traces, self._feed
        return [
            (SENT, self._queue.sent),
            (DROPPED, self._queue.dropped),
            (WAITING, len(self._queue)),
            (OPEN, 0 if traces is None else traces.open_spans),
            (CUT, self._cut_before + (0 if traces is None else traces.cut_traces)),
            (MISSED, 0 if feed is None else feed.missed),
        ]

    # -- traces --------------------------------------------------------------------------

    def _read_events(self) -> None:
        options = self._options
        credentials = Credentials(
            options.stream_tls, options.stream_ca_file, token_file=options.stream_token_file
        )
        with StreamClient(options.stream, SERVICE_S, credentials) as client:
            self._feed = EventFeed(client)
            while True:
                try:
                    self._read(self._feed)
                except PenstockError as error:
                    self._warn("events", f"the broker's events cannot be read: {error}")
                is_over = self._stop.wait(READ_INTERVAL_S)
                if self._traces is not None:
                    end_traces = self._traces.close if is_over else self._expire_traces
                    for span in end_traces():
                        self._queue.put(span)
                if is_over:
                    self._all_read.set()
                    self._queue.wake()
                    return

    def _read(self, feed: EventFeed) -> None:
        if feed.refresh():
            self._begin_traces(feed.epoch)
        assert self._traces is not None
        for kind, event in feed.read():
            for span in self._traces.add(kind, event):
                self._queue.put(span)

    def _begin_traces(self, epoch: str) -> None:
        options = self._options
        if self._traces is not None:
            self._cut_before += self._traces.cut_traces
        self._traces = MessageTraces(
            epoch, options.trace_ratio, int(options.trace_s_max * 1e6), options.open_spans_max
        )

    def _expire_traces(self) -> Iterator[Span]:
        assert self._traces is not None
        return self._traces.expire(time.time_ns() // 1000)

    def _send_spans(self) -> None:
        pause_s = PAUSE_S_MIN
        while True:
            self._queue.wait(PAUSE_S_MAX)
            all_read = self._all_read.is_set()
            spans = self._queue.batch(time.monotonic())
            if not spans:
                if all_read:
                    return
                continue
            if self._collector.send_spans(spans, self._queue.dropped):
                self._queue.mark_sent()
                pause_s = PAUSE_S_MIN
                continue
            self._queue.retry_or_drop(time.monotonic())
            if self._stop.wait(pause_s):
                return
            pause_s = min(pause_s * 2, PAUSE_S_MAX)

    def _warn(self, subject: str, text: str) -> None:
        """Log a failure of ``subject``, at most once in ``WARNING_INTERVAL_S``."""
        now_s = time.monotonic()
        if now_s - self._warned_s.get(subject, -WARNING_INTERVAL_S) >= WARNING_INTERVAL_S:
            self._warned_s[subject] = now_s
            logger.warning("%s", Sentence(text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the process until a signal or the end of its standard input; return the exit code."""
    guard_terminals()
    configure_logs("warning")
    options = _parser().parse_args(arguments)
    try:
        headers = read_headers(options.headers_file) if options.headers_file else {}
        endpoint = CollectorEndpoint(
            options.endpoint, headers, options.ca_file, options.certificate, options.key
        )
    except ConfigError as error:
        print(f"penstock: OpenTelemetry process: {error}", file=sys.stderr)
        return 2
    os.nice(NICENESS)
    resource = _resource(options)
    exporter = Exporter(options, Collector(endpoint, resource), resource)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: exporter.stop())
    threading.Thread(target=_wait_for_end_of_input, args=(exporter,), daemon=True).start()
    try:
        print(f"ready {options.endpoint}", flush=True)
    except BrokenPipeError:  # the broker was killed while we started
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    threading.excepthook = exporter.handle_exception
    exporter.run()
    return exporter.exit_code


def _wait_for_end_of_input(exporter: Exporter) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    exporter.stop()


def _resource(options: argparse.Namespace) -> Resource:
    """Return the OpenTelemetry resource that describes this broker on this machine."""
    return Resource(
        {
            "service.name": options.service_name,
            "service.version": __version__,
            "service.instance.id": f"{socket.gethostname()}:{options.data_dir.absolute()}",
            **json.loads(options.resource_attributes),
        }
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="penstock.otlp.service", description="OpenTelemetry")
    parser.add_argument("--data-dir", type=Path, required=True, help="the broker's data directory")
    parser.add_argument("--endpoint", required=True, help="URL of the collector, without v1/…")
    parser.add_argument("--headers-file", type=Path, help="NAME: VALUE a line")
    parser.add_argument("--ca-file", help="PEM file of the collector's authorities")
    parser.add_argument("--certificate", help="PEM file of our own certificate")
    parser.add_argument("--key", help="PEM file of its private key")
    parser.add_argument("--interval-s", type=float, default=60.0, help="of metrics; 0: none")
    parser.add_argument("--trace-ratio", type=float, default=1.0, help="of messages, 0 to 1")
    parser.add_argument("--trace-s-max", type=float, default=60.0, help="a trace is open")
    parser.add_argument("--open-spans-max", type=int, default=20_000, help="of messages under way")
    parser.add_argument("--unsent-spans-max", type=int, default=20_000, help="waiting to be sent")
    parser.add_argument("--service-name", default="penstock", help="the attribute service.name")
    parser.add_argument("--resource-attributes", default="{}", help="JSON")
    parser.add_argument("--stream", default="", help="HOST:PORT of the stream service; empty: none")
    parser.add_argument("--stream-tls", action="store_true", help="the stream service speaks TLS")
    parser.add_argument("--stream-ca-file", default="", help="PEM file of its authorities")
    parser.add_argument("--stream-token-file", default="", help="the token that it asks for")
    return parser


if __name__ == "__main__":
    sys.exit(main())
