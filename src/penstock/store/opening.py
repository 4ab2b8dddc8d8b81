"""Opens the database of a store, at a start and after a failed write.

``StandaloneOpener`` is for a broker alone: RocksDB has all there is, and the watermark is a
witness of it. In a cluster the database is a view of the replicated log
(``penstock.cluster.database``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, final

from penstock.store.database import STORE_DIRECTORY, Database, open_database
from penstock.store.faults import probe
from penstock.store.identity import refuse_losses


class DatabaseOpener(Protocol):
    """Opens the database of a ``RocksStore``."""

    acknowledged_when: str
    """The promise of an acknowledgement: "fsync" or "quorum"."""

    has_witness: bool
    """True where the watermark's file witnesses what was acknowledged."""

    def verify_complete(self, data_dir: Path) -> None:
        """Refuse a database that holds less than was acknowledged, before it is opened.

        Raises:
            StoreDamaged: something is missing.
        """

    def probe(self, data_dir: Path) -> None:
        """Try whether opening it anew could help after a failed write.

        Raises:
            StoreFailed: it could not.
        """

    def open(self, data_dir: Path) -> Database:
        """Open the database, and return it with all that was acknowledged.

        Raises:
            StoreError: it cannot be opened.
        """


@final
class StandaloneOpener:
    """Opens the database of a broker that keeps its log alone."""

    acknowledged_when = "fsync"
    has_witness = True

    def verify_complete(self, data_dir: Path) -> None:
        """Refuse a database that holds less than its watermark says."""
        refuse_losses(data_dir)

    def probe(self, data_dir: Path) -> None:
        """Try whether the disk takes a file."""
        probe(data_dir, data_dir / STORE_DIRECTORY)

    def open(self, data_dir: Path) -> Database:
        """Open the database."""
        return open_database(data_dir)
