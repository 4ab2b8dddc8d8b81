"""A damaged block of the log: who needs none of it is not disturbed, others learn where it is.

The remedies in the messages are executed here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.errors import OffsetOutOfRange
from penstock.store.database import STORE_DIRECTORY
from penstock.store.examination import examine
from penstock.store.log_damage import LogDamaged
from penstock.store.repair import repair
from penstock.store.secondary import LogFollower
from tests.contract.test_examination import END, flip, with_incompressible_chunks
from tests.support.deadline import DEADLINE_S
from tests.support.failing_disk import READS, failing_disk


def all_offsets(follower: LogFollower, spans: list[tuple[int, int]]) -> list[int]:
    return [
        offset
        for begin, end in spans
        for rows in follower.rows(begin, end)
        for offset in rows.offsets.to_pylist()
    ]


@pytest.fixture(params=[(0.5,), (0.02,), (0.2, 0.7), (0.97,)])
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[LogFollower, list[LogDamaged]]:
    """A log with damaged blocks, and the error of each that a reader of all finds."""
    with_incompressible_chunks(tmp_path)
    flip(tmp_path, *request.param)
    follower = LogFollower(tmp_path)
    found: list[LogDamaged] = []
    position, end = 0, follower.extent().end
    while position < end:
        assert not found or found[-1].end == position
        try:
            for rows in follower.rows(position, end):
                position = rows.end
        except LogDamaged as damage:
            found.append(damage)
            position = damage.end
    assert follower.extent().end == END
    assert len(found) == len(request.param)
    return follower, found


def test_the_error_names_the_offsets_and_all_others_are_read(
    damaged: tuple[LogFollower, list[LogDamaged]],
) -> None:
    follower, found = damaged
    hidden = {offset for one in found for offset in range(one.begin, one.end)}
    assert 0 < len(hidden) < END / 2
    for one in found:
        assert f"the offsets {one.begin} to {one.end - 1} cannot be read" in str(one)
    assert follower.extent().damaged == tuple((one.begin, one.end) for one in found)
    edges = [0, *(edge for one in found for edge in (one.begin, one.end)), END]
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    assert all_offsets(follower, spans) == [n for n in range(END) if n not in hidden]


def test_the_offset_at_which_a_reader_begins_changes_nothing(
    damaged: tuple[LogFollower, list[LogDamaged]],
) -> None:
    _, found = damaged
    other = LogFollower(damaged[0].data_dir)
    for one in found:
        for start in range(one.begin, one.end, 3):
            with pytest.raises(LogDamaged) as caught:
                next(other.rows(start, END))
            assert (caught.value.begin, caught.value.end) == (one.begin, one.end)
    assert other.extent().damaged == tuple((one.begin, one.end) for one in found)


def test_each_block_is_reported_once(damaged: tuple[LogFollower, list[LogDamaged]]) -> None:
    _, found = damaged
    told: list[LogDamaged] = []
    other = LogFollower(damaged[0].data_dir, told.append)
    for _ in range(2):
        for one in found:
            with pytest.raises(LogDamaged):
                next(other.rows(one.begin, END))
    assert [(one.begin, one.end) for one in told] == [(one.begin, one.end) for one in found]


def test_the_remedy_gives_these_offsets_up_and_keeps_all_others(
    damaged: tuple[LogFollower, list[LogDamaged]],
) -> None:
    follower, found = damaged
    data_dir = follower.data_dir
    assert f"'penstock store repair --data-dir {data_dir}'" in str(found[0])
    assert examine(data_dir).problems
    repair(data_dir)
    assert examine(data_dir).problems == []
    extent = follower.extent()
    assert extent.damaged == ()
    gone = tuple((one.begin, one.end) for one in found)
    assert extent.given_up == tuple(span for span in gone if span[0] > 0)
    assert extent.earliest == (gone[0][1] if gone[0][0] == 0 else 0)
    with pytest.raises(OffsetOutOfRange):
        for _ in follower.rows(0, END):
            pass


READER = """
import sys
from pathlib import Path
from penstock.store.log_damage import LogDamaged
from penstock.store.secondary import LogFollower

follower = LogFollower(Path(sys.argv[1]))
end = follower.extent().end
print("open", flush=True)
sys.stdin.readline()
try:
    for _ in follower.rows(0, end):
        pass
except LogDamaged as damage:
    print(damage)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_disk_that_fails_is_to_be_looked_at_before_a_repair(tmp_path: Path) -> None:
    """The only remedy was a repair, which gives up what a copy of the disk may still have."""
    with_incompressible_chunks(tmp_path)
    tables = (tmp_path / STORE_DIRECTORY).glob("*.sst")
    table = max(tables, key=lambda one: one.stat().st_size)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    assert reader.stdout.readline() == "open\n"
    with failing_disk(reader.pid, READS, table):
        told, _ = reader.communicate("\n", DEADLINE_S)
    assert "cannot be read: the disk does not return a block of the store" in told
    disk, repair = told.index("look into the kernel's log"), told.index("'penstock store repair")
    assert disk < told.index("copy the data directory to one that works") < repair
