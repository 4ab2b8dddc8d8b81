"""Marks and epochs as numbers, which is all that the transactions of a Delta table can store.

A mark names the history before an offset of the log (`penstock.store.mark`):

    mark-runs                   the number of runs in its path
    mark-begin-0, mark-run-0    offset and name of the oldest run, and so on
    mark-digest-0 … 4           the digest in parts of 62 bits; the last one has a bit on top of it

A commit stores only the numbers that differ from those before: usually the digest.

The names of epochs do not tell their order: an older copy of a log may go on under a clock that is
behind. So a table stores the epochs in the order in which it received messages of them, one again
if the log came back to it:

    penstock-epochs             how many they are
    penstock-epoch-0:0 … 3:0    the name of the first one in parts of 62 bits, and so on
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.store.mark import NAME_CHARACTERS, Mark, Run

_BITS: Final = 62
_DIGEST_CHARACTERS: Final = 64
_DIGEST_BIT: Final = 1 << (4 * _DIGEST_CHARACTERS)
_PARTS: Final = 5

EPOCHS: Final = "penstock-epochs"
"""The key under which a table counts the epochs of which it has received messages."""


def mark_numbers(mark: Mark) -> dict[str, int]:
    """Return the numbers of a mark, by name."""
    found = {"mark-runs": len(mark.path)}
    for index, run in enumerate(mark.path):
        found[f"mark-begin-{index}"] = run.begin
        found[f"mark-run-{index}"] = int(run.name, 16)
    digest = int(mark.digest, 16) | _DIGEST_BIT if mark.digest else 0
    for index in range(_PARTS):
        found[f"mark-digest-{index}"] = digest >> (_BITS * index) & ((1 << _BITS) - 1)
    return found


def stored_mark(find: Callable[[str], int | None]) -> Mark:
    """Return the mark whose numbers `find` returns by their names; the empty one without any."""
    runs = []
    for index in range(find("mark-runs") or 0):
        begin, name = find(f"mark-begin-{index}"), find(f"mark-run-{index}")
        runs.append(Run(begin or 0, f"{name or 0:0{NAME_CHARACTERS}x}"))
    digest = sum((find(f"mark-digest-{part}") or 0) << (_BITS * part) for part in range(_PARTS))
    text = f"{digest ^ _DIGEST_BIT:0{_DIGEST_CHARACTERS}x}" if digest else ""
    return Mark(tuple(runs), text)


def epoch_numbers(index: int, epoch: str) -> dict[str, int]:
    """Return the numbers that name the epoch with this index in a table's list, by their keys."""
    number = int.from_bytes(b"\1" + epoch.encode())  # the first bit tells the length
    parts = range(-(-number.bit_length() // _BITS))
    return {_part(index, part): number >> (_BITS * part) & ((1 << _BITS) - 1) for part in parts}


def stored_epochs(find: Callable[[str], int | None]) -> tuple[str, ...]:
    """Return the epochs of a table's list, in the order in which it received them; `find` returns
    its numbers."""
    return tuple(_stored_epoch(index, find) for index in range(find(EPOCHS) or 0))


def _stored_epoch(index: int, find: Callable[[str], int | None]) -> str:
    number, part = 0, 0
    while (found := find(_part(index, part))) is not None:
        number |= found << (_BITS * part)
        part += 1
    return number.to_bytes(-(-number.bit_length() // 8))[1:].decode()


def _part(index: int, part: int) -> str:
    return f"penstock-epoch-{part}:{index}"
