"""Write docs/metrics.md from the declared metrics; `make check` fails while it is out of date."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.control.metric_families import (
    GAUGE_HISTOGRAM,
    GROUPS,
    PROCESS,
    Family,
)

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "docs" / "metrics.md"
_INTRODUCTION: Final = """\
# Metrics

<!-- Written by `make docs` from src/penstock/control/metric_families.py; change it there. -->

All metrics that `/metrics` of the admin process returns ([monitoring.md](monitoring.md)), in
OpenMetrics or Prometheus' text format, as the scraper asks. Totals count from the start of the
broker. Names stay as they are from one version to the next; a metric that is not needed any more is
announced in the changelog first.

A label has a bounded number of values: those of MQTT, of a closed list, or as many as the settings
name (listeners, streams, bridges, at most stream.readers_max groups and stream.tables_max tables).
Client groups are those of metrics.client_groups, at most 64, and `other`
([monitoring.md](monitoring.md#by-listener-and-client-group)).
There is none by client or by topic: `penstock clients list` and `penstock flow` answer that
([sys_topics.md](sys_topics.md#the-flow-of-one-client)).

A *gauge histogram* is a distribution at one moment (how many clients have how full a window now),
so its buckets go up and down; a *histogram* counts everything since the start of the broker. In
Prometheus' text format both are histograms; sum and count of a gauge histogram end in `_gsum` and
`_gcount`.
"""

_KINDS: Final = {GAUGE_HISTOGRAM: "gauge histogram"}


def as_markdown() -> str:
    """Return the whole of docs/metrics.md."""
    lines = [_INTRODUCTION]
    for title, families in GROUPS:
        lines += [f"## {title}", "", "| Metric | Kind | Labels | What it is |", "|---|---|---|---|"]
        lines += [_row(family) for family in families]
        lines.append("")
    lines += [
        "## Processes",
        "",
        "Of the broker's process; of the admin process with `penstock_admin_` in front. On Linux.",
        "",
        "| Metric | Kind | What it is |",
        "|---|---|---|",
        *(f"| `{name}` | {kind} | {text} |" for name, kind, text in PROCESS),
    ]
    return "\n".join(lines) + "\n"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    kind = _KINDS.get(family.kind, family.kind)
    return f"| `{family.full_name}` | {kind} | {labels} | {family.text} |"


if __name__ == "__main__":
    DOCUMENT.write_text(as_markdown(), encoding="utf-8")
