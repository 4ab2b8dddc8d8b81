"""Write packaging/grafana/penstock.json, the dashboard, from the table below; a test fails while it
is out of date.

A panel is a title, a unit of Grafana, and expressions with their legends. Expressions use the
variables of the dashboard: ``$instance``, and Grafana's own ``$__rate_interval``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NamedTuple

DOCUMENT: Final = Path(__file__).resolve().parent.parent / "packaging/grafana/penstock.json"

_WIDTH: Final = 24
_HEIGHT: Final = 7
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_HERE: Final = '{instance=~"$instance"}'


class Panel(NamedTuple):
    """One picture of the dashboard.

    Attributes:
        title: its title.
        unit: the unit of its values, by Grafana's name.
        series: pairs of an expression, in which ``@`` stands for the selected instances, and the
            legend of what it returns.
        stacked: whether the series are drawn one on top of the other.
    """

    title: str
    unit: str
    series: tuple[tuple[str, str], ...]
    stacked: bool = False


def rate(metric: str, labels: str = "") -> str:
    """Return the expression of a counter's growth a second, by ``labels``."""
    by = f"instance, {labels}" if labels else "instance"
    return f"sum by ({by}) (rate({metric}@[$__rate_interval]))"


def quantiles(histogram: str) -> tuple[tuple[str, str], ...]:
    """Return the median and the 99th percentile of a histogram of seconds."""
    return tuple(
        (
            (
                f"histogram_quantile({part},"
                f" sum by (instance, le) (rate({histogram}_bucket@[$__rate_interval])))"
            ),
            f"{name} {{{{instance}}}}",
        )
        for part, name in ((0.5, "median"), (0.99, "99 %"))
    )


ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Overview",
        (
            Panel("Clients connected", "short", (("penstock_clients_connected@", "{{instance}}"),)),
            Panel(
                "Messages received and sent",
                "cps",
                (
                    (rate("penstock_messages_received_total"), "received {{instance}}"),
                    (rate("penstock_messages_sent_total"), "sent {{instance}}"),
                ),
            ),
            Panel(
                "An acknowledgement waits",
                "s",
                quantiles("penstock_commit_duration_seconds"),
            ),
            Panel(
                "Messages dropped, by reason",
                "cps",
                ((f"{rate('penstock_messages_dropped_total', 'reason')} > 0", "{{reason}}"),),
                True,
            ),
            Panel(
                "Store works, broker is emptied",
                "short",
                (
                    ("penstock_store_works@", "store works {{instance}}"),
                    ("penstock_draining@", "emptied {{instance}}"),
                ),
            ),
            Panel(
                "Free on the disk",
                "percentunit",
                (("penstock_disk_free_bytes@ / penstock_disk_size_bytes@", "{{instance}}"),),
            ),
        ),
    ),
    (
        "Clients",
        (
            Panel(
                "Clients, by version of MQTT",
                "short",
                (("sum by (version) (penstock_clients_by_version@)", "MQTT {{version}}"),),
                True,
            ),
            Panel(
                "Connections, by listener",
                "short",
                (("sum by (listener) (penstock_listener_connections@)", "{{listener}}"),),
                True,
            ),
            Panel(
                "Connections opened, accepted, refused",
                "cps",
                (
                    (rate("penstock_connections_opened_total"), "opened {{instance}}"),
                    (rate("penstock_connections_accepted_total"), "accepted {{instance}}"),
                    (rate("penstock_listener_connections_refused_total"), "refused {{instance}}"),
                ),
            ),
            Panel(
                "Clients held up, by limit",
                "short",
                (("sum by (limit) (penstock_clients_at_limit@)", "{{limit}}"),),
            ),
            Panel(
                "Clients with messages in the window",
                "short",
                (
                    (
                        (
                            "sum(penstock_client_window_messages_gcount@)"
                            " - sum(penstock_client_window_messages_bucket"
                            '{instance=~"$instance", le="0.0"})'
                        ),
                        "some",
                    ),
                    (
                        (
                            "sum(penstock_client_window_messages_gcount@)"
                            " - sum(penstock_client_window_messages_bucket"
                            '{instance=~"$instance", le="10.0"})'
                        ),
                        "more than 10",
                    ),
                ),
            ),
            Panel(
                "Messages in all queues",
                "short",
                (("sum by (instance) (penstock_client_queue_messages_gsum@)", "{{instance}}"),),
            ),
            Panel(
                "Logins that failed or were refused",
                "cps",
                (
                    (rate("penstock_logins_failed_total"), "failed {{instance}}"),
                    (rate("penstock_logins_refused_total"), "refused {{instance}}"),
                    (rate("penstock_bans_refused_total"), "banned {{instance}}"),
                ),
            ),
            Panel(
                "Clients, by client group",
                "short",
                (
                    (
                        "sum by (client_group) (penstock_client_group_clients@)",
                        "{{client_group}}",
                    ),
                ),
                True,
            ),
            Panel(
                "Messages received and sent, by client group",
                "cps",
                (
                    (
                        rate("penstock_client_group_messages_received_total", "client_group"),
                        "from {{client_group}}",
                    ),
                    (
                        rate("penstock_client_group_messages_sent_total", "client_group"),
                        "to {{client_group}}",
                    ),
                ),
            ),
            Panel(
                "Sessions and subscriptions",
                "short",
                (
                    ("penstock_sessions@", "sessions {{instance}}"),
                    ("penstock_subscriptions@", "subscriptions {{instance}}"),
                ),
            ),
        ),
    ),
    (
        "Traffic",
        (
            Panel(
                "Messages received, by QoS",
                "cps",
                ((rate("penstock_messages_received_total", "qos"), "QoS {{qos}}"),),
                True,
            ),
            Panel(
                "Messages sent, by QoS",
                "cps",
                ((rate("penstock_messages_sent_total", "qos"), "QoS {{qos}}"),),
                True,
            ),
            Panel(
                "Bytes",
                "Bps",
                (
                    (rate("penstock_received_bytes_total"), "received {{instance}}"),
                    (rate("penstock_sent_bytes_total"), "sent {{instance}}"),
                ),
            ),
            Panel(
                "Packets received, by type",
                "cps",
                ((f"{rate('penstock_packets_received_total', 'type')} > 0", "{{type}}"),),
                True,
            ),
        ),
    ),
    (
        "Store and log",
        (
            Panel("Commits", "cps", ((rate("penstock_commits_total"), "{{instance}}"),)),
            Panel(
                "Messages in a commit",
                "short",
                (
                    (
                        (
                            f"{rate('penstock_commit_messages_sum')}"
                            f" / {rate('penstock_commit_messages_count')}"
                        ),
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                "A synced write takes",
                "s",
                quantiles("penstock_store_write_duration_seconds"),
            ),
            Panel(
                "Size of the log and of archives",
                "bytes",
                (
                    ("penstock_log_bytes@", "log {{instance}}"),
                    ("penstock_archive_bytes@", "{{stream}} {{instance}}"),
                ),
                True,
            ),
            Panel(
                "Messages in the log",
                "short",
                (("penstock_log_end_offset@ - penstock_log_earliest_offset@", "{{instance}}"),),
            ),
            Panel(
                "Lag of readers and tables",
                "s",
                (
                    ("penstock_reader_lag_seconds@", "reader {{group}}"),
                    ("penstock_table_lag_seconds@", "table {{table}}"),
                ),
            ),
        ),
    ),
    (
        "Bridges",
        (
            Panel("Connected", "short", (("penstock_bridge_connected@", "{{bridge}}"),)),
            Panel("Lag", "s", (("penstock_bridge_lag_seconds@", "{{bridge}}"),)),
            Panel(
                "Messages that wait", "short", (("penstock_bridge_queue_messages@", "{{bridge}}"),)
            ),
        ),
    ),
    (
        "Cluster",
        (
            Panel(
                "The primary",
                "short",
                (('penstock_cluster_role{instance=~"$instance", role="primary"}', "{{instance}}"),),
            ),
            Panel(
                "Entries that a view lacks",
                "short",
                (("min by (node) (penstock_cluster_member_lag_entries@)", "{{node}}"),),
            ),
            Panel(
                "An append to the log", "s", quantiles("penstock_cluster_append_duration_seconds")
            ),
            Panel("Size of the log", "bytes", (("penstock_cluster_log_bytes@", "{{instance}}"),)),
        ),
    ),
    (
        "Processor and memory",
        (
            Panel(
                "Processor",
                "percentunit",
                (
                    ("rate(process_cpu_seconds_total@[$__rate_interval])", "broker {{instance}}"),
                    (
                        "rate(penstock_admin_process_cpu_seconds_total@[$__rate_interval])",
                        "admin process {{instance}}",
                    ),
                ),
            ),
            Panel("Lag of the event loop", "s", quantiles("penstock_loop_lag_seconds")),
            Panel(
                "Resident memory", "bytes", (("process_resident_memory_bytes@", "{{instance}}"),)
            ),
            Panel(
                "Memory budgets in use",
                "percentunit",
                (
                    (
                        "penstock_memory_bytes@ / (penstock_memory_limit_bytes@ > 0)",
                        "{{budget}} {{instance}}",
                    ),
                ),
            ),
            Panel(
                "File descriptors in use",
                "percentunit",
                (("process_open_fds@ / process_max_fds@", "{{instance}}"),),
            ),
            Panel(
                "Processes started again",
                "short",
                (("increase(penstock_child_restarts_total@[$__range])", "{{process}}"),),
            ),
        ),
    ),
)


def dashboard() -> str:
    """Return the dashboard as JSON."""
    panels: list[dict[str, object]] = []
    top = 0
    for title, row in ROWS:
        panels.append(
            {
                "type": "row",
                "title": title,
                "collapsed": False,
                "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": top},
                "id": len(panels) + 1,
                "panels": [],
            }
        )
        top += 1
        columns = 3 if len(row) % 3 == 0 else 2
        width = _WIDTH // columns
        for place, panel in enumerate(row):
            position = {
                "h": _HEIGHT,
                "w": width,
                "x": place % columns * width,
                "y": top + place // columns * _HEIGHT,
            }
            panels.append(_drawn(panel, len(panels) + 1, position))
        top += -(-len(row) // columns) * _HEIGHT
    return json.dumps(_whole(panels), indent=1) + "\n"


def expressions() -> list[str]:
    """Return every expression, as Grafana sends it for all instances and a rate over 5 minutes."""
    return [
        _expression(expression)
        .replace("$instance", ".*")
        .replace("$__rate_interval", "5m")
        .replace("$__range", "1h")
        for _, row in ROWS
        for panel in row
        for expression, _ in panel.series
    ]


def _expression(text: str) -> str:
    return text.replace("@", _HERE)


def _drawn(panel: Panel, number: int, position: dict[str, int]) -> dict[str, object]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {
                    "lineWidth": 1,
                    "fillOpacity": 15 if panel.stacked else 0,
                    "stacking": {"mode": "normal" if panel.stacked else "none", "group": "A"},
                },
            },
            "overrides": [],
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": _expression(expression),
                "legendFormat": legend,
                "range": True,
            }
            for place, (expression, legend) in enumerate(panel.series)
        ],
    }


def _whole(panels: list[dict[str, object]]) -> dict[str, object]:
    return {
        "title": "Penstock",
        "uid": "penstock",
        "tags": ["penstock", "mqtt"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": "instance",
                    "type": "query",
                    "datasource": _SOURCE,
                    "query": "label_values(penstock_uptime_seconds, instance)",
                    "refresh": 2,
                    "includeAll": True,
                    "multi": True,
                    "current": {"text": "All", "value": "$__all"},
                },
            ]
        },
        "panels": panels,
    }


if __name__ == "__main__":
    DOCUMENT.write_text(dashboard(), encoding="utf-8")
