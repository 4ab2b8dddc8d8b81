"""A year of hourly temperatures in two cities, measured by NOAA, from the package vega_datasets."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import datetime
from typing import Final

HOURS: Final = 8_759
"""Readings each city is cut to; Seattle's year lacks one hour."""

_TIME_FORMATS: Final = {"seattle": "%Y/%m/%d %H:%M", "san-francisco": "%Y/%m/%d %H:%M:%S"}
CITIES: Final = tuple(_TIME_FORMATS)


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement: local time in ISO 8601, degrees Fahrenheit."""

    observed_at: str
    temperature_f: float


def readings_of(city: str) -> list[Reading]:
    """The readings of one of `CITIES`, oldest first. They are in the package; no network."""
    from vega_datasets import local_data

    dataset = local_data.seattle_temps if city == "seattle" else local_data.sf_temps
    rows = csv.DictReader(io.StringIO(dataset.raw(use_local=True).decode()))
    return [
        Reading(
            datetime.strptime(row["date"], _TIME_FORMATS[city]).isoformat(),  # noqa: DTZ007
            float(row["temp"]),
        )
        for row in rows
    ][:HOURS]
