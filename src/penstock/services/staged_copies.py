"""Copies of decided batches in the replicated log, so that another primary can publish them.

::

    decided on this machine's disk ─▶ files, piece by piece, then the batch ─▶ published ─▶ removed
                                         through the log                    │
    the next primary: its staging area gets what the log has ◀──────────────╯ this machine is lost

In a cluster a batch counts as decided when its ``StagedBatch`` is in the log, behind its files:
every machine publishes the files in the same order. A batch that a machine has decided and not
written to the log was never published; it is undecided again when the machine is the primary the
next time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, final

import msgspec

from penstock.errors import StoreError
from penstock.store.rocks import RocksStore
from penstock.store.staging import StagedBatch, Staging
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

PIECE_BYTES: Final = 1_048_576
_BATCH: Final = "staged-set/"  # stored: a new name would hide the batches of a former version
_FILE: Final = "staged-file/"

_decode = msgspec.json.Decoder(StagedBatch).decode


@final
class StagedCopies:
    """Replicates decided batches of rows through the store of a cluster's member. Its calls block.

    Args:
        store: the store.
        staging: the staging area of this machine.
    """

    def __init__(self, store: RocksStore, staging: Staging) -> None:
        self._store = store
        self._staging = staging

    def replicate(self, staged_batch: StagedBatch) -> None:
        """Write a batch and its files to the log; the batch is decided when this returns.

        Raises:
            StoreError: its files cannot be read, or the log does not take them.
        """
        if self._store.read_state(_key(_BATCH, staged_batch)) is not None:
            return
        for file in staged_batch.files:
            prefix = f"{_key(_FILE, staged_batch)}{file.name}/"
            for number, piece in enumerate(
                self._staging.read_in_pieces(staged_batch, file, PIECE_BYTES)
            ):
                self._store.write_state(f"{prefix}{number:08d}", piece)
        self._store.write_state(_key(_BATCH, staged_batch), msgspec.json.encode(staged_batch))

    def remove(self, sink: str, batch: int) -> None:
        """Remove a batch that is published from the log.

        Raises:
            StoreUnavailable: the log does not take the removal.
        """
        self._store.remove_states(f"{_BATCH}{sink}/{batch}/")
        self._store.remove_states(f"{_FILE}{sink}/{batch}/")

    def restore(self) -> None:
        """Make the decided batches of the staging area equal to those of the replicated log: forget
        batches that differ from the log's or are not in it, and add the batches that are missing.

        Raises:
            StoreError: a file cannot be read or written.
        """
        replicated = {(one.sink, one.batch): one for one in self._replicated_batches()}
        for local in self._staging.decided_batches():
            if replicated.get((local.sink, local.batch)) != local:
                logger.info(
                    "batch %d of the sink %s was decided here and not written to the log: its"
                    " query stages it again",
                    local.batch,
                    local.sink,
                )
                self._staging.remove_batch(local.sink, local.batch)
        for (sink, batch), staged_batch in replicated.items():
            if not self._staging.is_decided(sink, batch):
                files = [
                    (file.name, self._pieces(staged_batch, file.name))
                    for file in staged_batch.files
                ]
                self._staging.restore(staged_batch, files)
        self._remove_orphans({f"{one.sink}/{one.batch}" for one in replicated.values()})

    def _remove_orphans(self, batches: Collection[str]) -> None:
        """Remove files whose batch is not in the log: a primary failed before it wrote the batch,
        or after it removed the batch.

        Args:
            batches: the batches in the log, as SINK/BATCH.
        """
        found = {name[len(_FILE) :].rsplit("/", 2)[0] for name, _ in self._store.read_states(_FILE)}
        for batch in found - set(batches):
            self._store.remove_states(f"{_FILE}{batch}/")

    def _replicated_batches(self) -> list[StagedBatch]:
        try:
            return [_decode(value) for _, value in self._store.read_states(_BATCH)]
        except msgspec.MsgspecError as error:
            raise StoreError(f"a decided batch of rows cannot be read: {error}") from error

    def _pieces(self, staged_batch: StagedBatch, name: str) -> Iterator[bytes]:
        for _, piece in self._store.read_states(f"{_key(_FILE, staged_batch)}{name}/"):
            yield piece


def _key(kind: str, staged_batch: StagedBatch) -> str:
    return f"{kind}{staged_batch.sink}/{staged_batch.batch}/"
