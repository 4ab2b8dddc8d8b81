"""Renders measures as one self-contained HTML page, the report.

The page has no scripts and loads nothing: its Content-Security-Policy forbids both. Jinja escapes
every text, because clients choose their names; only the plots are inserted unescaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from penstock.spark.audit import plots
from penstock.spark.audit.measures import Latency, Measures
from penstock.spark.audit.plots import short_name
from penstock.spark.audit.tables import IN_FLIGHT, QUEUED, UNACCOUNTED

TEMPLATE: Final = "report.html.j2"

_NAME_CHARACTERS_MAX: Final = 120  # of a name in a table
_PENDING_STATES: Final = {
    IN_FLIGHT: "their clients have not acknowledged them yet",
    QUEUED: "they wait for their clients",
}


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `style` is its CSS class: good, bad, soft (grey) or empty."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """A table whose first `text_columns` columns are text, and the others numbers."""

    headings: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    text_columns: int = 1


@dataclass(slots=True)
class Section:
    """The texts, plots and tables below one heading."""

    id: str
    title: str
    texts: list[Text] = field(default_factory=list)
    plots: list[Markup] = field(default_factory=list)
    tables: list[Listing] = field(default_factory=list)


def render(measures: Measures, source: str) -> str:
    """Return the page.

    Args:
        measures: the measures.
        source: the stream and server of the events, for the heading.
    """
    environment = Environment(
        loader=PackageLoader("penstock.spark.audit", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.filters["time"] = _time
    sections = [
        _summary(measures),
        _latency(measures),
        _windows(measures),
        _queues(measures),
        _drops(measures),
        _resends(measures),
        _reconnects(measures),
        _events(measures),
    ]
    template = environment.get_template(TEMPLATE)
    return template.render(m=measures, source=_name(source), sections=sections)


def _summary(m: Measures) -> Section:
    section = Section("summary", "Where the messages went")
    if not m.messages:
        section.texts.append(
            Text(
                "No message was followed. Set events.topic_filters in the broker's configuration"
                " to follow messages; connections and drops are below.",
                "soft",
            )
        )
        return section
    section.texts.append(
        Text(
            f"{m.messages:,} messages were followed. Their subscriptions asked for"
            f" {m.deliveries:,} deliveries."
        )
    )
    unaccounted = m.states.get(UNACCOUNTED, 0)
    if unaccounted:
        section.texts.append(
            Text(
                f"{unaccounted:,} deliveries are unaccounted for: no event tells their outcome."
                " Either the range ends before they were sent, or events were lost (a crash"
                " loses those of a quarter of a second; $SYS/broker/events/lost counts others).",
                "bad",
            )
        )
    else:
        section.texts.append(Text("Every one of them is accounted for.", "good"))
    for state, why in _PENDING_STATES.items():
        if m.states.get(state):
            section.texts.append(Text(f"{state}: {m.states[state]:,}; {why}.", "soft"))
    if m.unknown_deliveries:
        section.texts.append(
            Text(
                f"{m.unknown_deliveries:,} more deliveries were of messages received before this"
                " range, or found retained.",
                "soft",
            )
        )
    section.plots.append(_svg(plots.bar_plot("states", "deliveries", list(m.states.items()))))
    total = max(1, sum(m.states.values()))
    rows = [
        (state, f"{count:,}", f"{100 * count / total:.2f} %") for state, count in m.states.items()
    ]
    section.tables.append(Listing(("outcome", "deliveries", "share"), rows))
    return section


def _latency(m: Measures) -> Section:
    section = Section("latency", "From publish to acknowledgement")
    if not m.latencies:
        section.texts.append(Text("No latency was measured.", "soft"))
        return section
    section.texts.append(
        Text(
            "Counted from the moment the broker read the PUBLISH. A message is committed when it"
            " is on disk, sent when it left after that, and acknowledged when PUBACK or PUBREC"
            " came back.",
            "soft",
        )
    )
    section.tables.append(_latency_table("until it was", m.latencies, by_step=True))
    if m.latency_p50:
        over_time = {"median": m.latency_p50, "99th percentile": m.latency_p99}
        section.plots.append(
            _svg(
                plots.line_plot(
                    "latency", "ms to acknowledgement", over_time, _span(m), log=_are_positive(m)
                )
            )
        )
    for name, title, latencies in (
        ("topics", f"topic, until {_step(m.by_topic)}", m.by_topic),
        ("clients", f"subscriber, until {_step(m.by_client)}", m.by_client),
    ):
        if latencies:
            section.plots.append(_svg(plots.range_plot(f"latency-{name}", latencies)))
            section.tables.append(_latency_table(title, latencies))
    return section


def _windows(m: Measures) -> Section:
    section = Section("windows", "In-flight windows")
    if not m.flows:
        section.texts.append(
            Text("No window was sampled (events.flow_interval_s), or nothing was sent.", "soft")
        )
        return section
    section.texts.append(
        Text(
            "A window that is often full delays its client's messages: the client acknowledges"
            " more slowly than messages arrive, or its window is small.",
            "soft",
        )
    )
    if m.window:
        section.plots.append(
            _svg(
                plots.line_plot(
                    "window", "share of the window in use", m.window, _span(m), steps=True
                )
            )
        )
    rows = [
        (
            _name(flow.client),
            f"{flow.samples:,}",
            f"{100 * flow.full_share:.1f} %",
            f"{flow.window_size:,}",
            f"{flow.queue_max:,}",
            f"{flow.queue_bytes_max:,}",
        )
        for flow in m.flows
    ]
    headings = (
        "client",
        "samples",
        "window full",
        "window size",
        "longest queue",
        "largest queue, bytes",
    )
    section.tables.append(Listing(headings, rows))
    return section


def _queues(m: Measures) -> Section:
    section = Section("queues", "Queues")
    if not m.queue:
        section.texts.append(Text("No message waited in a queue.", "good"))
        return section
    section.texts.append(
        Text("The longest queue in each step of time, for the clients with most.", "soft")
    )
    section.plots.append(
        _svg(plots.line_plot("queue", "messages waiting", m.queue, _span(m), steps=True))
    )
    return section


def _drops(m: Measures) -> Section:
    section = Section("drops", "Drops")
    if not m.drops_by_reason:
        section.texts.append(Text("Nothing was dropped.", "good"))
        return section
    total = sum(m.drops_by_reason.values())
    section.texts.append(Text(f"{total:,} messages were dropped, followed ones and others.", "bad"))
    reasons = [(reason, float(count)) for reason, count in m.drops_by_reason.items()]
    section.plots.append(_svg(plots.bar_plot("drops", "messages", reasons)))
    section.plots.append(_svg(plots.line_plot("drops-time", "messages", m.drops, _span(m))))
    rows = [
        (_name(client), _name(reason), f"{count:,}") for client, reason, count in m.drops_by_client
    ]
    section.tables.append(Listing(("client", "reason", "messages"), rows, text_columns=2))
    return section


def _resends(m: Measures) -> Section:
    section = Section("resends", "Sent again")
    if not m.resends_by_client:
        section.texts.append(Text("No followed message was sent again.", "good"))
        return section
    section.texts.append(
        Text("Messages that a client had not acknowledged when its connection ended.", "soft")
    )
    section.plots.append(
        _svg(plots.line_plot("resends", "messages", {"sent again": m.resends}, _span(m)))
    )
    rows = [(_name(client), f"{count:,}") for client, count in m.resends_by_client]
    section.tables.append(Listing(("client", "messages"), rows))
    return section


def _reconnects(m: Measures) -> Section:
    section = Section("connections", "Connections and reconnect storms")
    if not m.reconnects:
        section.texts.append(Text("No client connected.", "soft"))
        return section
    section.texts.append(Text(f"{m.connections:,} connections."))
    series = {"connected": m.connected, "refused": m.refused}
    plotted = {name: points for name, points in series.items() if points}
    section.plots.append(
        _svg(plots.line_plot("connections", f"in {m.bucket_s} s", plotted, _span(m)))
    )
    rows = [
        (
            _name(client.client),
            f"{client.per_minute_max:,}",
            _time(client.worst_minute)[:16],
            f"{client.connections:,}",
            f"{client.refused:,}",
        )
        for client in m.reconnects
    ]
    headings = ("client", "most in a minute", "that minute (UTC)", "connections", "refused")
    section.tables.append(Listing(headings, rows))
    if m.ends:
        ends = [(by, _name(reason), f"{count:,}") for by, reason, count in m.ends]
        section.tables.append(Listing(("ended by", "because", "connections"), ends, text_columns=2))
    return section


def _events(m: Measures) -> Section:
    section = Section("events", "The events of this report")
    section.texts.append(
        Text(
            f"Log of epoch {', '.join(map(_name, m.epochs)) or 'none'}; in this range the broker"
            f" started {m.starts:,} times. One event of a commit, or of drops, may stand for many"
            " messages.",
            "soft",
        )
    )
    rows = [(_name(kind), f"{count:,}") for kind, count in m.kinds.items()]
    section.tables.append(Listing(("kind of event", "events"), rows))
    return section


def _latency_table(title: str, latencies: list[Latency], *, by_step: bool = False) -> Listing:
    rows = [
        (
            latency.step if by_step else _name(latency.name),
            f"{latency.count:,}",
            *(
                _ms(value)
                for value in (latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.max_ms)
            ),
        )
        for latency in latencies
    ]
    return Listing((title, "deliveries", "median ms", "90 %", "99 %", "longest"), rows)


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _step(latencies: list[Latency]) -> str:
    return latencies[0].step if latencies else ""


def _span(m: Measures) -> tuple[datetime, datetime]:
    assert m.first is not None
    assert m.last is not None
    return m.first, m.last


def _are_positive(m: Measures) -> bool:
    return all(value > 0 for _, value in (*m.latency_p50, *m.latency_p99))


def _name(name: str | None) -> str:
    return short_name(name, _NAME_CHARACTERS_MAX)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"


def _svg(element: str) -> Markup:
    return Markup(element)  # noqa: S704  # matplotlib's, which escapes the texts in it
