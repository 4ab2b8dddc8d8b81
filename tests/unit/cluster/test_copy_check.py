"""A server's copy of the log is compared with the chain, again and again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.cluster.copy_check import PAUSE_S, CopyCheck
from penstock.cluster.log import Entry
from penstock.cluster.record import Position
from tests.support.memory_log import MemoryCluster, MemoryLog
from tests.unit.cluster.records import Records


class Copy:
    """A log of commits, of which one server's copy is not what it should be."""

    def __init__(self, entries: int = 20) -> None:
        self.records = Records()
        self.records.claim()
        self.records.grow_by(entries - 1)
        self.log = MemoryLog(MemoryCluster())
        self.log.open(1)
        for entry in self.records.entries:
            self.log.append(entry.data, entry.sequence - 1, 1)
        self.copy = list(self.records.entries)
        self.log.read_copy = self._read  # type: ignore[method-assign]
        self.now_s = 0.0
        self.check = CopyCheck(self.log, self.now_s)

    def _read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        del timeout_s
        return [entry for entry in self.copy if entry.sequence >= first][: min(5, count_max)]

    def compared(self, position: Position | None = None) -> str:
        """What a whole comparison finds."""
        for _ in range(20):
            found = self.check.step(position or self.records.position, self.now_s)
            if found:
                return found
        self.now_s += PAUSE_S
        return ""


def test_a_copy_that_is_the_log_is_found_to_be_so_again_and_again() -> None:
    copy = Copy()
    assert [copy.compared() for _ in range(3)] == ["", "", ""]


def test_damage_is_found_though_the_copy_was_whole_before() -> None:
    copy = Copy()
    assert copy.compared() == ""
    del copy.copy[6]
    assert copy.compared() == "entry 7 is missing in its copy"
    assert copy.compared() == "entry 7 is missing in its copy"


def turned(entry: Entry) -> Entry:
    return Entry(entry.sequence, entry.data[:-1] + bytes([entry.data[-1] ^ 1]))


def another_log(entries: int) -> Sequence[Entry]:
    records = Records()
    records.claim(node="z")
    records.grow_by(entries - 1)
    return records.entries


@pytest.mark.parametrize(
    ("sequence", "of", "found"),
    [
        (8, "turned", "entry 8 of its copy is another than was appended"),
        (20, "turned", "entry 20 of its copy is another than was appended"),
        (8, "another", "entry 8 of its copy does not follow the one before"),
        (1, "another", "entry 2 of its copy does not follow the one before"),
    ],
)
def test_an_entry_that_is_another_is_found(sequence: int, of: str, found: str) -> None:
    copy = Copy()
    entry = copy.copy[sequence - 1]
    copy.copy[sequence - 1] = turned(entry) if of == "turned" else another_log(20)[sequence - 1]
    assert copy.compared() == found


def test_a_copy_of_another_log_is_found_at_the_place_of_the_view() -> None:
    copy = Copy()
    copy.copy = list(another_log(20))
    assert copy.compared() == "entry 20 of its copy is not the one that the view has"


def test_a_trimmed_entry_is_not_missing() -> None:
    copy = Copy()
    copy.log.trim(9, 1)
    del copy.copy[:8]
    assert copy.compared() == ""
    del copy.copy[0]
    assert copy.compared() == "entry 9 is missing in its copy"


def test_an_entry_that_the_view_has_not_applied_yet_is_not_compared() -> None:
    copy = Copy()
    copy.copy[15] = turned(copy.copy[15])
    records = Records()
    records.claim()
    records.grow_by(9)
    assert copy.compared(records.position) == ""
