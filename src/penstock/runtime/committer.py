"""The committer: the one thread that writes commits, in order.

The event loop hands it one sealed commit at a time and goes on filling the next batch;
the store's write releases the GIL while it syncs. The batch thus grows with the load,
and the cost of a sync is shared by all that arrived during the one before.

A commit that fails is kept and written once more, unchanged, until it succeeds::

      commit ─▶ written ───────────────────────────────────────────────▶ done(commit, None)
         │ failed: failing(why)                                             ▲
         ▼                                                                  │ failing(None)
      wait 0.1 s, 0.2 s, … 5 s ─▶ store.reopen ── works ─▶ same commit ── written
         ▲                             │ fails            │ fails
         ╰─────────────────────────────┴──────────────────╯
         │ longer than retry_s_max, or the store is damaged, or the broker stops
         ▼
      done(commit, failure)                 fail closed: the broker ends

When a commit fails, the engine's memory is ahead of the disk: offsets are given,
windows have moved, packet identifiers are noted, and the open batch builds on all of it.
Taking that back would mean an undo for every kind of state, in the part of the program
that must be right and is hardly ever run. Keeping it needs none: acknowledgements that wait
for the commit go on waiting, so no client was promised anything, and to the engine an outage is
one slow commit. Whether the failed write left something behind (``CommitUnknown``) or not
(``StoreFailed``) makes no difference either, for writing the same batch twice does what
writing it once does; only the end differs: what is unknown may be found by the next start,
as if its acknowledgement had been lost on the way, and a client that sends it again is
recognised by its packet identifier (QoS 2) or makes a duplicate that QoS 1 allows.

Memory is bounded: one commit is kept, and while the store fails the engine takes in
nothing that needs it (``StoreHealth.fails``).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, final

from penstock.engine.batch.commit import Commit
from penstock.errors import StoreError, StoreFailed
from penstock.store.api import Store

Done = Callable[[Commit, StoreFailed | None], None]
"""Called on the event loop when a commit is durable, or has failed for good."""

Failing = Callable[[StoreFailed | None], None]
"""Called on the event loop when writing failed and is tried again, once for each cause; with
None when it works again."""

RETRY_S_FIRST: Final = 0.1
RETRY_S_LAST: Final = 5.0  # between two attempts; doubled from the first one on


@final
class Committer:
    """Writes commits for one event loop.

    Args:
        store: takes the commits.
        loop: the loop in which ``done`` and ``failing`` are called.
        done: called with each commit and its outcome.
        failing: called when the store cannot write, and when it can again.
        retry_s_max: a commit is tried again for so long, seconds; 0 = never.

    Attributes:
        took_s: how long the last attempt took, seconds.
        attempts: how many attempts to write a commit have ended.
        retry_s_max: as given; another value counts for the next commit that fails.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        done: Done,
        failing: Failing,
        retry_s_max: float,
    ) -> None:
        self._store = store
        self._loop = loop
        self._done = done
        self._failing = failing
        self.retry_s_max = retry_s_max
        self.took_s = 0.0
        self.attempts = 0
        self._stopping = threading.Event()
        self._commits: SimpleQueue[Commit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """Write ``commit``, once the one before is written.

        It is encoded here, on the event loop: the thread would have to wait for the interpreter's
        lock again and again while the loop is busy, and would keep it from other threads.
        """
        with contextlib.suppress(Exception):  # the thread meets it again, and says so
            self._store.prepare(commit)
        self._commits.put(commit)

    def stop_trying(self) -> None:
        """Try no failed commit again, now or later: the broker is to stop."""
        self._stopping.set()

    def stop(self) -> None:
        """Write the submitted commits and end the thread."""
        self._commits.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            commit = self._commits.get()
            if commit is None:
                return
            failure: StoreFailed | None
            try:
                failure = self._write(commit)
            except StoreError as error:  # of a cluster: another machine is the primary
                failure = StoreFailed(str(error))
            except Exception as error:  # whatever went wrong, nothing may be acknowledged
                failure = StoreFailed(f"the commit failed: {error!r}")
            self._loop.call_soon_threadsafe(self._done, commit, failure)

    def _write(self, commit: Commit) -> StoreFailed | None:
        """Write ``commit``, however long it takes; return the failure if it is given up, else
        None."""
        failure = self._try(commit)
        if failure is None or self.retry_s_max <= 0:
            return failure
        ends_s = time.monotonic() + self.retry_s_max
        wait_s = RETRY_S_FIRST
        cause = ""
        while failure is not None:
            if str(failure) != cause:
                cause = str(failure)
                self._loop.call_soon_threadsafe(self._failing, failure)
            if self._stopping.wait(wait_s) or time.monotonic() >= ends_s:
                return failure
            wait_s = min(2 * wait_s, RETRY_S_LAST)
            try:
                self._store.reopen()
            except StoreFailed as error:
                failure = error
            except StoreError as error:  # it is damaged: another attempt would not mend it
                return StoreFailed(str(error))
            else:
                failure = self._try(commit)
        self._loop.call_soon_threadsafe(self._failing, None)
        return None

    def _try(self, commit: Commit) -> StoreFailed | None:
        began_s = time.monotonic()
        try:
            self._store.commit(commit)
        except StoreFailed as failure:
            return failure
        finally:
            self.took_s = time.monotonic() - began_s
            self.attempts += 1
        return None
