"""The lines about the broker: its health, traffic, commits, and limits that are reached.

They are the same on the screen and in `--batch`. Each line is cut at the width, its most important
part first; nothing in them is written by clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from penstock.cli.top.board import Board, Rates, Traffic, by_label, value
from penstock.cli.top.figures import duration, milliseconds, short, short_bytes, sparkline
from penstock.cli.top.poller import BrokerSample
from penstock.control.metric_requests import Metrics
from penstock.telemetry.logs import printable

LINES: Final = 7
"""Lines of a head, always."""

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
    """Return ``LINES`` lines of at most ``width`` characters.

    Args:
        board: the last sample and its rates.
        status: the choice of the reader, for the last line.
        width: columns.
        now_s: the moment, monotonic seconds.
    """
    sample = board.sample
    if sample is None:
        lines = [""] * (LINES - 1)
    else:
        metrics = sample.metrics
        rates = board.rates
        lines = [
            _joined(_broker(metrics), width),
            _joined(_clients(sample), width),
            _flow("in ", None if rates is None else rates.received, board.received, width),
            _flow("out", None if rates is None else rates.sent, board.sent, width),
            _joined(_work(metrics, rates), width),
            _joined(_room(metrics), width),
        ]
    if board.why:
        silent = duration(max(0.0, now_s - board.silent_since_s))
        status = f"NO ANSWER for {silent}: {printable(board.why)}"
    return [*(line[:width] for line in lines), status[:width]]


def _joined(parts: Iterable[str], width: int) -> str:
    """Return as many parts as fit, apart from each other."""
    line = ""
    for part in parts:
        longer = f"{line}{_GAP}{part}" if line else part
        if len(longer) > width:
            break
        line = longer
    return line


def _broker(metrics: Metrics) -> Iterator[str]:
    for sample in metrics.samples.get("build", ()):
        version, build, _ = sample.labels
        yield f"penstock {version} {build}"
    yield f"up {duration(value(metrics, 'uptime_seconds'))}"
    if value(metrics, "store_works"):
        waits_s = value(metrics, "commit_waits_seconds")
        yield "store works" if waits_s < 1 else f"A COMMIT WAITS FOR {duration(waits_s)}"
    else:
        yield "STORE FAILS"
    if value(metrics, "draining"):
        yield "DRAINING"
    size_bytes = value(metrics, "disk_size_bytes")
    if size_bytes:
        free_bytes = value(metrics, "disk_free_bytes")
        yield f"disk {short_bytes(free_bytes)} free ({free_bytes / size_bytes:.0%})"
    yield f"log {short_bytes(value(metrics, 'log_bytes'))}"


def _clients(sample: BrokerSample) -> Iterator[str]:
    metrics = sample.metrics
    connected = value(metrics, "clients_connected")
    yield f"{connected:,.0f} connected of {value(metrics, 'sessions'):,.0f} sessions"
    at_limit = by_label(metrics, "clients_at_limit")
    limits = [f"{at_limit[limit]:.0f} {words}" for limit, words in _AT_LIMIT if at_limit.get(limit)]
    yield ", ".join(limits) or "no client is at a limit"
    yield f"{short(value(metrics, 'subscriptions'))} subscriptions"
    yield f"{short(value(metrics, 'bans'))} bans"


def _flow(name: str, traffic: Traffic | None, history: Iterable[float], width: int) -> str:
    if traffic is None:
        return f"{name} -"
    by_qos = " ".join(f"{qos}:{short(rate)}" for qos, rate in enumerate(traffic.by_qos))
    messages, size = short(traffic.messages_per_s), short_bytes(traffic.bytes_per_s)
    text = f"{name} {messages:>5} msg/s {size:>8}/s{_GAP}QoS {by_qos}".ljust(_BEFORE_SPARK)
    spark_width = min(_SPARK_WIDTH_MAX, width - len(text) - len(_GAP))
    return f"{text}{_GAP}{sparkline([*history], spark_width)}" if spark_width > 0 else text


def _work(metrics: Metrics, rates: Rates | None) -> Iterator[str]:
    if rates is None:
        yield f"{short(value(metrics, 'commits'))} commits"
        return
    yield f"{short(rates.commits_per_s)} commits/s"
    yield f"p50 {milliseconds(rates.commit_p50_s)} p99 {milliseconds(rates.commit_p99_s)}"
    yield f"loop late p99 {milliseconds(rates.loop_lag_p99_s)}"
    yield f"dropped {short(rates.dropped_per_s)}/s"
    if rates.logins_failed_per_s:
        yield f"failed logins {short(rates.logins_failed_per_s)}/s"
    for reason, number in sorted(rates.drops.items(), key=lambda drop: -drop[1]):
        yield f"{short(number)} {reason.replace('_', ' ')}"


def _room(metrics: Metrics) -> Iterator[str]:
    """Yield how full each memory budget is, the fullest first."""
    limits = by_label(metrics, "memory_limit_bytes")
    used = by_label(metrics, "memory_bytes")
    shares = {name: used[name] / limit for name, limit in limits.items() if limit and name in used}
    total = sum(used.values())
    fullest = sorted(shares.items(), key=lambda share: (-share[1], share[0]))
    texts = [f"{name.replace('_', ' ')} {share:.0%}" for name, share in fullest]
    first = f"memory {short_bytes(total)}:"
    yield f"{first} {texts[0]}" if texts else first
    yield from texts[1:]
