"""The port of the table that a job fills."""

from __future__ import annotations

from typing import Protocol

from penstock.spark.tables.landed_table import Contents, Landed, PlannedBatch, Selection


class JobTarget(Protocol):
    """The table of a job. For one thread at a time."""

    def prepare(self, selection: Selection) -> None:
        """Prepare the tables; raise ConfigError if they have another selection."""

    def landed(self, selection: Selection) -> Landed | None:
        """Return what has landed; None if landing has not begun."""

    def reached(self, selection: Selection) -> Landed | None:
        """Return the furthest that has been committed, perhaps of a batch that has not landed as a
        whole; None if landing has not begun."""

    def move_end(self, batch: PlannedBatch) -> None:
        """Move the landed end over a range without messages, or to where landing begins or goes on.

        If the table has moved since the batch was planned, nothing happens.
        """

    def drop_unlanded(self, former: Selection) -> None:
        """Remove what was committed of a batch of a former epoch that has not landed as a whole."""

    def epochs(self) -> tuple[str, ...]:
        """Return the epochs of which the table has received messages, in that order."""

    def contents(self) -> Contents | None:
        """Return the contents of the table; None if it does not exist."""
