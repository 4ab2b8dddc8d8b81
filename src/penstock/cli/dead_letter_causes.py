"""The causes of dead letters: one line for each cause, with one of its messages as an example.

The reason of a dead letter describes the mistake of one message: at which byte, with which value.
Two reasons have the same cause when they differ only in numbers and quoted text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_QUOTED_VALUE: Final = re.compile(
    r"""(?<!\w)b?(?:'(?:[^'\\…]|\\.)*(?:'(?!\w)|…|$)|"(?:[^"\\…]|\\.)*(?:"(?!\w)|…|$))"""
)
"""A value as `decoding.abbreviation` writes it: in Python's quotes, or truncated without the
closing quote."""

_NUMBER: Final = re.compile(
    r"(?<!\w)0x[0-9a-fA-F]+|(?<!\w)[+-]?\d+(?:[.,_]\d+)*(?:[eE][+-]?\d+)?(?:[-:T]\d[\d:.TZ+-]*)?"
)
"""A number; a date or a time of day, too."""


@dataclass(slots=True)
class Cause:
    """A cause of dead letters: the number of its messages, and the newest message as an example."""

    count: int
    kind: str
    reason: str
    offset: int


def normalize_reason(reason: str) -> str:
    """Return the reason with numbers and quoted values replaced, so that reasons of one cause are
    equal."""
    return _NUMBER.sub("0", _QUOTED_VALUE.sub("''", reason))


def count_causes(letters: Iterable[tuple[str, str, int]]) -> list[Cause]:
    """Return the causes of dead letters, the most frequent first.

    Args:
        letters: kind, reason and offset of each dead letter, in order of offset.
    """
    by_reason: dict[tuple[str, str], Cause] = {}
    for kind, reason, offset in letters:
        key = kind, normalize_reason(reason)
        cause = by_reason.setdefault(key, Cause(0, kind, reason, offset))
        cause.count += 1
        cause.reason, cause.offset = reason, offset
    return sorted(by_reason.values(), key=lambda cause: -cause.count)


def cause_line(cause: Cause) -> str:
    """Return the cause in one line."""
    example = ", such as" if cause.count > 1 else ""
    return f"{cause.count:,} {cause.kind}{example}: {cause.reason} (offset {cause.offset})"
