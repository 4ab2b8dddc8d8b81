"""The failure of a table, written to its checkpoint for other processes.

    <checkpoint>/penstock-failure.json    while the table fails, or since it gave up

It is for people: no job bases a decision on it.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

FAILURE_NAME: Final = "penstock-failure.json"


class TableFailure(msgspec.Struct, frozen=True):
    """A failure of a table.

    Attributes:
        sentence: the latest error, in a sentence.
        since: when it failed first since its last success (UTC).
        at: when it failed last (UTC).
        attempts: the number of failures since then.
        gave_up: whether it is not retried automatically.
    """

    sentence: str
    since: datetime
    at: datetime
    attempts: int
    gave_up: bool


def read_failure(checkpoint: Path) -> TableFailure | None:
    """Return the failure of the table; None if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((checkpoint / FAILURE_NAME).read_bytes(), type=TableFailure)
    except (OSError, msgspec.MsgspecError):
        return None


def write_failure(checkpoint: Path, failure: TableFailure) -> None:
    """Write the failure; an error of that, perhaps for the same reason, is only logged."""
    path = checkpoint / FAILURE_NAME
    unfinished = path.with_name(f"{FAILURE_NAME}.new")
    try:
        unfinished.write_bytes(msgspec.json.encode(failure))
        unfinished.replace(path)
    except OSError as error:
        logger.warning("the failure could not be written to %s: %s", Sentence(path), error)


def remove_failure(checkpoint: Path) -> None:
    """Remove the failure: the table lands again."""
    try:
        (checkpoint / FAILURE_NAME).unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s could not be removed: %s", Sentence(checkpoint / FAILURE_NAME), error)
