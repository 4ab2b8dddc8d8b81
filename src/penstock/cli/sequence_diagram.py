"""Sequence diagrams of steps, as text for a terminal and as SVG.

::

      press             Penstock             slow
        │                  │                   │
        ├─ PUBLISH QoS 1 ─▶│                   │   05:40:53.749
        │                  ├─ queued ─────────▶│
        │                  ├─ dropped ───────✗ │

The participants are columns in the order of their first steps, each as wide as the longest text
beside it. The functions are pure: the same steps give the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from penstock.control.story import Step

_NAME_LENGTH_MAX: Final = 30
_TEXT_LENGTH_MAX: Final = 80
_UNPRINTABLE: Final = "\N{REPLACEMENT CHARACTER}"
_COLUMN_GAP_MIN: Final = 6  # characters between two columns
_ROW_HEIGHT: Final = 26  # pixels
_CHARACTER_WIDTH: Final = 7.3
_MARGIN: Final = 20


def as_text(steps: Sequence[Step]) -> list[str]:
    """Return the diagram as text, a string for each line."""
    names = participants(steps)
    columns = _columns(steps, names)
    lines = ["", _bars(columns)]
    for name in names:
        heading = _printable_line(name, _NAME_LENGTH_MAX)
        lines[0] = f"{lines[0]:<{max(0, columns[name] - len(heading) // 2)}}{heading}"
    lines += [_line(step, columns) for step in steps]
    return [line.rstrip() for line in lines]


def participants(steps: Sequence[Step]) -> list[str]:
    """Return the names of the participants, in the order of their first steps."""
    return list(dict.fromkeys(name for step in steps for name in (step.source, step.target)))


def _columns(steps: Sequence[Step], names: Sequence[str]) -> dict[str, int]:
    """Return the column of each participant's line, in characters from the left."""
    columns: dict[str, int] = {}
    widths = [len(_printable_line(name, _NAME_LENGTH_MAX)) for name in names]
    at = max(2, widths[0] // 2)
    for number, name in enumerate(names):
        if number:
            at += max(_COLUMN_GAP_MIN, (widths[number - 1] + widths[number]) // 2 + 2)
            for step in steps:
                left, right = _span(step, names)
                if names[right] == name and left < right:
                    at = max(
                        at,
                        columns[names[left]]
                        + len(_printable_line(step.text, _TEXT_LENGTH_MAX))
                        + 7,
                    )
        columns[name] = at
    return columns


def _span(step: Step, names: Sequence[str]) -> tuple[int, int]:
    ends = sorted((names.index(step.source), names.index(step.target)))
    return ends[0], ends[1]


def _bars(columns: dict[str, int]) -> str:
    line = [" "] * (max(columns.values()) + 1)
    for at in columns.values():
        line[at] = "│"
    return "".join(line)


def _line(step: Step, columns: dict[str, int]) -> str:
    line = list(_bars(columns))
    text = _printable_line(step.text, _TEXT_LENGTH_MAX)
    source, target = columns[step.source], columns[step.target]
    if source == target:
        return f"{''.join(line[: source + 1])} {text}{_time(step)}"
    left, right = min(source, target), max(source, target)
    inside = right - left - 1
    if source < target:  # the arrow of a lost message ends just before its receiver
        end = "✗ " if step.is_lost else "▶"
        arrow = f"─ {text} ".ljust(inside - len(end), "─") + end
        line[left] = "├"
    else:
        end = " ✗" if step.is_lost else "◀"
        arrow = end + f" {text} ─".rjust(inside - len(end), "─")
        line[right] = "┤"
    line[left + 1 : right] = arrow[:inside]
    return "".join(line) + _time(step)


def _printable_line(text: str, length_max: int) -> str:
    """Return a client's text as one printable line of bounded length."""
    line = "".join(letter if letter.isprintable() else _UNPRINTABLE for letter in text)
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


def _time(step: Step) -> str:
    if step.at_us is None:
        return ""
    begin = _clock(step.at_us)
    end = begin if step.until_us is None else _clock(step.until_us)
    return f"   {begin}" if begin == end else f"   {begin} to {end}"


def _clock(at_us: int) -> str:
    moment = datetime.fromtimestamp(at_us / 1_000_000, UTC)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}"


def as_svg(steps: Sequence[Step], title: str) -> str:
    """Return the diagram as an SVG document with ``title`` as its heading."""
    names = participants(steps)
    columns = _columns(steps, names)
    place = {name: _MARGIN + at * _CHARACTER_WIDTH for name, at in columns.items()}
    width = max(place.values()) + _MARGIN + 30 * _CHARACTER_WIDTH
    height = _MARGIN * 2 + _ROW_HEIGHT * (len(steps) + 3)
    top = _MARGIN + 2 * _ROW_HEIGHT
    size = f'width="{width:.0f}" height="{height:.0f}"'
    head = 'id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto"'
    heading = escape(_printable_line(title, _TEXT_LENGTH_MAX))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">',
        f"<title>{heading}</title>",
        f'<defs><marker {head}><path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<text x="{_MARGIN}" y="{_MARGIN}" font-weight="bold">{heading}</text>',
    ]
    for name, x in place.items():
        shown = escape(_printable_line(name, _NAME_LENGTH_MAX))
        parts.append(
            f'<text x="{x:.1f}" y="{_MARGIN + _ROW_HEIGHT}" text-anchor="middle">{shown}</text>'
            f'<line x1="{x:.1f}" y1="{top - 16}" x2="{x:.1f}" y2="{height - _MARGIN}"'
            ' stroke="#999"/>'
        )
    for number, step in enumerate(steps):
        parts.append(_svg_step(step, place, top + number * _ROW_HEIGHT + 8))
    parts.append("</svg>\n")
    return "\n".join(parts)


def _svg_step(step: Step, place: dict[str, float], y: float) -> str:
    source, target = place[step.source], place[step.target]
    text = escape(_printable_line(step.text, _TEXT_LENGTH_MAX) + _time(step))
    if source == target:
        dot = f'<circle cx="{source:.1f}" cy="{y}" r="3"/>'
        return f'{dot}<text x="{source + 8:.1f}" y="{y + 4}">{text}</text>'
    left = min(source, target) + 6
    colour = "#b00020" if step.is_lost else "#000"
    ends = target
    if step.is_lost:
        ends += -2 * _CHARACTER_WIDTH if source < target else _CHARACTER_WIDTH
    head = "" if step.is_lost else ' marker-end="url(#head)"'
    cross = f'<text x="{ends:.1f}" y="{y + 4}" fill="{colour}">✗</text>' if step.is_lost else ""
    line = f'<line x1="{source:.1f}" y1="{y}" x2="{ends:.1f}" y2="{y}" stroke="{colour}"{head}/>'
    return f'{line}{cross}<text x="{left:.1f}" y="{y - 4}" fill="{colour}">{text}</text>'
