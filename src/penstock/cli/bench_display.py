"""The display of `penstock bench`: live in a terminal, and a table of the figures at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self, final

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.bench.connections import Connections
from penstock.bench.figures import Figures, latencies_ms
from penstock.bench.histogram import Histogram
from penstock.bench.load import Counts, Load
from penstock.bench.plan import Plan
from penstock.cli.screen import Screen
from penstock.protocol import reasons

_UPDATE_PERIOD_NS: Final = 250_000_000
_NS_PER_S: Final = 1_000_000_000
_BUSY_CORES: Final = 0.9  # above that the load generator may be the bottleneck
_BAR_WIDTH: Final = 40
_PIPE_WIDTH: Final = 100


@final
class Display:
    """The display of one run, on standard output.

    Args:
        plan: the parameters of the run.
        connections: the clients of the run.
        is_live: whether to show the figures during the run, if standard output is a terminal.
    """

    def __init__(self, plan: Plan, connections: Connections, *, is_live: bool) -> None:
        console = Screen(pipe_width=_PIPE_WIDTH)
        self._console = console
        self._plan = plan
        self._connections = connections
        self._live: Live | None = None
        if is_live and console.is_terminal:
            self._live = Live(console=console, auto_refresh=False, transient=True)
        self._updated_ns = 0
        self._counts: Counts | None = None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, load: Load, phase: str, now_ns: int) -> None:
        """Update the live display, unless it was updated a moment ago; ``now_ns`` is monotonic."""
        if self._live is None or now_ns - self._updated_ns < _UPDATE_PERIOD_NS:
            return
        counts = load.counts()
        before = counts if self._counts is None else self._counts
        seconds = (now_ns - self._updated_ns) / _NS_PER_S
        self._counts, self._updated_ns = counts, now_ns
        self._live.update(self._panel(load, phase, now_ns, before, counts, seconds), refresh=True)

    def _panel(
        self,
        load: Load,
        phase: str,
        now_ns: int,
        before: Counts,
        counts: Counts,
        seconds: float,
    ) -> Group:
        plan = self._plan
        done = (now_ns - load.start_ns) / _NS_PER_S
        total = plan.sending_s
        if total is None:
            done, total = float(counts.sent), float(plan.messages or 1)
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim")
        grid.add_column(justify="right")
        grid.add_column(justify="right")
        for name, now, then in (
            ("sent", counts.sent, before.sent),
            ("acknowledged", counts.acknowledged, before.acknowledged),
            ("received", counts.received, before.received),
        ):
            if name != "acknowledged" or plan.qos:
                grid.add_row(name, f"{now:,}", f"{(now - then) / seconds:,.0f}/s")
        for name, latencies in _histograms(
            load.acknowledgement_latencies, load.end_to_end_latencies
        ):
            p50, p99 = (latencies.quantile_ns(part) / 1e6 for part in (0.5, 0.99))
            grid.add_row(name, f"p50 {p50:.2f} ms", f"p99 {p99:.2f} ms")
        if counts.duplicated:
            grid.add_row("duplicated", f"{counts.duplicated:,}", "")
        if self._connections.disconnected_count:
            away = f"{self._connections.disconnected_count} away"
            grid.add_row("connections", away, f"{self._connections.reconnections} made again")
        return Group(
            Text(f"{_title(plan)}: {phase}", style="bold"),
            ProgressBar(total, min(done, total), width=_BAR_WIDTH),
            grid,
        )

    def print_figures(self, figures: Figures) -> None:
        """Print the figures of the whole run."""
        heading = f"{_title(figures.plan)}; {figures.url}, {figures.seconds:.2f} s measured"
        self._console.print(Text(heading, style="bold"), soft_wrap=True)
        self._console.print(counts_table(figures))
        if figures.acknowledgement_latencies.count or figures.end_to_end_latencies.count:
            self._console.print(latency_table(figures))
        if figures.cores > _BUSY_CORES:
            self._console.print(
                f"The load generator was busy, {figures.cores:.0%} of a core: it may have limited"
                " the figures.",
                soft_wrap=True,
            )


def _title(plan: Plan) -> str:
    rate = f", {plan.rate_per_s:,g} messages/s" if plan.rate_per_s else ""
    return (
        f"{plan.publishers} → {plan.subscribers}, QoS {plan.qos}, {plan.payload_bytes} bytes{rate}"
    )


def counts_table(figures: Figures) -> Table:
    """Return a table of counts and rates."""
    plan, counts = figures.plan, figures.counts
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for column in ("messages", "a second", "payload bytes"):
        table.add_column(column, justify="right")
    bytes_sent = f"{counts.sent * plan.payload_bytes:,}"
    table.add_row("sent", f"{counts.sent:,}", f"{figures.sent_per_s:,.0f}", bytes_sent)
    if plan.qos:
        table.add_row(
            "acknowledged", f"{counts.acknowledged:,}", f"{figures.acknowledged_per_s:,.0f}"
        )
    if plan.subscribers:
        per_s = f"{figures.received_per_s:,.0f}"
        table.add_row("received", f"{counts.received:,}", per_s, f"{counts.received_bytes:,}")
        table.add_row("lost", f"{counts.lost:,}")
        table.add_row("duplicated", f"{counts.duplicated:,}")
        table.add_row("out of order", f"{counts.out_of_order:,}")
    further = {
        "due, and not sent": figures.unsent,
        "not acknowledged": figures.unacknowledged,
        "of other runs": counts.foreign,
        "reconnections": figures.reconnections,
    }
    for name, count in further.items():
        if count:
            table.add_row(name, f"{count:,}")
    for code, count in figures.refused.items():
        table.add_row(f"refused: {reasons.name_of(code)}", f"{count:,}")
    return table


def latency_table(figures: Figures) -> Table:
    """Return a table of latencies, in milliseconds."""
    table = Table(box=None, pad_edge=False)
    table.add_column("latency, ms")
    rows = _histograms(figures.acknowledgement_latencies, figures.end_to_end_latencies)
    for name, histogram in rows:
        latencies = latencies_ms(histogram) or {}
        if not table.rows:
            for column in latencies:
                table.add_column(column, justify="right")
        table.add_row(name, *(f"{value:,.3f}" for value in latencies.values()))
    return table


def _histograms(acknowledgement: Histogram, end_to_end: Histogram) -> list[tuple[str, Histogram]]:
    named = [("to acknowledgement", acknowledgement), ("end to end", end_to_end)]
    return [(name, histogram) for name, histogram in named if histogram.count]
