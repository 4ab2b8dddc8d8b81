"""The lines about the broker: its health, traffic, commits, and limits.

The lines are the same on the screen and in `--batch`. Each is truncated to the width, with its most
important part first; they have no text of clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.cli.top.board import Board, Rates, Traffic, metric_value, metric_values
from penstock.cli.top.figures import (
    milliseconds_text,
    short_bytes,
    short_duration,
    short_number,
    sparkline,
)
from penstock.cli.top.poller import BrokerSample
from penstock.control.metric_requests import Metrics
from penstock.telemetry.logs import printable

HEAD_LINES: Final = 7
"""Number of lines about the broker."""

_AT_LIMIT: Final = (
    ("window", "window full"),
    ("write_buffer", "do not read"),
    ("queue", "queue full"),
    ("inbound", "quota used up"),
)
_SPARK_WIDTH_MAX: Final = 60
_BEFORE_SPARK: Final = 46  # columns
_GAP: Final = "  "


def head_lines(board: Board, status: str, width: int, now_s: float) -> list[str]:
    """Return ``HEAD_LINES`` lines of at most ``width`` characters.

    Args:
        board: the last sample and its rates.
        status: the last line while the broker answers, such as measure and filter.
        width: most characters of a line.
        now_s: the present time, monotonic seconds.
    """
    sample = board.sample
    if sample is None:
        lines = [""] * (HEAD_LINES - 1)
    else:
        metrics = sample.metrics
        rates = board.rates
        lines = [
            _join_fitting(_broker_parts(metrics), width),
            _join_fitting(_client_parts(sample), width),
            _traffic_line("in ", None if rates is None else rates.received, board.received, width),
            _traffic_line("out", None if rates is None else rates.sent, board.sent, width),
            _join_fitting(_work_parts(metrics, rates), width),
            _join_fitting(_memory_parts(metrics), width),
        ]
    if board.why:
        silent = short_duration(max(0.0, now_s - board.silent_since_s))
        status = f"NO ANSWER for {silent}: {printable(board.why)}"
    return [*(line[:width] for line in lines), status[:width]]


def _join_fitting(parts: Iterable[str], width: int) -> str:
    """Return a line of as many parts as fit into ``width`` characters."""
    line = ""
    for part in parts:
        longer = f"{line}{_GAP}{part}" if line else part
        if len(longer) > width:
            break
        line = longer
    return line


def _broker_parts(metrics: Metrics) -> Iterator[str]:
    for sample in metrics.samples.get("build", ()):
        version, build, _ = sample.labels
        yield f"penstock {version} {build}"
    yield f"up {short_duration(metric_value(metrics, 'uptime_seconds'))}"
    if metric_value(metrics, "store_works"):
        waits_s = metric_value(metrics, "commit_waits_seconds")
        yield "store works" if waits_s < 1 else f"A COMMIT WAITS FOR {short_duration(waits_s)}"
    else:
        yield "STORE FAILS"
    if metric_value(metrics, "draining"):
        yield "DRAINING"
    size_bytes = metric_value(metrics, "disk_size_bytes")
    if size_bytes:
        free_bytes = metric_value(metrics, "disk_free_bytes")
        yield f"disk {short_bytes(free_bytes)} free ({free_bytes / size_bytes:.0%})"
    yield f"log {short_bytes(metric_value(metrics, 'log_bytes'))}"


def _client_parts(sample: BrokerSample) -> Iterator[str]:
    metrics = sample.metrics
    connected = metric_value(metrics, "clients_connected")
    yield f"{connected:,.0f} connected of {metric_value(metrics, 'sessions'):,.0f} sessions"
    at_limit = metric_values(metrics, "clients_at_limit")
    limits = [f"{at_limit[limit]:.0f} {words}" for limit, words in _AT_LIMIT if at_limit.get(limit)]
    yield ", ".join(limits) or "no client is at a limit"
    yield f"{short_number(metric_value(metrics, 'subscriptions'))} subscriptions"
    yield f"{short_number(metric_value(metrics, 'bans'))} bans"


def _traffic_line(name: str, traffic: Traffic | None, history: Iterable[float], width: int) -> str:
    if traffic is None:
        return f"{name} -"
    by_qos = " ".join(f"{qos}:{short_number(rate)}" for qos, rate in enumerate(traffic.by_qos))
    messages, size = short_number(traffic.messages_per_s), short_bytes(traffic.bytes_per_s)
    text = f"{name} {messages:>5} msg/s {size:>8}/s{_GAP}QoS {by_qos}".ljust(_BEFORE_SPARK)
    spark_width = min(_SPARK_WIDTH_MAX, width - len(text) - len(_GAP))
    return f"{text}{_GAP}{sparkline([*history], spark_width)}" if spark_width > 0 else text


def _work_parts(metrics: Metrics, rates: Rates | None) -> Iterator[str]:
    if rates is None:
        yield f"{short_number(metric_value(metrics, 'commits'))} commits"
        return
    yield f"{short_number(rates.commits_per_s)} commits/s"
    yield f"p50 {milliseconds_text(rates.commit_p50_s)} p99 {milliseconds_text(rates.commit_p99_s)}"
    yield f"loop late p99 {milliseconds_text(rates.loop_lag_p99_s)}"
    yield f"dropped {short_number(rates.dropped_per_s)}/s"
    if rates.logins_failed_per_s:
        yield f"failed logins {short_number(rates.logins_failed_per_s)}/s"
    for reason, number in sorted(rates.drops.items(), key=lambda drop: -drop[1]):
        yield f"{short_number(number)} {reason.replace('_', ' ')}"


def _memory_parts(metrics: Metrics) -> Iterator[str]:
    """Yield the use of each memory budget, the fullest first."""
    limits = metric_values(metrics, "memory_limit_bytes")
    used = metric_values(metrics, "memory_bytes")
    shares = {name: used[name] / limit for name, limit in limits.items() if limit and name in used}
    total = sum(used.values())
    fullest = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
    texts = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in fullest]
    first = f"memory {short_bytes(total)}:"
    yield f"{first} {texts[0]}" if texts else first
    yield from texts[1:]
