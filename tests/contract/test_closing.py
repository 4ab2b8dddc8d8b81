"""The file store closed while other threads use it: it lets go of the database all the same.

A member of a cluster that is the primary no longer opens the database again, in the same process.
An iterator that is left, or an object of rocksdict that was busy while it was to be closed, would
keep it locked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.store.database import open_database
from penstock.store.rocks import RocksStore
from tests.contract.test_store import rows
from tests.support.deadline import DEADLINE_S


class _Busy:
    """A thread that repeats ``call`` until that fails, or returns False."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._began.wait(DEADLINE_S)

    def _run(self) -> None:
        with suppress(Exception):
            while self._call() is not False:
                self._began.set()

    def join(self) -> None:
        """Wait for its end."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def test_a_sync_under_way_does_not_keep_a_database_open(tmp_path: Path) -> None:
    for _ in range(5):
        database = open_database(tmp_path)
        syncing = _Busy(database.sync)
        database.close()
        again = open_database(tmp_path)
        again.close()
        syncing.join()


def test_a_read_under_way_does_not_keep_a_store_open(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    for base in range(0, 400, 2):
        store.commit(rows(base, 2))
    for _ in range(3):
        reading = _Busy(partial(store.read, range(400)))
        store.close()
        again = RocksStore(tmp_path)
        reading.join()
        store = again
    store.close()


def test_states_that_nobody_asks_for_any_more_do_not_keep_a_store_from_closing(
    tmp_path: Path,
) -> None:
    store = RocksStore(tmp_path)
    names = ["a/1", "a/2", "a/3"]
    for name in [*names, "b/1"]:
        store.write_state(name, b"x")
    assert [name for name, _ in store.read_states("a/")] == names
    left = store.read_states("a/")
    assert next(left) == ("a/1", b"x")
    store.close()
    RocksStore(tmp_path).close()
