"""Numbers, times, bars and sparklines as short text of a fixed form.

Nothing here depends on colours: the characters alone show the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.control.metric_requests import Distribution

_LEVELS: Final = "▁▂▃▄▅▆▇█"
_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_STEPS: Final = ("", "k", "M", "G", "T", "P")
_STEP: Final = 1000.0
_MINUTE_S: Final = 60.0
_HOUR_S: Final = 3600.0
_DAY_S: Final = 86_400.0


def short_number(number: float) -> str:
    """Return a number in at most five characters: 0, 0.3, 999, 1k, 12.3k, 4.5M."""
    if 0 < number < 10 and number != int(number):
        return f"{number:.1f}"
    for step in _STEPS:
        if number < 999.5 or step == _STEPS[-1]:
            text = f"{number:.1f}" if step and number < 99.95 else f"{number:.0f}"
            return text.removesuffix(".0") + step
        number /= _STEP
    raise AssertionError("the last step takes every number")


def short_bytes(number: float) -> str:
    """Return a number of bytes: 0 B, 999 B, 12.3 kB, 4.5 MB."""
    text = short_number(number)
    if text[-1:].isalpha():
        return f"{text[:-1]} {text[-1]}B"
    return f"{text} B"


def short_duration(seconds: float) -> str:
    """Return a duration in at most six characters: 0.4 s, 12 s, 5 m, 3 h, 12 d."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.0f} s"
    if seconds < 2 * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} m"
    if seconds < 2 * _DAY_S:
        return f"{seconds / _HOUR_S:.0f} h"
    return f"{seconds / _DAY_S:.0f} d"


def milliseconds_text(seconds: float | None) -> str:
    """Return a latency in milliseconds; "-" for None."""
    if seconds is None:
        return "-"
    value = seconds * 1000
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the last ``width`` values as a line of bars, the highest of them full.

    With fewer values the line begins with blanks.
    """
    shown = values[-width:] if width > 0 else ()
    highest = max(shown, default=0.0)
    bars = (
        _LEVELS[round(value / highest * (len(_LEVELS) - 1)) if highest > 0 else 0]
        for value in shown
    )
    return "".join(bars).rjust(width)


def bar(share: float, width: int) -> str:
    """Return a bar of ``width`` characters, filled to a share of 0 to 1; any share above 0 is
    visible."""
    share = min(1.0, max(0.0, share))
    eighths = round(share * width * 8)
    if share > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    filled = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return filled + "·" * (width - len(filled))


def quantile(distribution: Distribution, share: float) -> float | None:
    """Return an estimate of the value that ``share`` of all values, 0 to 1, do not exceed; None
    without values.

    Values of a bucket count as evenly spread in it; values above the last bound count as that
    bound.
    """
    rank = share * sum(distribution.counts)
    if rank <= 0:
        return None
    below = 0.0
    seen = 0
    for bound, count in zip(distribution.bounds, distribution.counts, strict=False):
        if count > 0 and seen + count >= rank:
            return below + (bound - below) * (rank - seen) / count
        seen += count
        below = bound
    return below


def subtract(now: Distribution, then: Distribution) -> Distribution:
    """Return the distribution of the values counted between two samples; all of ``now`` if the
    broker was restarted between them."""
    if now.bounds != then.bounds:
        return now
    counts = tuple(new - old for new, old in zip(now.counts, then.counts, strict=True))
    if min(counts, default=0) < 0:
        return now
    return Distribution(now.bounds, counts, now.total - then.total)
