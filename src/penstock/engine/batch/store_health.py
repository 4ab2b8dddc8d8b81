"""The health of the store: whether it can write, its latest durable commit, and how many bytes may
wait for it.

A commit should be short, because packets that arrive meanwhile wait for it. So the shell limits the
size of a batch (``batch_bytes_max``), and packets are handled of these clients::

      batch below the limit    all clients
      batch above the limit    all but *heavy* ones: with more than ``work_budget.HEAVY_BYTES`` in
                               this batch, or in one of the ``HEAVY_FOR_BATCHES`` before; those of
                               earlier batches come first in the next, so that they take turns
      ``is_full``              no client
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.engine.batch.batch import Batch
from penstock.engine.batch.commit import Commit
from penstock.engine.values.client_record import Run, RunSeries
from penstock.engine.wire.link import Turn

NO_LIMIT_BYTES: Final = 2**60
"""More than there will be. Twice as much is still an integer that compiled code keeps in a word; a
larger one would be an object, and each comparison a call."""


@final
class StoreHealth:
    """The state of the store, as the engine knows it.

    Args:
        batch: the open batch.
        turn: the work of the links, whose unsent bytes count as well.
    """

    def __init__(self, batch: Batch, turn: Turn) -> None:
        self.is_failing = False  # whether the store cannot write now; the shell tries again
        self.failure = ""  # why it cannot write, in one sentence
        self.waits_for_disk = False  # whether a commit takes longer than the turn that seals it
        self.durable_batch = 0  # the number of the latest durable batch
        self.durable_log_end = batch.next_offset  # the log offset after the last durable message
        self.commits: RunSeries | None = None  # when messages became durable; None: not recorded
        self.waiting_bytes_max: i64 = NO_LIMIT_BYTES  # in batch and links; above, no client is read
        self.batch_bytes_max: i64 = NO_LIMIT_BYTES  # in the batch; above, heavy clients wait
        self._batch = batch
        self._turn = turn

    def is_full(self) -> bool:
        """Return whether ``waiting_bytes_max`` bytes or more wait for commits and sockets."""
        return self.waiting_bytes_max <= self._batch.size_bytes + self._turn.unsent_bytes

    def has_room_for_qos0(self) -> bool:
        """Return whether memory has room for more QoS 0 messages while the store cannot write."""
        waiting_bytes = self._batch.size_bytes + self._turn.unsent_bytes
        return waiting_bytes < self.waiting_bytes_max // 2

    def mark_failed(self, why: str) -> None:
        """Note that the store cannot write; ``why`` is one sentence.

        Until it recovers, twice as many bytes may wait, so that a full batch does not stop QoS 0
        messages; those for streams are logged as far as ``has_room_for_qos0`` allows.
        """
        self.failure = why
        if not self.is_failing:
            self.is_failing = True
            self._turn.awaits_no_commit = True
            self.waiting_bytes_max *= 2
            self.batch_bytes_max = NO_LIMIT_BYTES  # nothing is written, whatever the size is
            self._turn.waiting.sealed()

    def mark_recovered(self) -> bool:
        """Note that the store can write again; return whether it could not before."""
        if not self.is_failing:
            return False
        self.is_failing = False
        self._turn.awaits_no_commit = False
        self.failure = ""
        self.waiting_bytes_max //= 2
        return True

    def mark_committed(self, commit: Commit) -> None:
        """Note that ``commit`` and all commits before it are durable."""
        self.durable_batch = commit.number
        if self.commits is not None and commit.next_offset > self.durable_log_end:
            batch = Run()
            batch.add_all(self.durable_log_end, commit.next_offset)
            self.commits.take(batch)
        self.durable_log_end = commit.next_offset
