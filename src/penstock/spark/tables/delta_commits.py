"""Makes the commit that follows a version of a Delta table, and tells whether it happened.

    version 7 was looked at ──▶ …0008.json is this commit ───────▶ done
                            ├─▶ …0008.json is another writer's ──▶ refused: look again
                            └─▶ there is none, and the error says
                                  that the log refused it ───────▶ refused: look again
                                  anything else ─────────────────▶ unknown: it may still arrive

The answer of a store may be lost after it made the object. Its client then asks once more, and is
told that there is one of this name. So each commit has an id, by which its writer knows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from uuid import uuid4

from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError

from penstock.spark.storage.location import Location
from penstock.spark.storage.opening import cleaned
from penstock.spark.tables.delta_log import LOG_DIRECTORY, commit_name
from penstock.spark.tables.landed_table import TableCommitUnknown

_ID: Final = "penstock.commitId"

WriteCommit = Callable[[CommitProperties], None]
"""Asks the deltalake package to write the commit, with these properties and without retries."""


def commit_next(
    table: Location,
    version: int,
    write: WriteCommit,
    what: str,
    numbers: Mapping[str, int] | None = None,
    facts: Mapping[str, str | int] | None = None,
) -> Exception | None:
    """Make the commit that follows a version of a table.

    Args:
        table: the directory of the table.
        version: the version; -1 for the commit that creates the table.
        write: writes the commit on top of exactly this version.
        what: the commit in words, for an error.
        numbers: the versions of application transactions that the commit stores.
        facts: further entries of the commit's information about itself, for people.

    Returns:
        None if the commit is there; else the error of the one that was refused: another writer's
        follows the version.

    Raises:
        TableCommitUnknown: the commit may have happened.
    """
    own = uuid4().hex
    properties = CommitProperties(
        # No retries in deltalake: it would repeat the commit that creates a table on top of
        # another writer's without checking transactions.
        max_commit_retries=0,
        app_transactions=[Transaction(*pair) for pair in (numbers or {}).items()],
        custom_metadata={**(facts or {}), _ID: own},
    )
    try:
        write(properties)
    except Exception as error:  # deltalake raises OSError, DeltaError and others
        cleaned(error, table)
        try:
            found = (table / LOG_DIRECTORY / commit_name(version + 1)).read()
        except FileNotFoundError:
            if isinstance(error, DeltaError):  # refused by the table's log
                return error
            raise unknown_outcome(what, table, error) from error
        except OSError as failure:
            raise unknown_outcome(what, table, failure) from error
        if own.encode() not in found:
            return error
    return None


def unknown_outcome(what: str, table: Location, failure: Exception) -> TableCommitUnknown:
    """Return the error of a commit that may have happened."""
    return TableCommitUnknown(
        f"it is not known whether {what} was committed to {table} ({failure}); run the job again:"
        " it checks the table"
    )
