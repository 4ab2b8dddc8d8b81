"""The model of the disk, by itself: what is synced is certain, and all else is open."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.support.disk_calls import (
    CREATE,
    CUT,
    MAKE_DIRECTORY,
    MAPPED,
    REMOVE,
    RENAME,
    SYNC,
    WRITE,
    DiskCall,
    read_disk_calls,
    was_done,
)
from tests.support.disk_model import Disk, Names, Style
from tests.support.recording import without_the_undone

SEEDS = 300


def call(
    at: int, kind: str, path: str, target: str = "", data: bytes = b"", size: int = -1
) -> DiskCall:
    where = size if kind == CUT else -1
    return DiskCall(at, at, kind, f"/r/{path}", target and f"/r/{target}", where, data)


def disks(
    tmp_path: Path, calls: list[DiskCall], style: Style, certain: Names = Names.POSIX
) -> Iterator[Path]:
    """Everything that may be left after a cut, with repetitions."""
    disk = Disk("/r", certain)
    for one in calls:
        disk.do(one)
    for seed in range(SEEDS):
        disk.cut(Random(seed), style, [], tmp_path / str(seed))
        yield tmp_path / str(seed)


def outcomes(
    tmp_path: Path,
    calls: list[DiskCall],
    style: Style,
    path: str,
    certain: Names = Names.POSIX,
) -> set[bytes | None]:
    """Everything that may be at ``path`` after a cut."""
    return {
        (to / path).read_bytes() if (to / path).exists() else None
        for to in disks(tmp_path, calls, style, certain)
    }


SYNCED = [
    call(1, CREATE, "f"),
    call(2, WRITE, "f", data=b"one"),
    call(3, SYNC, "f"),
    DiskCall(4, 4, SYNC, "/r"),
]


def test_synced_bytes_are_certain(tmp_path: Path) -> None:
    for number, style in enumerate(Style):
        (tmp_path / str(number)).mkdir()
        assert outcomes(tmp_path / str(number), SYNCED, style, "f") == {b"one"}


def test_a_name_is_not_durable_by_its_files_sync(tmp_path: Path) -> None:
    assert outcomes(tmp_path, SYNCED[:3], Style.SCATTERED, "f") == {None, b"one"}


def test_the_names_above_a_file_come_with_it_where_its_own_does(tmp_path: Path) -> None:
    calls = [
        call(1, MAKE_DIRECTORY, "d"),
        call(2, CREATE, "d/f"),
        call(3, WRITE, "d/f", data=b"one"),
        call(4, CREATE, "d/g"),
        call(5, SYNC, "d/f"),
    ]
    for number, path in enumerate(("d/f", "d/g")):
        (tmp_path / str(number)).mkdir()
        found = outcomes(
            tmp_path / str(number), calls, Style.SCATTERED, path, certain=Names.WITH_FILES
        )
        assert found == ({b"one"} if path == "d/f" else {None, b""})


MOVED = [
    *SYNCED,
    call(5, MAKE_DIRECTORY, "d"),
    DiskCall(6, 6, SYNC, "/r"),
    call(7, RENAME, "f", "d/f"),
]


def test_a_file_moved_to_another_directory_is_in_one_of_them(tmp_path: Path) -> None:
    for to in disks(tmp_path, MOVED, Style.SCATTERED):
        assert (to / "f").exists() != (to / "d" / "f").exists()


def test_a_journal_takes_both_sides_of_a_move(tmp_path: Path) -> None:
    calls = [*MOVED, DiskCall(8, 8, SYNC, "/r/d")]
    for number, (certain, is_left_behind) in enumerate(
        ((Names.POSIX, True), (Names.WITH_FILES, False))
    ):
        (tmp_path / str(number)).mkdir()
        for to in disks(tmp_path / str(number), calls, Style.NOTHING, certain):
            assert (to / "d" / "f").read_bytes() == b"one"
            assert (to / "f").exists() == is_left_behind


def test_a_removal_in_a_directory_that_is_seen_to_be_gone_changes_nothing(tmp_path: Path) -> None:
    calls = [*SYNCED, call(5, REMOVE, "d/f")]
    assert outcomes(tmp_path, calls, Style.EVERYTHING, "f") == {b"one"}


def test_a_rename_is_old_or_new(tmp_path: Path) -> None:
    calls = [
        *SYNCED,
        call(5, CREATE, "g"),
        call(6, WRITE, "g", data=b"two"),
        call(7, SYNC, "g"),
        call(8, RENAME, "g", "f"),
    ]
    assert outcomes(tmp_path, calls, Style.SCATTERED, "f") == {b"one", b"two"}


def test_a_rename_may_overtake_the_bytes(tmp_path: Path) -> None:
    calls = [
        *SYNCED,
        call(5, CREATE, "g"),
        call(6, WRITE, "g", data=b"two"),
        call(7, RENAME, "g", "f"),
    ]
    assert b"" in outcomes(tmp_path, calls, Style.SCATTERED, "f")


def test_a_later_write_does_not_come_without_an_earlier_one_to_its_sector(tmp_path: Path) -> None:
    calls = [*SYNCED, call(5, WRITE, "f", data=b"two"), call(6, WRITE, "f", data=b"three")]
    assert outcomes(tmp_path, calls, Style.SCATTERED, "f") == {b"one", b"onetwo", b"onetwothree"}


def test_sectors_survive_apart(tmp_path: Path) -> None:
    calls = [*SYNCED, call(5, WRITE, "f", data=b"x" * 20_000)]
    states = outcomes(tmp_path, calls, Style.SCATTERED, "f")
    assert any(state and b"\0" in state and state.endswith(b"x") for state in states)


def test_truncation_and_removal(tmp_path: Path) -> None:
    calls = [*SYNCED, call(5, CUT, "f", size=1)]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert outcomes(tmp_path / "a", calls, Style.SCATTERED, "f") == {b"one", b"o"}
    calls = [*SYNCED, call(5, REMOVE, "f")]
    assert outcomes(tmp_path / "b", calls, Style.SCATTERED, "f") == {b"one", None}


def test_a_sync_covers_what_was_written_before_it_began(tmp_path: Path) -> None:
    late = DiskCall(4, 7, SYNC, "/r/f")
    calls = [*SYNCED[:1], DiskCall(2, 2, SYNC, "/r"), call(5, WRITE, "f", data=b"two"), late]
    assert outcomes(tmp_path, calls, Style.NOTHING, "f") == {b""}


def test_a_directory_is_as_open_as_a_file(tmp_path: Path) -> None:
    calls = [call(1, MAKE_DIRECTORY, "d"), call(2, CREATE, "d/f"), DiskCall(3, 3, SYNC, "/r/d")]
    assert outcomes(tmp_path, calls, Style.SCATTERED, "d/f") == {None, b""}


def test_a_write_to_a_mapped_page_may_be_announced_and_not_made(tmp_path: Path) -> None:
    """The kill may come between the two, as the last thing of that thread."""
    (tmp_path / "committed").write_bytes(b"\1\0\2\0")
    first = DiskCall(0, 0, MAPPED, "/r/committed", "", 0, b"\3\0")
    last = DiskCall(2, 2, MAPPED, "/r/committed", "", 2, b"\2\0")
    lines = ["7 pwrite64(...)", "8 read(...)", "8 pwrite64(...)"]
    assert without_the_undone([first, last], lines, "/r", tmp_path) == [last]
    lines.append("7 write(...)")  # so it went on, and had made it
    assert without_the_undone([first, last], lines, "/r", tmp_path) == [first, last]


def test_a_write_that_a_kill_cut_short_was_made_or_not(tmp_path: Path) -> None:
    """RocksDB gives a log its place before it writes: zero bytes are behind what was written, and
    may also be its end."""
    (tmp_path / "log").write_bytes(b"one\0two\0" + bytes(9))
    for data, kept in ((b"two\0", True), (b"two", True), (b"one\0", False), (b"three", False)):
        write = DiskCall(1, 5, WRITE, "/r/log", "", -1, data)
        found = without_the_undone([write], ["7 read(...)"] * 5, "/r", tmp_path)
        assert found == ([write] if kept else []), data


def test_a_change_of_names_that_a_kill_cut_short_was_made_or_not(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "there").write_bytes(b"")
    made = [
        DiskCall(1, 5, REMOVE, "/r/d/gone"),
        DiskCall(1, 5, RENAME, "/r/d/gone", "/r/d/there"),
        DiskCall(1, 5, CREATE, "/r/d/there"),
        DiskCall(1, 5, MAKE_DIRECTORY, "/r/d"),
    ]
    not_made = [
        DiskCall(1, 5, REMOVE, "/r/d/there"),
        DiskCall(1, 5, RENAME, "/r/d/there", "/r/d/gone"),
        DiskCall(1, 5, CREATE, "/r/d/d/there"),
        DiskCall(1, 5, MAKE_DIRECTORY, "/r/d/e"),
    ]
    lines = ["7 read(...)"] * 5
    assert without_the_undone(made + not_made, lines, "/r", tmp_path) == made


def test_a_call_without_a_result_is_one_that_the_kill_cut_short() -> None:
    """strace tells its end all the same, when it saw the thread go."""
    lines = [r'7 unlink("\x2f\x72\x2f\x66" <unfinished ...>', "7 <... unlink resumed>)  = ?"]
    assert list(read_disk_calls(lines, "/r", 9)) == [DiskCall(0, 9, REMOVE, "/r/f")]


def test_a_write_to_a_file_opened_to_be_synced_is_synced(tmp_path: Path) -> None:
    lines = [
        r'7 openat(AT_FDCWD</>, "\x2f\x72\x2f\x66", O_WRONLY|O_CREAT|O_SYNC, 0666) = 3</r/f>',
        r'7 write(3</r/f>, "\x6f\x6e\x65", 3) = 3',
        r"8 fsync(4</r>) = 0",
    ]
    calls = read_disk_calls(lines, "/r", 9)
    assert [one.kind for one in calls] == [CREATE, WRITE, SYNC, SYNC]
    assert outcomes(tmp_path, calls, Style.NOTHING, "f") == {b"one"}


def test_a_name_below_an_open_directory_is_found() -> None:
    lines = [r'7 unlinkat(3<\x2f\x72\x2f\x64>, "\x66", 0) = 0']
    assert read_disk_calls(lines, "/r", 9) == [DiskCall(0, 0, REMOVE, "/r/d/f")]


@pytest.mark.parametrize(
    ("left", "is_done"),
    [(b"headnews", True), (b"headold!", False), (b"head", False), (None, False)],
)
def test_a_write_that_a_kill_cut_short_was_done_or_not(
    left: bytes | None, is_done: bool, tmp_path: Path
) -> None:
    """A server may end while another of its threads writes: a whole run failed for it once."""
    if left is not None:
        (tmp_path / "block").write_bytes(left)
    write = DiskCall(1, 2, WRITE, "/disk/block", offset=4, data=b"news")
    appended = write._replace(offset=-2)
    assert was_done(write, "/disk", tmp_path) == is_done
    assert was_done(appended, "/disk", tmp_path) == is_done
