"""The staging area on a real disk: one decision for ever, and nothing that is not decided."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.errors import StoreError, StoreUnavailable
from penstock.store.staging import STAGED_SCHEMA, StagedBatch, StagedFile, Staging


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path)


def table(*payloads: bytes) -> pa.Table:
    rows = [
        {"topic": "t", "payload": payload, "qos": 1, "retain": False, "properties": None}
        for payload in payloads
    ]
    return pa.Table.from_pylist(rows, STAGED_SCHEMA)


def proposed(staging: Staging, *payloads: bytes, run: str = "run1") -> tuple[str, StagedBatch]:
    files = (staging.stage("s", 3, run, 0, table(*payloads)),)
    staged_batch = StagedBatch("s", 3, "spark", files)
    return staging.propose(staged_batch), staged_batch


def test_staged_rows_are_read_back(staging: Staging) -> None:
    rows = pa.Table.from_pylist(
        [
            {"topic": "a/b", "payload": b"1", "qos": 2, "retain": True, "properties": b"\x01\x01"},
            {"topic": "a", "payload": b"", "qos": 0, "retain": False, "properties": None},
        ],
        STAGED_SCHEMA,
    )
    file = staging.stage("s", 3, "run1", 12, rows)
    staged_batch = staging.decide("s", 3, staging.propose(StagedBatch("s", 3, "spark", (file,))))
    assert staged_batch.rows == 2
    assert staging.read(staged_batch, file, 0, 10) == [
        ("a/b", b"1", 2, True, b"\x01\x01"),
        ("a", b"", 0, False, b""),
    ]
    assert [row[0] for row in staging.read(staged_batch, file, 1, 10)] == ["a"]
    assert [row[0] for row in staging.read(staged_batch, file, 0, 1)] == ["a/b"]


def test_the_first_decision_holds_for_ever(staging: Staging) -> None:
    first, decided = proposed(staging, b"1")
    second, _ = proposed(staging, b"2", run="run2")
    assert staging.decide("s", 3, first) == decided
    assert staging.decide("s", 3, second) == decided
    assert staging.decide("s", 3, "") == decided  # who asks again has none
    assert staging.decided_batches() == [decided]


def test_removed_rows_cannot_be_decided(staging: Staging) -> None:
    proposal, _ = proposed(staging, b"1")
    staging.discard_attempt("s", 3, "run1")
    with pytest.raises(StoreError, match="staged rows of batch 3 of s are not here any more: rem"):
        staging.decide("s", 3, proposal)
    with pytest.raises(StoreError, match="there is no proposal"):
        staging.decide("s", 4, proposal)
    assert staging.decided_batches() == []


def test_an_attempt_is_given_up_alone_and_never_what_is_decided(staging: Staging) -> None:
    _, first = proposed(staging, b"1")
    proposal, second = proposed(staging, b"2", run="run2")
    staging.discard_attempt("s", 3, "run1")
    staging.decide("s", 3, proposal)
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        staging.read(first, first.files[0], 0, 10)
    staging.discard_attempt("s", 3, "run2")
    assert staging.read(second, second.files[0], 0, 10)[0][1] == b"2"


def test_the_time_limit_removes_what_is_not_decided(staging: Staging, tmp_path: Path) -> None:
    staging.stage("other", 0, "run1", 0, table(b"old"))
    proposal, decided = proposed(staging, b"1")
    staging.decide("s", 3, proposal)
    for path in tmp_path.glob("staged/*/*/*"):
        os.utime(path, (1000.0, 1000.0))
    staging.stage("new", 0, "run1", 0, table(b"new"))
    assert staging.remove_expired(2000.0) == 1
    assert sorted(path.name for path in tmp_path.glob("staged/*")) == ["new", "s"]
    assert staging.read(decided, decided.files[0], 0, 10)


def test_a_batch_that_is_published_leaves_nothing(staging: Staging, tmp_path: Path) -> None:
    proposal, _ = proposed(staging, b"1")
    proposed(staging, b"2", run="run2")
    staging.decide("s", 3, proposal)
    assert staging.size_bytes() > 0
    staging.remove_batch("s", 3)
    assert list(tmp_path.glob("staged/*")) == []
    assert staging.size_bytes() == 0


def test_a_directory_that_goes_while_a_file_is_written_is_made_again(
    staging: Staging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker finished the batch that a restarted query just stages again."""
    fsync = os.fsync
    removals = iter((True, False, True))

    def removing(number: int) -> None:
        fsync(number)
        if next(removals, False):
            shutil.rmtree(tmp_path / "staged" / "s", ignore_errors=True)

    monkeypatch.setattr(os, "fsync", removing)
    file = staging.stage("s", 3, "run1", 0, table(b"1"))
    assert (tmp_path / "staged" / "s" / "3" / file.name).stat().st_size == file.size_bytes


@pytest.mark.parametrize("name", ["", "..", "a/b", "-a", "a" * 129, "ä"])
def test_a_name_is_no_way_out_of_the_directory(staging: Staging, name: str) -> None:
    with pytest.raises(StoreError, match="a name must be 1 to 128 letters, digits"):
        staging.stage(name, 0, "run1", 0, table(b"1"))
    with pytest.raises(StoreError, match="a name must be"):
        staging.decide("s", 0, name or "/")
    with pytest.raises(StoreError, match="a batch has a number from 0"):
        staging.stage("s", -1, "run1", 0, table(b"1"))


def test_a_file_that_is_not_what_was_staged_is_refused(staging: Staging, tmp_path: Path) -> None:
    proposal, staged_batch = proposed(staging, b"1")
    path = tmp_path / "staged" / "s" / "3" / staged_batch.files[0].name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(StoreError, match="not what was staged"):
        staging.decide("s", 3, proposal)
    path.write_bytes(b"\xff" * len(whole))
    decided = staging.decide("s", 3, proposal)
    with pytest.raises(StoreUnavailable, match="cannot be read"):
        staging.read(decided, decided.files[0], 0, 10)


def test_a_batch_has_a_largest_number_of_rows(staging: Staging) -> None:
    file = StagedFile("run1-0.arrow", 2**32, 1)
    proposal = staging.propose(StagedBatch("s", 3, "spark", (file,)))
    with pytest.raises(StoreError, match="a batch may have 4294967295 rows"):
        staging.decide("s", 3, proposal)


def test_a_decision_that_cannot_be_read_is_told_and_the_others_go_on(
    staging: Staging, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proposal, decided = proposed(staging, b"1")
    staging.decide("s", 3, proposal)
    broken = tmp_path / "staged" / "a" / "0"
    broken.mkdir(parents=True)
    (broken / "decided").write_bytes(b"{")
    assert staging.decided_batches() == [decided]
    assert "its rows are not published" in caplog.text
