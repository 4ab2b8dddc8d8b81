"""Decided batches of rows in the log: another machine publishes what was decided, and only that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.services import staged_copies
from penstock.services.staged_copies import StagedCopies
from penstock.store.rocks import RocksStore
from penstock.store.staging import STAGED_SCHEMA, StagedBatch, Staging


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    """The store that all machines have a view of."""
    opened = RocksStore(tmp_path / "store")
    yield opened
    opened.close()


def decided(staging: Staging, batch: int, payloads: list[bytes]) -> StagedBatch:
    rows = [
        {"topic": "t", "payload": payload, "qos": 1, "retain": False, "properties": None}
        for payload in payloads
    ]
    table = pa.Table.from_pylist(rows, STAGED_SCHEMA)
    file = staging.stage("s", batch, "run", 0, table)
    return staging.decide("s", batch, staging.propose(StagedBatch("s", batch, "s", (file,))))


def payloads_in(staging: Staging, staged_batch: StagedBatch) -> list[bytes]:
    return [
        row[1] for row in staging.read(staged_batch, staged_batch.files[0], 0, staged_batch.rows)
    ]


def test_another_machine_has_the_files_of_a_batch(
    store: RocksStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_copies, "PIECE_BYTES", 100)  # several pieces
    first, second = Staging(tmp_path / "a"), Staging(tmp_path / "b")
    staged_batch = decided(first, 1, [b"one", b"two"])
    StagedCopies(store, first).replicate(staged_batch)
    StagedCopies(store, first).replicate(staged_batch)  # asked again
    StagedCopies(store, second).restore()
    assert second.decided_batches() == [staged_batch]
    assert payloads_in(second, staged_batch) == [b"one", b"two"]


def test_a_batch_that_only_one_machine_decided_is_undecided_again(
    store: RocksStore, tmp_path: Path
) -> None:
    first, second = Staging(tmp_path / "a"), Staging(tmp_path / "b")
    decided(first, 1, [b"not in the log"])
    other = decided(second, 1, [b"in the log"])
    StagedCopies(store, second).replicate(other)
    StagedCopies(store, first).restore()
    assert first.decided_batches() == [other]
    assert payloads_in(first, other) == [b"in the log"]


def test_a_published_batch_leaves_nothing(store: RocksStore, tmp_path: Path) -> None:
    staging = Staging(tmp_path / "a")
    copies = StagedCopies(store, staging)
    for batch in (1, 11):
        copies.replicate(decided(staging, batch, [b"row"]))
    copies.remove("s", 1)
    names = [name for name, _ in store.read_states("staged-")]
    assert names
    assert all(name.split("/")[2] == "11" for name in names)


def test_files_without_their_batch_are_removed(store: RocksStore, tmp_path: Path) -> None:
    """A primary that is lost on its way to a decision, or behind the end of a batch."""
    staging = Staging(tmp_path / "a")
    copies = StagedCopies(store, staging)
    for batch in (1, 2):
        copies.replicate(decided(staging, batch, [b"row"]))
    store.remove_states("staged-set/s/1/")
    StagedCopies(store, Staging(tmp_path / "b")).restore()
    assert {name.split("/")[2] for name, _ in store.read_states("staged-file/")} == {"2"}
