"""A broker with a fault: it does not sync its commits. Started by a test as ``penstock`` is.

It exists to show that the check of ``test_sync_before_acknowledgement`` can fail.
"""

from penstock.cli.main import main
from penstock.store.batch import StoreBatch
from penstock.store.database import Database

_write = Database.write


def _write_unsynced(self: Database, batch: StoreBatch, sync: bool = True) -> None:
    del sync
    _write(self, batch, False)


if __name__ == "__main__":
    Database.write = _write_unsynced  # type: ignore[method-assign]  # the fault
    main()
