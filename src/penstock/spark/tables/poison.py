"""Isolates poison messages, for which the code that splits a batch raises an unexpected error.

    batch ── raises ──▶ its halves, each by itself ── … ──▶ one message ── raises ──▶ poison

Without this, one message would end each attempt at its batch for ever, and block all later messages
of the table. The cause is a defect of Penstock or of a library that decodes. The message becomes a
dead letter with the exception, and a backfill makes rows of it when the defect is fixed.

Errors that no message causes are raised unchanged: those of the machine, of the configuration, of a
service that does not answer. The batch is repeated and can land later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

import pyarrow as pa

from penstock.errors import PenstockError

REASON_CHARACTERS_MAX: Final = 300

_ENVIRONMENT_ERRORS: Final = (PenstockError, OSError)

Result = TypeVar("Result")


def make_in_parts(
    messages: pa.Table,
    make: Callable[[pa.Table], Result],
    make_poisoned: Callable[[pa.Table, Exception], Result],
) -> Iterator[Result]:
    """Yield the result of `make` for all messages, or for parts of them in order if it raises.

    Args:
        messages: the messages, at least one.
        make: makes a result of messages; if it raises, it must have had no effect.
        make_poisoned: returns the result for a single message for which `make` raised this error.

    Raises:
        PenstockError, OSError: `make` raised such an error, which no message causes.
    """
    try:
        yield make(messages)
    except _ENVIRONMENT_ERRORS:
        raise
    except Exception as error:
        if messages.num_rows == 1:
            yield make_poisoned(messages, error)
            return
        middle = messages.num_rows // 2
        for half in (messages.slice(0, middle), messages.slice(middle)):
            yield from make_in_parts(half, make, make_poisoned)


def reason_of(error: Exception) -> str:
    """Return the reason of a poison message's dead letter, in one sentence."""
    text = " ".join(str(error).split())
    reason = f"{type(error).__name__}: {text}" if text else type(error).__name__
    if len(reason) > REASON_CHARACTERS_MAX:
        reason = f"{reason[:REASON_CHARACTERS_MAX]}…"
    return f"Penstock has a defect that this message triggers: {reason}"
