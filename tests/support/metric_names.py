"""The names that a scrape of the admin process has, of the declared metrics."""

from __future__ import annotations

from penstock.control.metric_families import GAUGE_HISTOGRAM, HISTOGRAM, PREFIX, PROCESS, Family


def exposed_names(family: Family) -> set[str]:
    """Return the names of the values of ``family`` in a scrape."""
    name = family.full_name
    if family.kind == HISTOGRAM:
        return {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    if family.kind == GAUGE_HISTOGRAM:
        return {f"{name}_bucket", f"{name}_gcount", f"{name}_gsum"}
    return {name}


def process_names() -> set[str]:
    """Return the names of the process metrics of the broker and of the admin process."""
    names = [name for name, _, _ in PROCESS]
    return {*names, *(f"{PREFIX}admin_{name}" for name in names)}
