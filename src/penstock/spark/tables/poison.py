"""Poison messages: messages at which the code that splits a batch raises unexpectedly.

    batch ── raises ──▶ its halves, each by itself ── … ──▶ one message ── raises ──▶ poison

Without this one message would end each attempt at its batch, for ever, and block the table with
all later messages. The cause is a defect of Penstock or of a library that decodes; the
message becomes a dead letter with the exception, and a backfill makes rows of it once that is
fixed.

Errors not caused by a message are raised unchanged: of the machine, of the configuration, of a
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
    """Yield the results of `make`, in parts if it raises for all messages, in their order.

    Args:
        messages: at least one.
        make: must change nothing when it raises, because it is called again.
        poisoned: returns the result for one message at which `make` raised this.

    Raises:
        PenstockError, OSError: the error of `make`, if it is one of these.
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
    """Return why a message is poison, in one sentence."""
    text = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if len(reason) > REASON_CHARACTERS_MAX:
        reason = f"{reason[:REASON_CHARACTERS_MAX]}…"
    return f"Penstock has a defect that this message meets: {reason}"
