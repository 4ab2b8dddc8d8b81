"""Opens the database of a store, at a start and after a failed write.

``StandaloneOpener`` is for a broker outside a cluster: RocksDB has the only copy of the data, and
the watermark reveals a loss. In a cluster the database is a view of the replicated log
(``penstock.cluster.database``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, final

from penstock.store.database import (
    CLUSTER_POSITION_KEY,
    STORE_DIRECTORY,
    Database,
    open_database,
)
from penstock.store.faults import probe
from penstock.store.identity import begin_epoch, refuse_losses
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)


class DatabaseOpener(Protocol):
    """Opens the database of a ``RocksStore``."""

    acknowledged_when: str
    """How durable an acknowledged message is: "fsync" or "quorum"."""

    trusts_watermark: bool
    """True where the watermark proves how much was acknowledged, so that a loss can be detected."""

    def verify_complete(self, data_dir: Path) -> None:
        """Raise if the database holds less than was acknowledged; call this before opening it.

        Raises:
            HistoryMismatch: messages or commits are missing.
            StoreError: the database must not be opened for writing.
        """

    def probe(self, data_dir: Path) -> None:
        """Raise if writes would still fail after the database is opened again.

        Raises:
            StoreUnavailable: the cause of the failed write persists.
        """

    def open(self, data_dir: Path) -> Database:
        """Open the database and return it; everything that was acknowledged is in it.

        Raises:
            StoreError: the database cannot be opened.
        """


@final
class StandaloneOpener:
    """Opens the database of a broker that is not in a cluster."""

    acknowledged_when = "fsync"
    trusts_watermark = True

    def verify_complete(self, data_dir: Path) -> None:
        """Raise if the database holds less than its watermark says (``refuse_losses``)."""
        refuse_losses(data_dir)

    def probe(self, data_dir: Path) -> None:
        """Raise if the disk has no room for further writes (``faults.probe``)."""
        probe(data_dir, data_dir / STORE_DIRECTORY)

    def open(self, data_dir: Path) -> Database:
        """Open the database; let it begin a new epoch if it was a view of a cluster's log, which
        gives the next offsets to other messages."""
        database = open_database(data_dir)
        try:
            if database.families["meta"].get(CLUSTER_POSITION_KEY) is not None:
                begin_epoch(database)
                logger.warning(
                    "the store in %s was a view of a cluster's log; it goes on alone, in a new"
                    " epoch, and is no member's view any more",
                    data_dir,
                )
        except BaseException:
            database.close()
            raise
        return database
