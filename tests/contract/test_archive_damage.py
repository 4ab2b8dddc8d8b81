"""Damage in archives and beside them: it is told, given up by name, and never passed over."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from penstock.config.stream import StreamDefinition
from penstock.engine.batch.commit import Commit
from penstock.engine.values.message import Message
from penstock.errors import OffsetOutOfRange, StoreCorrupt, StoreError, StoreFormatError
from penstock.store import archiving
from penstock.store.archive import ARCHIVE, decode_archive, encode_archive
from penstock.store.archive_removal import forget
from penstock.store.chunk import decode_key, encode_key
from penstock.store.compaction import compact
from penstock.store.database import open_database
from penstock.store.examination import examine
from penstock.store.repair import repair
from penstock.store.secondary import Extent, LogFollower
from penstock.store.watermark import read_watermark, write_watermark
from tests.contract.archived import (
    ALARMS,
    ALL,
    SECOND_US,
    START_US,
    Writer,
    offsets,
    publish_mixed,
    writing,
)


@pytest.fixture
def several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store whose archive has pieces of 0 to 3, 3 to 6, ... 12 to 15, and more in the log."""
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 1)
    with writing(tmp_path / "data") as writer:
        publish_mixed(writer, 10)
        for begin in range(3, 18, 3):
            writer.leave(begin)
    return tmp_path / "data"


def change(data_dir: Path, base: int, value: bytes | None) -> None:
    """Replace a piece, or remove it."""
    database = open_database(data_dir)
    key = encode_key(1) + encode_key(base)
    assert database.families["archive"].get(key) is not None
    if value is None:
        database.families["archive"].delete(key)
    else:
        database.families["archive"][key] = value
    database.close()


@pytest.mark.parametrize(
    ("base", "value", "why"),
    [
        (6, None, "there is no piece with them"),
        (6, b"x", "has 1 bytes only"),
        (6, encode_key(9) + encode_key(1) + b"nonsense", "cannot be read"),
        (0, None, "there is no piece with them"),
        (12, None, "there is no piece with them"),
    ],
)
def test_a_lost_piece_is_told_and_never_passed_over(
    several: Path, base: int, value: bytes | None, why: str
) -> None:
    change(several, base, value)
    follower = LogFollower(several)
    follower.extent(ALARMS)
    with pytest.raises(StoreError, match=f"from offset {base} on is missing|a piece of an archive"):
        offsets(follower, ALARMS, 0, 30)
    [problem] = examine(several).problems
    assert problem.startswith(f"what the stream alarms keeps of the offsets {base} to {base + 2}:")
    assert why in problem


def test_a_repair_keeps_the_other_pieces_and_names_the_hole(several: Path) -> None:
    change(several, 6, None)
    repaired = repair(several)
    assert repaired.is_new_epoch
    assert repaired.examination is not None
    assert repaired.examination.lost_archive_ranges == [(6, 9)]
    assert examine(several).problems == []
    follower = LogFollower(several)
    assert follower.extent(ALARMS).given_up == ((6, 9),)
    assert follower.extent(ALL).given_up == ()
    assert offsets(follower, ALARMS, 0, 6) == [1, 4]
    assert offsets(follower, ALARMS, 9, 30) == [10, 13, 16, 19, 22, 25, 28]
    with pytest.raises(OffsetOutOfRange, match="offsets 6 to 8 are lost"):
        offsets(follower, ALARMS, 0, 30)
    with writing(several) as writer:
        writer.leave(18)
    assert offsets(LogFollower(several), ALARMS, 9, 30) == [10, 13, 16, 19, 22, 25, 28]


def test_holes_of_the_log_go_with_what_is_kept(several: Path) -> None:
    database = open_database(several)
    database.families["log"].delete(encode_key(18))
    database.close()
    repair(several)
    with writing(several) as writer:
        writer.leave(27)
    follower = LogFollower(several)
    assert follower.extent(ALARMS).given_up == ((18, 21),)
    assert offsets(follower, ALARMS, 0, 18) == [1, 4, 7, 10, 13, 16]
    repair(several, is_dry_run=True)
    assert examine(several).problems == []


