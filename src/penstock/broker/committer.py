"""The committer: the one thread that writes commits, in order.

The event loop hands it one sealed commit at a time and goes on filling the next batch;
the store's write releases the GIL while it syncs. The batch thus grows with the load,
and the cost of a sync is shared by all that arrived during the one before.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import final

from penstock.engine.effects import Commit
from penstock.errors import StoreFailed
from penstock.store.api import Store

Done = Callable[[Commit, StoreFailed | None], None]
"""Called on the event loop when a commit is durable, or has failed."""


@final
class Committer:
    """Writes commits for one event loop."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop, done: Done) -> None:
        self._store = store
        self._loop = loop
        self._done = done
        self._commits: SimpleQueue[Commit | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
        self._thread.start()

    def submit(self, commit: Commit) -> None:
        """Write ``commit`` after those submitted before."""
        self._commits.put(commit)

    def stop(self) -> None:
        """Write what was submitted and end the thread."""
        self._commits.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            commit = self._commits.get()
            if commit is None:
                return
            failure: StoreFailed | None = None
            try:
                self._store.commit(commit)
            except StoreFailed as error:
                failure = error
            except Exception as error:  # whatever went wrong, nothing may be acknowledged
                failure = StoreFailed(f"the commit failed: {error!r}")
            self._loop.call_soon_threadsafe(self._done, commit, failure)
