"""A broker whose disk hangs for good once the file that ``HANGS_WITH`` names is there.

Started by a test as ``penstock`` is. The committer's thread stands still in the middle of a commit,
as it does when a network disk goes away: nothing fails, and nothing comes back.
"""

import os
import threading
from pathlib import Path

from penstock.cli.main import main
from penstock.store.batch import StoreBatch
from penstock.store.database import Database

_write = Database.write


def _write_or_hang(self: Database, batch: StoreBatch, sync: bool = True) -> None:
    if threading.current_thread().name == "committer" and Path(os.environ["HANGS_WITH"]).exists():
        threading.Event().wait()
    _write(self, batch, sync)


if __name__ == "__main__":
    Database.write = _write_or_hang  # type: ignore[method-assign]  # the fault
    main()