def test_archives_without_their_description_are_not_passed_over(several: Path) -> None:
    database = open_database(several)
    database.families["meta"].delete(ARCHIVE + encode_key(1))
    database.close()
    problems = examine(several).problems
    assert problems == ["messages in an archive (1) that belongs to no stream"]


def test_an_archive_that_no_stream_reads_can_be_removed(several: Path) -> None:
    with pytest.raises(StoreError, match="is in use"):
        forget(several, "alarms")
    with pytest.raises(StoreError, match="there are archives of: alarms"):
        forget(several, "alarm")
    with writing(several, ALL):
        pass
    [archive] = forget(several, "alarms")
    assert archive.messages == 5
    assert examine(several).archives == []
    database = open_database(several)
    assert list(database.items("archive")) == []
    database.close()


# -- damage beside the archive ---------------------------------------------------------------


def lose_chunk(data_dir: Path, base: int) -> bytes:
    """Remove a chunk of the log as damage does; what it was."""
    database = open_database(data_dir)
    log = database.families["log"]
    chunk: bytes | None = log.get(encode_key(base))
    assert chunk is not None
    log.delete(encode_key(base))
    database.close()
    return chunk


def set_record(data_dir: Path, **changes: object) -> None:
    """Change what is known of the archive, as damage does that brings an older value back."""
    database = open_database(data_dir)
    key = ARCHIVE + encode_key(1)
    value: bytes | None = database.families["meta"].get(key)
    assert value is not None
    kept = decode_archive(value)
    database.families["meta"][key] = encode_archive(structs.replace(kept, **changes))
    database.close()


