"""The parsers of values of Mosquitto's options: numbers, truth values, durations."""

from __future__ import annotations

from typing import Final

from penstock.mosquitto.findings import MISSING, Findings, Line

_UNITS_S: Final = {
    "s": 1,
    "h": 3600,
    "d": 86_400,
    "w": 7 * 86_400,
    "m": 30 * 86_400,
    "y": 365 * 86_400,
}
_TRUTH_VALUES: Final = {"true": True, "1": True, "false": False, "0": False}


def parse_number(line: Line, findings: Findings) -> int | None:
    """Return the whole number in ``line``; None, with a finding, if it has none."""
    words = line.value.split()
    try:
        return int(words[0])
    except (IndexError, ValueError):
        note_invalid(line, findings)
        return None


def parse_boolean(line: Line, findings: Findings) -> bool | None:
    """Return the truth value in ``line``; None, with a finding, if it has none."""
    words = line.value.split()
    value = _TRUTH_VALUES.get(words[0]) if words else None
    if value is None:
        note_invalid(line, findings)
    return value


def parse_duration_s(line: Line, findings: Findings) -> int | None:
    """Return the duration in ``line``, such as ``2w``, in seconds; None, with a finding, if it has
    none."""
    words = line.value.split()
    word = words[0] if words else ""
    unit_s = _UNITS_S.get(word[-1:])
    if unit_s is None or not word[:-1].isdigit() or int(word[:-1]) == 0:
        note_invalid(line, findings)
        return None
    return int(word[:-1]) * unit_s


def note_invalid(line: Line, findings: Findings) -> None:
    """Add a finding that Mosquitto does not accept the value of ``line``, either."""
    findings.add(
        MISSING, line, "Mosquitto does not accept this value, either; correct it and import again."
    )
