"""Recognises units at the end of names: temp_c, pressureBar, speed_km_h.

A unit is recognised only where an ending has one meaning: `_m` is metres after `height`, and no
unit after other words, where it may be minutes; `_min` is the minimum as often as a minute. The
units have Pint's names, as in `unit_from`.
"""

from __future__ import annotations

import re
from typing import Final

_UNAMBIGUOUS: Final = {
    "degc": "degC",
    "celsius": "degC",
    "degf": "degF",
    "fahrenheit": "degF",
    "kelvin": "kelvin",
    "bar": "bar",
    "mbar": "mbar",
    "hpa": "hPa",
    "kpa": "kPa",
    "psi": "psi",
    "volt": "V",
    "volts": "V",
    "amps": "A",
    "ampere": "A",
    "watt": "W",
    "watts": "W",
    "kw": "kW",
    "wh": "Wh",
    "kwh": "kWh",
    "hz": "Hz",
    "khz": "kHz",
    "mhz": "MHz",
    "rpm": "rpm",
    "pct": "percent",
    "percent": "percent",
    "ppm": "ppm",
    "lux": "lux",
    "dbm": "dBm",
    "mm": "mm",
    "cm": "cm",
    "km": "km",
    "kg": "kg",
    "kmh": "km/h",
    "km_h": "km/h",
    "kph": "km/h",
    "mph": "mph",
    "m_s": "m/s",
    "mps": "m/s",
    "ug_m3": "ug/m**3",
    "ugm3": "ug/m**3",
    "w_m2": "W/m**2",
    "l_min": "l/min",
    "m3_h": "m**3/h",
    "seconds": "s",
    "millis": "ms",
}
_UNITS_AFTER_WORDS: Final = {
    "c": ("degC", ("temp", "temperature", "dewpoint", "point", "t")),
    "f": ("degF", ("temp", "temperature", "dewpoint", "point", "t")),
    "k": ("kelvin", ("temp", "temperature")),
    "pa": ("Pa", ("pressure", "press")),
    "v": ("V", ("voltage", "battery", "supply", "vcc", "u")),
    "mv": ("mV", ("voltage", "battery", "supply", "vcc")),
    "a": ("A", ("current", "i")),
    "ma": ("mA", ("current", "i")),
    "w": ("W", ("power", "p", "load", "solar")),
    "m": (
        "m",
        ("height", "altitude", "elevation", "distance", "depth", "length", "width", "range"),
    ),
    "g": ("g", ("weight", "mass")),
    "l": ("l", ("volume", "fill")),
    "deg": ("degree", ("angle", "direction", "heading", "azimuth", "tilt", "wind", "dir")),
    "s": ("s", ("duration", "uptime", "interval", "delay", "elapsed", "period", "age", "runtime")),
    "ms": ("ms", ("duration", "uptime", "interval", "delay", "elapsed", "period", "latency")),
    "us": ("us", ("duration", "interval", "delay", "elapsed", "period", "latency")),
}
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_JOINED: Final = re.compile(r"[A-Za-z0-9]+")


def unit_of(name: str) -> str:
    """Return the unit at the end of a name; "" if there is none, or it is not certain."""
    parts = [part.lower() for part in _JOINED.findall(name)]
    words = [word.lower() for word in _WORDS.findall(name)]
    for last in ("_".join(parts[-2:]), parts[-1] if parts else ""):
        if len(parts) > 1 and last in _UNAMBIGUOUS and parts != last.split("_"):
            return _UNAMBIGUOUS[last]
    if len(words) < 2:
        return ""
    unit, before = words[-1], words[-2]
    if unit in _UNAMBIGUOUS and len(unit) > 1:
        return _UNAMBIGUOUS[unit]
    unit_there, names = _UNITS_AFTER_WORDS.get(unit, ("", ()))
    return unit_there if before in names else ""
