"""The committer: the one thread that writes commits, in order.

The event loop submits one sealed commit at a time and fills the next batch meanwhile; the
store's write releases the GIL while it syncs. The batch thus grows with the load, and all
messages that arrived during one sync share the cost of the next.

A commit that fails is written again, unchanged, until it succeeds::

      commit ─▶ written ───────────────────────────────────────────────▶ on_done(commit, None)
         │ failed: on_outage(failure)                                       ▲
         ▼                                                                  │ on_outage(None)
      wait 0.1 s, 0.2 s, … 5 s ─▶ store.reopen ── works ─▶ same commit ── written
         ▲                             │ fails            │ fails
         ╰─────────────────────────────┴──────────────────╯
         │ longer than retry_s_max, or the store is damaged, or the broker stops
         ▼
      on_done(commit, failure)              fail closed: the broker ends

When a commit fails, the engine's memory is ahead of the disk: offsets are assigned, windows have
moved, packet identifiers are in use, and the open batch builds on that state. A rollback would need
an undo for every kind of state, in code that must be right and hardly ever runs. Writing again
needs none: acknowledgements that wait for the commit keep waiting, so no client was promised
anything, and to the engine an outage is one slow commit. It makes no difference either whether the
failed write is partly on disk (``CommitUnknown``) or not (``StoreUnavailable``), for writing the
same batch twice has the effect of writing it once. Only the end differs: the next start may find a
commit whose fate was unknown, as if its acknowledgement had been lost on the way; a client that
sends the message again is recognised by its packet identifier (QoS 2) or makes a duplicate, which
QoS 1 allows.

Memory is bounded: one commit is kept, and while the store fails the engine accepts no input that
needs the store (``EngineContext.store_failure``).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final, final

from penstock.engine.api import Commit
from penstock.errors import StoreError, StoreUnavailable
from penstock.store.port import Store

DoneCallback = Callable[[Commit, StoreUnavailable | None], None]
"""Called on the event loop when a commit is durable (None), or has failed for good."""

OutageCallback = Callable[[StoreUnavailable | None], None]
"""Called on the event loop when a write failed and is tried again, once for each cause; with None
when the store works again."""

RETRY_S_FIRST: Final = 0.1
RETRY_S_LAST: Final = 5.0  # the longest pause; each is twice as long as the one before


@final
class Committer:
    """Writes commits for one event loop.

    Args:
        store: the store that writes the commits.
        loop: the event loop on which the callbacks are called.
        on_done: called with each commit and its outcome.
        on_outage: called when the store cannot write, and when it can write again.
        retry_s_max: seconds for which a failed commit is tried again; 0 = not at all.

    Attributes:
        took_s: the duration of the last attempt, in seconds.
        attempts: the number of attempts to write a commit that have ended.
        retry_s_max: as the argument; another value counts for the next commit that fails.
    """

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        on_done: DoneCallback,
        on_outage: OutageCallback,
        retry_s_max: float,
    ) -> None:
        self._store = store
        self._loop = loop
        self._on_done = on_done
        self._on_outage = on_outage
        self.retry_s_max = retry_s_max
        self.took_s = 0.0
        self.attempts = 0
        self._stopping = threading.Event()
        self._commits: SimpleQueue[Commit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """Queue ``commit`` for the thread, which writes it after the commits before.

        The commit is encoded here, on the event loop: the thread would wait for the GIL repeatedly
        while the loop is busy, and would keep the GIL from other threads.
        """
        with contextlib.suppress(Exception):  # the thread raises it again, and reports it
            self._store.prepare(commit)
        self._commits.put(commit)

    def stop_retrying(self) -> None:
        """Do not retry failed commits from now on, nor the present one: the broker stops."""
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
            failure: StoreUnavailable | None
            try:
                failure = self._write(commit)
            except StoreError as error:  # in a cluster: another machine is the primary
                failure = StoreUnavailable(str(error))
            except Exception as error:  # after any error nothing may be acknowledged
                failure = StoreUnavailable(f"the commit failed: {error!r}")
            self._loop.call_soon_threadsafe(self._on_done, commit, failure)

    def _write(self, commit: Commit) -> StoreUnavailable | None:
        """Write ``commit`` and retry as long as allowed; return None, or the last failure."""
        failure = self._try(commit)
        if failure is None or self.retry_s_max <= 0:
            return failure
        ends_s = time.monotonic() + self.retry_s_max
        wait_s = RETRY_S_FIRST
        cause = ""
        while failure is not None:
            if str(failure) != cause:
                cause = str(failure)
                self._loop.call_soon_threadsafe(self._on_outage, failure)
            if self._stopping.wait(wait_s) or time.monotonic() >= ends_s:
                return failure
            wait_s = min(2 * wait_s, RETRY_S_LAST)
            try:
                self._store.reopen()
            except StoreUnavailable as error:
                failure = error
            except StoreError as error:  # damaged: another attempt would fail, too
                return StoreUnavailable(str(error))
            else:
                failure = self._try(commit)
        self._loop.call_soon_threadsafe(self._on_outage, None)
        return None

    def _try(self, commit: Commit) -> StoreUnavailable | None:
        began_s = time.monotonic()
        try:
            self._store.commit(commit)
        except StoreUnavailable as failure:
            return failure
        finally:
            self.took_s = time.monotonic() - began_s
            self.attempts += 1
        return None
