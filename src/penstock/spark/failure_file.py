"""Why a table does not land, kept in its checkpoint for who asks in another process.

    <checkpoint>/penstock-failure.json    while the table fails, or since it gave up

It is for people: no job reads it to decide anything.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from penstock.telemetry.logs import Sentence, get_logger

logger = get_logger(__name__)

FAILURE_NAME: Final = "penstock-failure.json"


class Failure(msgspec.Struct, frozen=True):
    """A table that fails.

    Attributes:
        sentence: what went wrong the last time.
        since: when it failed first after it had landed (UTC).
        at: when it failed last (UTC).
        attempts: how often since.
        gave_up: whether nobody tries again by himself.
    """

    sentence: str
    since: datetime
    at: datetime
    attempts: int
    gave_up: bool


def read_failure(checkpoint: Path) -> Failure | None:
    """Return why the table fails; None where it does not, or nobody can tell."""
    try:
        return msgspec.json.decode((checkpoint / FAILURE_NAME).read_bytes(), type=Failure)
    except (OSError, msgspec.MsgspecError):
        return None


def keep_failure(checkpoint: Path, failure: Failure) -> None:
    """Write it down. Where that fails too, perhaps for the same reason, it is only logged."""
    path = checkpoint / FAILURE_NAME
    unfinished = path.with_name(f"{FAILURE_NAME}.new")
    try:
        unfinished.write_bytes(msgspec.json.encode(failure))
        unfinished.replace(path)
    except OSError as error:
        logger.warning("the failure could not be written to %s: %s", Sentence(path), error)


def forget_failure(checkpoint: Path) -> None:
    """The table lands again."""
    try:
        (checkpoint / FAILURE_NAME).unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s could not be removed: %s", Sentence(checkpoint / FAILURE_NAME), error)