def test_a_hole_in_the_log_is_not_papered_over(
    several: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody has repaired it when the log lets go of it."""
    lose_chunk(several, 18)
    with writing(several) as writer:
        assert writer.leave(24) == 24
    assert "the log has lost the offsets 18 to 20" in caplog.text
    follower = LogFollower(several)
    assert follower.extent(ALARMS).given_up == ((18, 21),)
    with pytest.raises(OffsetOutOfRange, match="offsets 18 to 20 are lost"):
        offsets(follower, ALARMS, 0, 30)
    assert offsets(follower, ALARMS, 0, 18) == [1, 4, 7, 10, 13, 16]
    assert offsets(follower, ALARMS, 21, 30) == [22, 25, 28]


@pytest.mark.parametrize("is_repaired", [True, False])
def test_the_first_chunk_of_the_log_is_lost(several: Path, is_repaired: bool) -> None:
    lose_chunk(several, 15)
    problems = examine(several).problems
    assert any("offsets 15 to 17" in problem for problem in problems)
    if is_repaired:
        repair(several)
    with writing(several) as writer:
        writer.leave(24)
    follower = LogFollower(several)
    assert follower.extent(ALARMS).earliest == 0
    assert follower.extent(ALARMS).given_up == ((15, 18),)
    assert offsets(follower, ALARMS, 0, 15) == [1, 4, 7, 10, 13]
    assert offsets(follower, ALARMS, 18, 30) == [19, 22, 25, 28]
    assert examine(several).problems == []


def bring_back(data_dir: Path, base: int, chunk: bytes) -> None:
    """Put a chunk into the log again, as damage does that takes back its removal."""
    database = open_database(data_dir)
    database.families["log"][encode_key(base)] = chunk
    database.close()


@pytest.fixture
def chunks(several: Path, tmp_path: Path) -> dict[int, bytes]:
    """Those of ``several`` as they were in the log, by offset."""
    with writing(tmp_path / "before") as writer:
        publish_mixed(writer, 10)
        items = list(writer.store._database.items("log"))
    assert several.exists()
    return {decode_key(key): value for key, value in items}


def test_messages_that_had_left_the_log_are_there_again(
    several: Path, chunks: dict[int, bytes]
) -> None:
    """As where the newest table of the log is lost, with what it said was removed."""
    bring_back(several, 3, chunks[3])
    with pytest.raises(
        StoreCorrupt, match="moved to archives are in its log again, offsets 3 to 14"
    ):
        Writer(several)
    assert examine(several).problems == [
        "messages that had moved from the log to archives are in the log again: offsets 3 to 5"
    ]
    repaired = repair(several)
    assert not repaired.is_new_epoch
    with writing(several) as writer:
        writer.leave(18)
    follower = LogFollower(several)
    assert follower.extent().earliest == 18
    assert follower.extent(ALARMS) == Extent(follower.extent().epoch, 0, 30)
    assert offsets(follower, ALARMS, 0, 30) == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]
    assert examine(several).problems == []


@pytest.mark.parametrize("is_alarm", [True, False])
def test_a_chunk_that_is_there_again_may_be_all_there_is(
    several: Path, chunks: dict[int, bytes], is_alarm: bool
) -> None:
    """Its move was one write, and that is what was lost."""
    change(several, 6, None)
    chunk = chunks[6]
    if not is_alarm:
        chunk = chunk.replace(b"plant/2/alarm", b"plant/2/speed")
    bring_back(several, 6, chunk)
    repaired = repair(several)
    assert not repaired.is_new_epoch
    follower = LogFollower(several)
    found = offsets(follower, ALARMS, 0, 30)
    assert found == [n for n in [1, 4, 7, 10, 13, 16, 19, 22, 25, 28] if is_alarm or n != 7]
    assert follower.extent(ALARMS).given_up == ()
    assert examine(several).problems == []


def test_a_closed_archive_is_not_taken_up_for_other_offsets(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with writing(data_dir) as writer:
        publish_mixed(writer, 10)
        writer.leave(15)
        writer.reopen(ALL)
    database = open_database(data_dir)
    database.families["log"].delete_range(encode_key(0), encode_key(2**40))
    database.close()
    repair(data_dir)
    with writing(data_dir, ALL) as writer:
        begin = writer.end
        publish_mixed(writer, 10)
        writer.leave(begin + 15)
        writer.reopen(ALL, ALARMS)
        assert LogFollower(data_dir).extent(ALARMS).earliest == begin + 15


def test_an_older_description_of_an_archive_is_completed_from_its_pieces(several: Path) -> None:
    set_record(several, covered=6, end=6, messages=2)
    assert examine(several).problems != []
    repair(several)
    assert examine(several).problems == []
    with writing(several) as writer:
        writer.leave(18)
    follower = LogFollower(several)
    assert follower.extent(ALARMS).given_up == ()
    assert offsets(follower, ALARMS, 0, 30) == [1, 4, 7, 10, 13, 16, 19, 22, 25, 28]


def test_an_older_description_and_a_lost_piece(several: Path) -> None:
    set_record(several, covered=6, end=6, messages=2)
    change(several, 6, None)
    repair(several)
    assert examine(several).problems == []
    with writing(several) as writer:
        writer.leave(21)
    follower = LogFollower(several)
    assert follower.extent(ALARMS).given_up == ((6, 9),)
    assert offsets(follower, ALARMS, 9, 30) == [10, 13, 16, 19, 22, 25, 28]


def test_archives_of_a_later_penstock_are_refused_and_left_alone(several: Path) -> None:
    set_record(several, layout=2)
    for look in (Writer, examine, repair):
        with pytest.raises(StoreFormatError, match="use the version that wrote it"):
            look(several)


def test_a_lost_last_piece_stays_lost(several: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 2**30)
    change(several, 12, None)
    with writing(several) as writer:
        writer.leave(18)
    with pytest.raises(StoreError, match="from offset 12 on is missing"):
        offsets(LogFollower(several), ALARMS, 0, 30)
    assert any("12 to 14" in problem for problem in examine(several).problems)
    repair(several)
    assert LogFollower(several).extent(ALARMS).given_up == ((12, 15),)


def test_an_unreadable_last_piece_does_not_hold_up_the_log(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 2**30)
    change(several, 12, b"nonsense" * 4)
    with writing(several) as writer:
        assert writer.leave(21) == 21
    assert offsets(LogFollower(several), ALARMS, 15, 30) == [16, 19, 22, 25, 28]


def test_an_unreadable_first_piece_does_not_hold_up_other_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 1)
    plant = StreamDefinition(name="plant", topic_filters=("plant/#",), retention_s=1000)
    with writing(tmp_path, ALARMS, plant) as writer:
        publish_mixed(writer, 10)
        writer.leave(15)
    change(tmp_path, 0, b"x")
    with writing(tmp_path, ALARMS, plant) as writer:
        with pytest.raises(StoreError):
            writer.store.trim_archives(START_US * 2)
        assert LogFollower(tmp_path).extent(plant).earliest == 15


def test_offsets_that_the_log_gives_again_are_not_read_in_an_archive(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with writing(data_dir) as writer:
        publish_mixed(writer, 10)
        writer.leave(15)
    database = open_database(data_dir)
    database.families["log"].delete_range(encode_key(0), encode_key(2**40))
    database.close()
    repair(data_dir)
    with writing(data_dir) as writer:
        begin = writer.end
        alarms = publish_mixed(writer, 10)
        writer.leave(begin + 15)
    with writing(data_dir) as writer:
        follower = LogFollower(data_dir)
        assert follower.extent(ALARMS).earliest == begin
        assert offsets(follower, ALARMS, begin, writer.end) == alarms


def test_an_old_watermark_does_not_give_up_what_is_kept(several: Path) -> None:
    """After a power cut it may not say yet where the log begins."""
    said = read_watermark(several)
    assert said is not None
    write_watermark(several, replace(said, begin=0))
    lose_chunk(several, 21)
    found = examine(several)
    assert found.lost_ranges == [(21, 24)]
    repair(several)
    assert LogFollower(several).extent(ALARMS).given_up == ((21, 24),)


def test_a_description_that_cannot_be_read(several: Path) -> None:
    database = open_database(several)
    database.families["meta"][ARCHIVE + encode_key(1)] = b"nonsense"
    database.close()
    with pytest.raises(StoreCorrupt, match="a value in it cannot be understood"):
        Writer(several)
    problems = examine(several).problems
    assert any("cannot be understood" in problem for problem in problems)
    repaired = repair(several)
    assert repaired.is_new_epoch
    assert repaired.examination is not None
    assert repaired.examination.lost_archive_ranges == [(0, 15)]
    [kept] = examine(several).archives
    assert (kept.stream, kept.messages, kept.is_retired) == ("archive-1", 5, True)
    with writing(several) as writer:
        writer.leave(18)
    follower = LogFollower(several)
    assert follower.extent(ALARMS).earliest == 15
    assert offsets(follower, ALARMS, 15, 30) == [16, 19, 22, 25, 28]


def test_damaged_blocks_are_told_also_of_what_is_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next compaction would come to them."""
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 1)
    data_dir = tmp_path / "data"
    draw = random.Random(1)
    with writing(data_dir) as writer:
        for number in range(20):
            commit = Commit(writer.end)
            message = Message("plant/1/alarm", draw.randbytes(6000))
            message.received_at_us = START_US + writer.end * SECOND_US
            message.offset = writer.end
            commit.messages.append(message)
            writer.end += 1
            writer.store.commit(commit)
            writer.leave(number)
        database = writer.store._database
        database.families["archive"].flush()
        [name] = [
            str(entry["name"]).lstrip("/")
            for entry in database.rocks.live_files()
            if entry["start_key"].startswith(encode_key(1))
        ]
        writer.store.trim_archives(START_US + (1000 + 10) * SECOND_US)
        database.families["archive"].flush()
    table = data_dir / "store" / name
    data = bytearray(table.read_bytes())
    data[100] ^= 0xFF
    table.write_bytes(data)
    assert any("cannot be read" in problem for problem in examine(data_dir).problems)
    assert repair(data_dir).examination is not None
    compact(data_dir)
    assert examine(data_dir).problems == []
