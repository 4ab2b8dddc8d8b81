"""The health of the store: whether it works, its latest durable commit, and how much may wait for
it.

A commit should not take long, because packets that come meanwhile wait for it. So the shell sets
how large a batch may get (``batch_bytes_max``). Packets are handled of::

      batch below this size    all clients
      above                    not those with more than ``work_budget.HEAVY_BYTES`` in the batch, or
                               in one of the ``HEAVY_FOR_BATCHES`` before; the latter come first in
                               the next batch, so that they take turns
      ``is_full``              no client
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.batch import Batch
from penstock.engine.batch.commit import Commit
from penstock.engine.client_record import Run, RunSeries
from penstock.engine.wire.link import Turn

NO_LIMIT_BYTES: Final = 2**62


@final
class StoreHealth:
    """The state of the store, as the engine knows it.

    Args:
        batch: the open batch.
        turn: the links, whose unsent bytes wait as well.
    """

    def __init__(self, batch: Batch, turn: Turn) -> None:
        self.fails = False  # whether it cannot write now; the shell tries again
        self.failure = ""  # the reason, in one sentence
        self.waits_for_disk = False  # whether a commit takes longer than the turn that seals it
        self.durable = 0  # the number of the latest batch that is durable
        self.durable_end = batch.next_offset  # the end of the durable log
        self.commits: RunSeries | None = None  # when messages became durable; None: not recorded
        self.waiting_bytes_max = NO_LIMIT_BYTES  # in batch and links; above, nothing is read
        self.batch_bytes_max = NO_LIMIT_BYTES  # of the batch; above, heavy clients wait
        self._batch = batch
        self._turn = turn

    def is_full(self) -> bool:
        """Return whether ``waiting_bytes_max`` bytes wait for commits and sockets."""
        return self.waiting_bytes_max <= self._batch.size_bytes + self._turn.unsent_bytes

    def has_room_for_qos0(self) -> bool:
        """Return whether memory has room for more QoS 0 messages while the store cannot write."""
        waiting_bytes = self._batch.size_bytes + self._turn.unsent_bytes
        return waiting_bytes < self.waiting_bytes_max // 2

    def failed(self, why: str) -> None:
        """Note that the store cannot write; ``why`` is one sentence.

        Twice as many bytes may wait from now on, so that a full batch does not stop QoS 0 messages;
        those for streams are logged as far as ``has_room_for_qos0`` allows.
        """
        self.failure = why
        if not self.fails:
            self.fails = True
            self.waiting_bytes_max *= 2
            self.batch_bytes_max = NO_LIMIT_BYTES  # it is not about how long a commit takes
            self._turn.batch_sealed()

    def recovered(self) -> bool:
        """Note that the store can write again; return whether it could not before."""
        if not self.fails:
            return False
        self.fails = False
        self.failure = ""
        self.waiting_bytes_max //= 2
        return True

    def committed(self, commit: Commit) -> None:
        """Note that ``commit`` and all commits before it are durable."""
        self.durable = commit.number
        if self.commits is not None and commit.next_offset > self.durable_end:
            batch = Run()
            batch.add_all(self.durable_end, commit.next_offset)
            self.commits.take(batch)
        self.durable_end = commit.next_offset
