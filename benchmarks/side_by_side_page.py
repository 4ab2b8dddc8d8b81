"""Writes the figures of ``benchmarks.side_by_side`` to docs/benchmarks.md, with plots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import matplotlib as mpl

from benchmarks.machine import machine
from benchmarks.pages import PLOTS, write_part
from benchmarks.scenarios import MOSQUITTO, PENSTOCK, SCENARIOS, Medians, Run, Scenario
from penstock.version import build_kind

mpl.use("svg")

import matplotlib.pyplot as plt

_ABOUT: Final = """\
# Penstock beside other brokers

Written by `python -m benchmarks.side_by_side --write`, part of `make bench`: each run is one of
[`penstock bench`](bench.md) with 64 bytes of payload and a window of 100, against each broker in
turn; medians of {repeats} runs of {seconds:g} s, Penstock {kind}. Seen on: {machine}.

The machine's cores are shared by broker and load generator, so a rate has two bounds. CPU time of
the broker for a million copies that subscribers got has one, and the ratios are what to look at.
All keep sessions in memory and sync nothing, but for the last table, where Penstock acknowledges
what is on disk. Mosquitto is Debian's. It and Penstock have their defaults but for a queue without
limit and the same in-flight window of 100 messages a subscriber. All speak MQTT 5, but for aedes
and amqtt, which have 3.1.1.
"""

_HEADINGS: Final = (
    "| broker | QoS | CPU s a million | beside Mosquitto | copies/s | beside Mosquitto"
    " | p50 ms | p99 ms | MiB | lost |"
)


def write_page(medians: Medians, repeats: int, seconds: float) -> None:
    """Write the part of the page and the plots."""
    PLOTS.mkdir(exist_ok=True)
    shared = [scenario for scenario in SCENARIOS if len(scenario.brokers) > 2]
    _plot(shared, medians, lambda run: run.cpu_s, "CPU s a million copies", "cpu")
    _plot(shared, medians, lambda run: run.rate, "copies a second", "rate")
    kind, here = build_kind(), machine()
    parts = [_ABOUT.format(repeats=repeats, seconds=seconds, kind=kind, machine=here)]
    parts.append("![CPU time, less is better](benchmarks/cpu.svg)\n")
    parts.append("![Copies a second, more is better](benchmarks/rate.svg)\n")
    parts += [_section(scenario, medians) for scenario in SCENARIOS]
    write_part("side_by_side", "\n".join(parts))


def _section(scenario: Scenario, medians: Medians) -> str:
    lines = [
        f"## {scenario.name}\n",
        f"`penstock bench {' '.join(scenario.options)}`\n",
        _HEADINGS,
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for qos in scenario.levels:
        base = medians.get((scenario.name, qos, MOSQUITTO))
        for name in scenario.brokers:
            run = medians.get((scenario.name, qos, name))
            if run is not None:
                cpu = ratio_in_words(run.cpu_s, base.cpu_s) if base else ""
                rate = ratio_in_words(run.rate, base.rate) if base else ""
                lines.append(
                    f"| {name} | {qos} | {run.cpu_s:.2f} | {'' if name == MOSQUITTO else cpu}"
                    f" | {run.rate:,.0f} | {'' if name == MOSQUITTO else rate} | {run.p50_ms:.2f}"
                    f" | {run.p99_ms:.2f} | {run.resident_mib:.0f} | {run.lost:,} |"
                )
    return "\n".join([*lines, ""])


def ratio_in_words(value: float, base: float) -> str:
    """Return the ratio of two figures in words: `4.2 times less`, `45 times more`."""
    if value <= 0 or base <= 0:
        return ""
    more, less = value / base, base / value
    times = max(more, less)
    return f"{times:.{0 if times >= 10 else 1}f} times {'more' if more > 1 else 'less'}"


def _plot(
    scenarios: list[Scenario],
    medians: Medians,
    value: Callable[[Run], float],
    label: str,
    name: str,
) -> None:
    """Plot bars on a logarithmic scale: a panel for each scenario, a group for each QoS."""
    plt.rcParams["svg.hashsalt"] = "penstock"  # equal figures give an equal file
    figure, panels = plt.subplots(1, len(scenarios), figsize=(11, 3.5), sharey=True)
    for panel, scenario in zip(panels, scenarios, strict=True):
        present = [
            broker
            for broker in scenario.brokers
            if any((scenario.name, qos, broker) in medians for qos in scenario.levels)
        ]
        width = 0.8 / max(1, len(present))
        for at, broker in enumerate(present):
            runs = [medians[scenario.name, qos, broker] for qos in scenario.levels]
            places = [qos + (at - (len(present) - 1) / 2) * width for qos in scenario.levels]
            heights = [value(run) for run in runs]
            panel.bar(places, heights, width, label=broker, zorder=2 if broker == PENSTOCK else 1)
        panel.set_yscale("log")
        panel.set_title(scenario.name)
        panel.set_xticks(list(scenario.levels), [f"QoS {qos}" for qos in scenario.levels])
    panels[0].set_ylabel(label)
    panels[-1].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(PLOTS / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
