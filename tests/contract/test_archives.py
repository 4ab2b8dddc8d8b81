"""What a stream keeps longer than the log: nothing of it is missing, at whatever moment."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config.stream import StreamDefinition
from penstock.errors import OffsetOutOfRange
from penstock.store import archiving
from penstock.store.archive import ARCHIVE, decode_piece
from penstock.store.chunk import decode_key
from penstock.store.examination import examine
from penstock.store.secondary import LogFollower
from tests.contract.archived import (
    ALARMS,
    ALL,
    SECOND_US,
    START_US,
    Writer,
    check_archives,
    offsets,
    publish_mixed,
    writing,
)
from tests.support.budget import budget
from tests.support.crash_image import copy_running


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    with writing(tmp_path / "data") as made:
        yield made
        if not made._is_closed:
            check_archives(made.store)


def test_a_stream_goes_on_where_the_log_has_let_go(writer: Writer) -> None:
    alarms = publish_mixed(writer, 10)
    assert writer.leave(15) == 15
    follower = LogFollower(writer.data_dir)
    assert follower.extent().earliest == 15
    assert follower.extent(ALL).earliest == 15
    assert follower.extent(ALARMS).earliest == 0
    assert offsets(follower, ALARMS, 0, 30) == alarms
    assert offsets(follower, ALARMS, 4, 26) == alarms[1:9]
    assert offsets(follower, ALARMS, 5, 7) == []
    with pytest.raises(OffsetOutOfRange, match="retention has removed"):
        offsets(follower, ALL, 14, 30)


def test_an_internal_message_is_not_kept(writer: Writer) -> None:
    writer.publish("plant/1/alarm", internal=True)
    writer.publish("plant/1/alarm")
    writer.publish("plant/1/alarm")
    writer.leave(2)
    assert offsets(LogFollower(writer.data_dir), ALARMS, 0, 3) == [1, 2]


def test_a_span_without_messages_is_covered_too(writer: Writer) -> None:
    for _ in range(5):
        writer.publish("plant/1/speed")
    writer.publish("plant/1/alarm")
    writer.publish("plant/1/speed")
    follower = LogFollower(writer.data_dir)
    for begin in range(1, 7):
        assert writer.leave(begin) == begin
        assert offsets(follower, ALARMS, 0, follower.extent(ALARMS).end) == [5]


def test_small_pieces_grow_and_large_ones_do_not(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pieces() -> int:
        return sum(1 for _ in writer.store._database.items("archive"))

    alarms = publish_mixed(writer, 10)
    for begin in range(3, 18, 3):
        writer.leave(begin)
    assert pieces() == 1
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 1)
    writer.leave(21)
    writer.leave(24)
    assert pieces() == 3
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 2**30)
    writer.wait(3600)
    alarms += publish_mixed(writer, 1)
    writer.leave(27)
    assert pieces() == 3
    writer.publish("plant/1/speed")
    writer.leave(33)
    assert pieces() == 4, "each within an hour"
    assert offsets(LogFollower(writer.data_dir), ALARMS, 0, 34) == alarms


def test_pieces_are_within_an_hour(writer: Writer) -> None:
    alarms = []
    for _ in range(5):
        alarms += publish_mixed(writer, 2)
        writer.wait(1800)
    writer.publish("plant/1/speed")
    writer.leave(30)
    pieces = [decode_piece(key, value) for key, value in writer.store._database.items("archive")]
    assert [piece.batch.num_rows for piece in pieces] in ([4, 4, 2], [2, 4, 4])
    assert pieces[-1].end == 30
    follower = LogFollower(writer.data_dir)
    assert offsets(follower, ALARMS, 0, 31) == alarms
    writer.store.trim_archives(pieces[0].newest_us + 1001 * SECOND_US)
    writer.reopen()
    assert LogFollower(writer.data_dir).extent(ALARMS).earliest == pieces[1].base


def test_a_clock_that_runs_backwards_is_no_matter(writer: Writer) -> None:
    alarms = publish_mixed(writer, 2)
    writer.wait(-7200)
    alarms += publish_mixed(writer, 2)
    writer.wait(10_800)
    alarms += publish_mixed(writer, 2)
    for begin in (3, 6, 15):
        writer.leave(begin)
    assert offsets(LogFollower(writer.data_dir), ALARMS, 0, 18) == alarms


def test_much_at_once_leaves_in_several_writes(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archiving, "PIECE_BYTES", 100)
    monkeypatch.setattr(archiving, "_CHUNKS_AT_ONCE", 2)
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 1)
    alarms = publish_mixed(writer, 20)
    assert writer.leave(57) == 57
    assert sum(1 for _ in writer.store._database.items("archive")) > 5
    assert offsets(LogFollower(writer.data_dir), ALARMS, 0, 60) == alarms


def test_the_archive_is_there_after_a_restart(writer: Writer) -> None:
    alarms = publish_mixed(writer, 4)
    writer.leave(6)
    writer.reopen()
    alarms += publish_mixed(writer, 4)
    writer.leave(18)
    writer.reopen()
    assert offsets(LogFollower(writer.data_dir), ALARMS, 0, 24) == alarms


def test_an_archive_is_trimmed_by_age(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 1)
    alarms = publish_mixed(writer, 10)
    for begin in range(3, 30, 3):
        writer.leave(begin)
    follower = LogFollower(writer.data_dir)
    writer.store.trim_archives(START_US + (1000 + 10) * SECOND_US)  # those at 1, 4 and 7 are older
    writer.reopen()
    assert follower.extent(ALARMS).earliest == 9
    assert offsets(follower, ALARMS, 9, 30) == alarms[3:]
    with pytest.raises(OffsetOutOfRange):
        offsets(follower, ALARMS, 8, 30)
    writer.store.trim_archives(START_US * 2)
    writer.reopen()
    assert LogFollower(writer.data_dir).extent(ALARMS).earliest == 27


def test_an_archive_is_trimmed_by_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", 1)
    limited = StreamDefinition(name="alarms", topic_filters=("#",), retention_bytes_max=5000)
    with writing(tmp_path, limited) as writer:
        for _ in range(20):
            writer.publish("plant/1/alarm")
            writer.leave(writer.end - 1)
        writer.store.trim_archives(START_US)
        sizes = [len(value) for _, value in writer.store._database.items("archive")]
        assert 5000 - max(sizes) < sum(sizes) <= 5000
        follower = LogFollower(tmp_path)
        begin = follower.extent(limited).earliest
        assert offsets(follower, limited, begin, 20) == list(range(begin, 20))
        assert begin == 19 - len(sizes)


def test_with_other_filters_a_stream_begins_with_the_log(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    publish_mixed(writer, 4)
    writer.leave(6)
    wider = StreamDefinition(name="alarms", topic_filters=("plant/#",), retention_s=1000)
    writer.reopen(ALL, wider)
    assert "penstock store forget alarms" in caplog.text
    writer.leave(9)
    follower = LogFollower(writer.data_dir)
    assert follower.extent(wider).earliest == 6
    assert offsets(follower, wider, 6, 12) == list(range(6, 12))


def test_messages_that_left_the_log_meanwhile_are_not_passed_over(writer: Writer) -> None:
    publish_mixed(writer, 6)
    writer.leave(6)
    writer.reopen(ALL)
    writer.leave(9)
    writer.reopen(ALL, ALARMS)
    writer.leave(12)
    follower = LogFollower(writer.data_dir)
    assert follower.extent(ALARMS).earliest == 9
    assert offsets(follower, ALARMS, 9, 18) == [10, 13, 16]


def test_an_archive_is_taken_up_again_where_nothing_was_missed(writer: Writer) -> None:
    alarms = publish_mixed(writer, 4)
    writer.leave(6)
    writer.reopen(ALL)
    writer.reopen(ALL, ALARMS)
    writer.leave(9)
    assert offsets(LogFollower(writer.data_dir), ALARMS, 0, 12) == alarms


def test_two_streams_keep_what_both_have(tmp_path: Path) -> None:
    plant = StreamDefinition(name="plant", topic_filters=("plant/2/#",), retention_s=0)
    with writing(tmp_path, ALARMS, plant) as writer:
        alarms = publish_mixed(writer, 4)
        writer.leave(9)
        follower = LogFollower(tmp_path)
        assert offsets(follower, ALARMS, 0, 12) == alarms
        assert offsets(follower, plant, 0, 12) == alarms
        writer.store.trim_archives(START_US * 2)
        assert LogFollower(tmp_path).extent(plant).earliest == 0, "it has no limit"


def test_an_examination_reads_it(writer: Writer) -> None:
    publish_mixed(writer, 10)
    writer.leave(15)
    writer.close()
    found = examine(writer.data_dir)
    assert found.problems == []
    assert [(kept.stream, kept.begin, kept.end, kept.messages) for kept in found.archives] == [
        ("alarms", 0, 15, 5)
    ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.booleans(), min_size=1, max_size=5)),
        st.tuples(st.just("leave"), st.integers(0, 40)),
        st.tuples(st.just("trim"), st.integers(0, 40)),
        st.tuples(st.just("restart"), st.none()),
        st.tuples(st.just("crash"), st.none()),
        st.tuples(st.just("look"), st.none()),
    ),
    max_size=30,
)


@given(steps=STEPS, small=st.sampled_from([1, 700, 2**30]))
@settings(max_examples=budget(40), deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_of_a_stream_is_missing_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]], small: int
) -> None:
    """What a follower that stays sees, and one that comes new, is what was published."""
    place = tmp_path_factory.mktemp("archive")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(archiving, "_SMALL_PIECE_BYTES", small)
    alarms: list[int] = []
    trimmed_to = 0
    writer = Writer(place / "0")
    follower = LogFollower(writer.data_dir)
    try:
        for number, (step, what) in enumerate(steps, 1):
            if step == "publish":
                assert isinstance(what, list)
                base = writer.end
                alarms += [base + n for n, is_alarm in enumerate(what) if is_alarm]
                writer.publish(*("plant/1/alarm" if each else "plant/1/speed" for each in what))
            elif step == "leave":
                assert isinstance(what, int)
                writer.leave(what)
            elif step == "trim":
                assert isinstance(what, int)
                writer.store.trim_archives(START_US + (1000 + what) * SECOND_US)
                trimmed_to = max(trimmed_to, what)
            elif step == "restart":
                writer.reopen()
            elif step == "crash":
                image = place / str(number)
                copy_running(writer.data_dir, image)
                writer.close()
                writer.data_dir = image
                writer._open()
                follower = LogFollower(image)
            if step == "look":
                follower.extent(ALARMS)
            check_archives(writer.store)
        follower._caught_up_at = 0.0  # as if a second had passed
        for reader in (follower, LogFollower(writer.data_dir)):
            extent = reader.extent(ALARMS)
            assert extent.end == writer.end
            assert not [n for n in alarms if trimmed_to <= n < extent.earliest]
            expected = [offset for offset in alarms if offset >= extent.earliest]
            assert offsets(reader, ALARMS, extent.earliest, extent.end) == expected
        writer.close()
        assert examine(writer.data_dir).problems == []
    finally:
        monkeypatch.undo()
        writer.close()
        shutil.rmtree(place)


def test_archives_with_nothing_in_them_leave_nothing(writer: Writer) -> None:
    for number in range(3):
        other = StreamDefinition(name=f"s{number}", topic_filters=("none/#",), retention_s=1)
        writer.reopen(ALL, other)
    writer.reopen(ALL)
    assert list(writer.store._database.items("meta", ARCHIVE)) == []
    writer.reopen(ALL, ALARMS)
    [(key, _)] = writer.store._database.items("meta", ARCHIVE)
    assert decode_key(key[-8:]) == 5, "no number is given twice"
