"""Plots of the audit: whatever clients call themselves, they are shown. No Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from penstock.spark.audit import plots

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("name", "written"),
    [("_press", "_press"), ("<b>&", "&lt;b&gt;&amp;"), ("$\\frac{1}{2}$", "$\\frac{1}{2}$")],
)
def test_a_line_has_its_name_in_the_legend(name: str, written: str) -> None:
    """matplotlib leaves out what begins with an underscore, and takes $ for mathematics."""
    drawn = plots.line_plot("queue", "messages", {name: [(NOON, 1.0)]}, (NOON, NOON + timedelta(1)))
    assert f">{written}<" in drawn
    assert "<b>" not in drawn
