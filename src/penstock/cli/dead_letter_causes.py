"""The causes of dead letters: one line for each, with one of its messages.

The reason of a dead letter describes the mistake of one message: at which byte, with which value.
Two reasons have the same cause when they differ only in numbers and quoted text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_QUOTED: Final = re.compile(
    r"""(?<!\w)b?(?:'(?:[^'\\…]|\\.)*(?:'(?!\w)|…|$)|"(?:[^"\\…]|\\.)*(?:"(?!\w)|…|$))"""
)
"""A value as `decoding.shown` writes it: Python's quotes around it, or a cut instead of the end."""

_NUMBER: Final = re.compile(
    r"(?<!\w)0x[0-9a-fA-F]+|(?<!\w)[+-]?\d+(?:[.,_]\d+)*(?:[eE][+-]?\d+)?(?:[-:T]\d[\d:.TZ+-]*)?"
)
"""A number; a date or a time of day, too."""


@dataclass(slots=True)
class Cause:
    """A cause: the number of its messages, and the newest one as an example."""

    count: int
    kind: str
    reason: str
    offset: int


def cause_of(reason: str) -> str:
    """Return the reason without the parts that belong to one message only."""
    return _NUMBER.sub("0", _QUOTED.sub("''", reason))


def causes(letters: Iterable[tuple[str, str, int]]) -> list[Cause]:
    """Return the causes of dead letters, the most frequent first.

    Args:
        letters: kind, reason and offset of each, in order of offset.
    """
    found: dict[tuple[str, str], Cause] = {}
    for kind, reason, offset in letters:
        cause = found.setdefault((kind, cause_of(reason)), Cause(0, kind, reason, offset))
        cause.count += 1
        cause.reason, cause.offset = reason, offset
    return sorted(found.values(), key=lambda cause: -cause.count)


def cause_line(cause: Cause) -> str:
    """Return the cause in one line."""
    example = ", such as" if cause.count > 1 else ""
    return f"{cause.count:,} {cause.kind}{example}: {cause.reason} (offset {cause.offset})"
