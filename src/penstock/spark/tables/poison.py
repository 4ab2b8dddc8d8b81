"""Poison messages: those with which the code that sorts a batch raises, where it should not.

    batch ── raises ──▶ its halves, each by itself ── … ──▶ one message ── raises ──▶ poison

Without this one message would end each attempt at its batch, for ever, and hold up the table with
all that comes behind it. What raises is a defect of Penstock or of a library that decodes; the
message is kept as a dead letter with the exception, and a backfill makes rows of it once that is
mended.

Errors that are not a message's are raised as they are: of the machine, of the configuration, of a
service that is away. A batch that is tried again will land then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from penstock.errors import PenstockError

REASON_CHARACTERS_MAX: Final = 300

_NOT_OF_A_MESSAGE: Final = (PenstockError, OSError)

Made = TypeVar("Made")


def each_part(
    messages: pa.Table,
    make: Callable[[pa.Table], Made],
    poisoned: Callable[[pa.Table, Exception], Made],
) -> Iterator[Made]:
    """What `make` makes of messages, in parts where it raises with all of them, in their order.

    Args:
        messages: at least one.
        make: must change nothing when it raises, for it is asked again.
        poisoned: what to make of one message, with which `make` raised this.

    Raises:
        PenstockError, OSError: what `make` raised, if it is one of these.
    """
    try:
        yield make(messages)
    except _NOT_OF_A_MESSAGE:
        raise
    except Exception as error:
        if messages.num_rows == 1:
            yield poisoned(messages, error)
            return
        middle = messages.num_rows // 2
        for half in (messages.slice(0, middle), messages.slice(middle)):
            yield from each_part(half, make, poisoned)


def reason_of(error: Exception) -> str:
    """Why a message is poison, in one sentence."""
    text = " ".join(str(error).split())
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if len(said) > REASON_CHARACTERS_MAX:
        said = f"{said[:REASON_CHARACTERS_MAX]}…"
    return f"Penstock has a defect that this message meets: {said}"
