"""A broker with a fault: it does not sync its commits. Started by a test as ``penstock`` is.

It exists to show that the check of ``test_sync_before_acknowledgement`` can fail.
"""

from collections.abc import Sequence
from pathlib import Path

from penstock.cli.main import main
from penstock.config.stream import StreamDefinition
from penstock.store.rocks import RocksStore

_initialise = RocksStore.__init__


def _initialise_unsynced(
    self: RocksStore, data_dir: Path, streams: Sequence[StreamDefinition] = ()
) -> None:
    _initialise(self, data_dir, streams)
    self._database.synced.sync = False


if __name__ == "__main__":
    RocksStore.__init__ = _initialise_unsynced  # type: ignore[method-assign]  # the fault
    main()
