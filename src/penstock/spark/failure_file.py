"""The failure of a table, written to its checkpoint for other processes.

    <checkpoint>/penstock-failure.json    exists while the table fails, or after it gave up

The file is for people: no job bases a decision on it.
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
        sentence: the latest error, in one sentence.
        since: the time of the first failure after the last success (UTC).
        at: the time of the latest failure (UTC).
        attempts: the number of failures since the last success.
        gave_up: whether the job has stopped retrying the table.
    """

    sentence: str
    since: datetime
    at: datetime
    attempts: int
    gave_up: bool


def read_failure(checkpoint: Path) -> TableFailure | None:
    """Return the failure in the checkpoint of a table; None without a file that can be read."""
    try:
        return msgspec.json.decode((checkpoint / FAILURE_NAME).read_bytes(), type=TableFailure)
    except (OSError, msgspec.MsgspecError):
        return None


def write_failure(checkpoint: Path, failure: TableFailure) -> None:
    """Write the failure of a table to its checkpoint; an error of writing is only logged."""
    path = checkpoint / FAILURE_NAME
    unfinished = path.with_name(f"{FAILURE_NAME}.new")
    try:
        unfinished.write_bytes(msgspec.json.encode(failure))
        unfinished.replace(path)
    except OSError as error:
        logger.warning("the failure could not be written to %s: %s", Sentence(path), error)


def remove_failure(checkpoint: Path) -> None:
    """Remove the failure from the checkpoint of a table that lands again; log errors."""
    try:
        (checkpoint / FAILURE_NAME).unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s could not be removed: %s", Sentence(checkpoint / FAILURE_NAME), error)
