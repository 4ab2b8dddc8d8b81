"""Draws the plots of a report as SVG elements for an HTML page.

Text and axes have the colour of the page's text, light or dark. Clients choose their names: names
are never parsed as mathematics or markup, and are cut to the length that a legend can show.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter

from penstock.spark.audit.measures import Latency, Point
from penstock.telemetry.logs import printable

COLOURS: Final = ("#3b82c4", "#d9822b", "#2f9e6e", "#c2527a", "#8a6fd1", "#9a8c2c")
"""Colours of lines and bars, distinct on white and on black."""

NAME_CHARACTERS_MAX: Final = 28

_DAY_S: Final = 86_400

_INK: Final = "#010203"  # no other colour of a plot: replaced by the page's text colour
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
    "grid.alpha": 0.15,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
_NO_METADATA: Final = {"Date": None, "Creator": None, "Format": None, "Type": None}


def short_name(name: str | None, length: int = NAME_CHARACTERS_MAX) -> str:
    """Return a name in printable characters, cut to this length; "-" for None."""
    if name is None:
        return "-"
    text = printable(name[:length])
    if len(name) > length or len(text) > length:
        return text[: length - 1] + "…"
    return text or "(empty)"


def line_plot(
    name: str,
    label: str,
    series: dict[str, list[Point]],
    span: tuple[datetime, datetime],
    *,
    log: bool = False,
    steps: bool = False,
) -> str:
    """Return a plot of values over time, with one line for each name.

    Args:
        name: the name of the plot, unique on its page.
        label: the label of the axis of values.
        series: the points of each line, by the name in the legend.
        span: the first and last time of the axis.
        log: use a logarithmic axis of values.
        steps: draw lines with horizontal steps between points.
    """
    with _plot(name, 3.0) as (axes, svg):
        for points, colour in zip(series.values(), COLOURS * 4, strict=False):
            times = [_days(time) for time, _ in points]
            values = [value for _, value in points]
            style = "steps-post" if steps and len(points) > 1 else "default"
            marker = "o" if len(points) < 30 else ""
            axes.plot(
                times,
                values,
                color=colour,
                drawstyle=style,
                marker=marker,
                markersize=3,
                linewidth=1.5,
            )
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_formatter(formatter)
        first, last = map(_days, span)
        margin = max((last - first) / 50, 1 / _DAY_S)
        axes.set_xlim(first - margin, last + margin)
        axes.set_ylabel(label)
        if log:
            axes.set_yscale("log")
            axes.set_ylim(*_decades([value for _, value in chain(*series.values())]))
            _label_with_numbers(axes.yaxis)
        else:
            axes.set_ylim(bottom=0)
        titles = [
            short_name(title) for title in series
        ]  # not as labels: a leading _ would hide a line
        axes.legend(
            axes.get_lines(),
            titles,
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
            borderaxespad=0.0,
        )
    return svg[0]


def bar_plot(name: str, label: str, values: Sequence[tuple[str, float]]) -> str:
    """Return a plot with one horizontal bar for each name, the first on top.

    Args:
        name: the name of the plot, unique on its page.
        label: the label of the axis of values.
        values: name and value of each bar.
    """
    with _plot(name, 0.7 + 0.28 * len(values)) as (axes, svg):
        positions = range(len(values))
        containers = axes.barh(
            positions, [value for _, value in values], color=COLOURS[0], height=0.62
        )
        axes.bar_label(containers, fmt=lambda value: f" {value:,.0f}")
        axes.set_yticks(positions, [short_name(title) for title, _ in values])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.12)
        _label_with_numbers(axes.xaxis)
        axes.set_xlabel(label)
    return svg[0]


def range_plot(name: str, latencies: Sequence[Latency]) -> str:
    """Return a plot with a line from median to 99th percentile for each latency, logarithmic."""
    with _plot(name, 0.9 + 0.28 * len(latencies)) as (axes, svg):
        positions = list(range(len(latencies)))
        low = [max(latency.p50_ms, 0.001) for latency in latencies]
        high = [max(latency.p99_ms, 0.001) for latency in latencies]
        axes.hlines(positions, low, high, color=COLOURS[0], linewidth=3, alpha=0.5)
        axes.plot(low, positions, "o", color=COLOURS[0], label="median")
        axes.plot(high, positions, "D", color=COLOURS[1], label="99th percentile", markersize=5)
        axes.set_yticks(positions, [short_name(latency.name) for latency in latencies])
        axes.set_xscale("log")
        axes.set_xlim(*_decades([*low, *high]))
        _label_with_numbers(axes.xaxis)
        axes.set_ylim(len(latencies) - 0.4, -0.6)
        axes.set_xlabel("ms")
        axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0)
    return svg[0]


def _days(moment: datetime) -> float:
    """Return a time in days since the Unix epoch, as matplotlib counts it."""
    return moment.timestamp() / _DAY_S


def _decades(values: Sequence[float]) -> tuple[float, float]:
    """Return the powers of ten below and above all values, which are positive."""
    return 10 ** math.floor(math.log10(min(values))), 10 ** math.ceil(
        math.log10(max(values) * 1.01)
    )


def _label_with_numbers(axis: Axis) -> None:
    """Label an axis with plain numbers, a logarithmic one only at powers of ten."""
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


@contextmanager
def _plot(name: str, height_in: float) -> Iterator[tuple[Axes, list[str]]]:
    """Yield axes to draw on, and a list to which the SVG element is appended at the end."""
    svg: list[str] = []
    with mpl.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        figure = Figure(figsize=(8.6, height_in), layout="constrained")
        axes = figure.add_subplot()
        yield axes, svg
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata=_NO_METADATA)
    text = buffer.getvalue()
    element = text[text.index("<svg") :].replace(_INK, "currentColor")
    svg.append(_prefix_ids(element, name))


def _prefix_ids(element: str, name: str) -> str:
    """Return an SVG element whose ids begin with the name of the plot.

    matplotlib uses the same ids in every plot, and an id must be unique on a page.
    """
    for kind in ("figure", "axes", "patch", "line2d", "text", "matplotlib.axis", "xtick", "ytick",
                 "legend", "LineCollection"):  # fmt: skip
        element = element.replace(f'<g id="{kind}_', f'<g id="{name}-{kind}_')
    return element
