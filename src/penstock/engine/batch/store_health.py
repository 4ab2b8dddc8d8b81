"""The health of the store: whether it works, how far it came, how much may wait for it.

A commit should not take long, for what comes while it is written waits for it. So the shell says
how large a batch may get (``batch_bytes_max``). Whose packets are handled::

      batch below its size     everybody's
      above                    not of those who put more than ``work_budget.HEAVY_BYTES`` into it,
                               or into one of the ``HEAVY_FOR_BATCHES`` before: these go on in the
                               next one before those, so that they take turns
      ``is_full``              nobody's
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.batch import Batch
from penstock.engine.batch.commit import Commit
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
        self.fails = False  # it cannot write now, and is tried again
        self.failure = ""  # why, in one sentence
        self.waits_for_disk = False  # a commit takes longer than the turn that seals it
        self.durable = 0  # the number of the latest batch that is durable
        self.durable_end = batch.next_offset  # the end of the log then
        self.waiting_bytes_max = NO_LIMIT_BYTES  # in batch and links, above which reading pauses
        self.batch_bytes_max = NO_LIMIT_BYTES  # of the batch; above, who put much into it waits
        self._batch = batch
        self._turn = turn

    def is_full(self) -> bool:
        """Return whether so much waits for commits and sockets that nothing more should be read."""
        return self.waiting_bytes_max <= self._batch.size_bytes + self._turn.unsent_bytes

    def has_room_for_qos0(self) -> bool:
        """Return whether QoS 0 may still be taken in while the store cannot write."""
        waiting_bytes = self._batch.size_bytes + self._turn.unsent_bytes
        return waiting_bytes < self.waiting_bytes_max // 2

    def failed(self, why: str) -> None:
        """Take in only what needs no store, from now on.

        What had filled the open batch must not keep QoS 0 from being read, so twice as much
        may wait; it is filled by QoS 0 for streams, as far as ``has_room_for_qos0``.
        """
        self.failure = why
        if not self.fails:
            self.fails = True
            self.waiting_bytes_max *= 2
            self.batch_bytes_max = NO_LIMIT_BYTES  # it is not about how long a commit takes
            self._turn.batch_sealed()

    def recovered(self) -> bool:
        """Note that the store can write; return whether it could not before."""
        if not self.fails:
            return False
        self.fails = False
        self.failure = ""
        self.waiting_bytes_max //= 2
        return True

    def committed(self, commit: Commit) -> None:
        """Note that ``commit`` is durable, and all before it."""
        self.durable = commit.number
        self.durable_end = commit.next_offset
