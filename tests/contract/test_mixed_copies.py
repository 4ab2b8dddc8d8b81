"""Files of two copies of a data directory are no store: a part of it does not come back alone.

The log, the archives, sessions and queues, and the positions of sinks and connections are in the
same files. Whichever file of an older copy takes the place of a newer one: the start is refused,
the check finds it, or nothing of what was there is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.errors import StoreError
from penstock.store.archiving import read_archives
from penstock.store.database import STORE_DIRECTORY
from penstock.store.examination import examine
from tests.contract.archived import ALARMS, ALL, Writer, check_archives

TOPICS = ("plant/1/alarm", "plant/1/heat")


def archived(writer: Writer) -> list[tuple[int, int, int]]:
    """The extent of each archive, which must be whole."""
    check_archives(writer.store)
    return [(one.begin, one.end, one.messages) for one in read_archives(writer.store._database)]


def build(directory: Path) -> tuple[Path, Path, tuple[object, object]]:
    """An older copy, the newer data directory, and what that one has."""
    data_dir, copied = directory / "data", directory / "copy"
    writer = Writer(data_dir, ALL, ALARMS)
    for _ in range(5):
        writer.publish(*TOPICS)
    writer.leave(6)
    writer.reopen()
    writer.close()
    shutil.copytree(data_dir, copied)
    writer.reopen()
    for _ in range(5):
        writer.publish(*TOPICS)
    writer.leave(16)
    writer.reopen()  # its write-ahead log is now tables
    found = writer.store.log_extent(), archived(writer)
    writer.close()
    return copied, data_dir, found


@pytest.mark.parametrize("pattern", ["*.sst", "*.log", "MANIFEST-*", "CURRENT", "OPTIONS-*"])
@pytest.mark.parametrize("removes_others", [False, True])
def test_older_files_in_a_newer_directory_hide_nothing(
    tmp_path: Path, pattern: str, removes_others: bool
) -> None:
    copied, data_dir, before = build(tmp_path)
    store = data_dir / STORE_DIRECTORY
    older = sorted((copied / STORE_DIRECTORY).glob(pattern))
    assert older
    if removes_others:
        for path in store.glob(pattern):
            path.unlink()
    for path in older:
        shutil.copy2(path, store / path.name)
    if examine(data_dir).problems:
        return
    writer = Writer(data_dir, ALL, ALARMS)  # a check that finds nothing is no refusal
    try:
        assert (writer.store.log_extent(), archived(writer)) == before
    finally:
        writer.close()


def test_an_older_watermark_hides_nothing_and_a_newer_one_refuses_the_start(tmp_path: Path) -> None:
    copied, data_dir, before = build(tmp_path)
    newer = (data_dir / "committed").read_bytes()
    shutil.copy2(copied / "committed", data_dir / "committed")
    writer = Writer(data_dir, ALL, ALARMS)
    assert (writer.store.log_extent(), archived(writer)) == before
    writer.close()
    (copied / "committed").write_bytes(newer)
    with pytest.raises(StoreError, match=r"less than was acknowledged|restore"):
        Writer(copied, ALL, ALARMS)
