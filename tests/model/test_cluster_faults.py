"""The judges of the cluster can fail: each member with one fault must be found out.

Each fault breaks one rule of ``docs/decisions/cluster.md`` in an otherwise correct member. One that
no seed finds would mean that the model proves nothing about that rule.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from penstock.cluster.beginning import Objection
from penstock.cluster.follower import Follower, Progress
from penstock.cluster.log import AppendRefused, AppendUnknown, LogUnavailable
from penstock.cluster.operations import NotedBatch
from penstock.cluster.record import (
    CLAIM,
    FIRST_PART,
    MIDDLE_PART,
    Position,
    checksum_of,
    decode_record,
    encode_record,
)
from penstock.cluster.writer import Fenced, LogWriter
from penstock.errors import HistoryMismatch
from penstock.store.batch import StoreBatch
from tests.model.cluster_member import Member
from tests.model.memory_rocks import MemoryDatabase
from tests.model.test_cluster_simulation import play

SEEDS: Final = 400
CALL_S: Final = 1.0


class UnfencedWriter(LogWriter):
    """Appends at the end of the log where its place is taken."""

    def _append(self, kind: int, body: bytes) -> None:
        try:
            super()._append(kind, body)
            return
        except Fenced:
            self.fenced_by = ""
        last = self.log.bounds(CALL_S).last
        found = self.log.entry_at(last, CALL_S)
        assert found is not None
        data = encode_record(kind, self.term, self._number, checksum_of(found.data), body)
        try:
            self.log.append(data, last, CALL_S)
        except AppendRefused as error:
            raise LogUnavailable from error
        self.position = Position(last + 1, self.term, self._number, checksum_of(data))
        self.is_in_doubt = False


class PipeliningWriter(LogWriter):
    """Sends the pieces of a commit without waiting for the answer to each."""

    def _append(self, kind: int, body: bytes) -> None:
        if kind not in (FIRST_PART, MIDDLE_PART):
            try:
                super()._append(kind, body)
            except HistoryMismatch as error:  # a piece never came
                self.is_in_doubt = True
                raise AppendUnknown from error
            return
        data = encode_record(kind, self.term, self._number, self.position.checksum, body)
        sequence = self.position.sequence + 1
        try:
            self.log.append(data, sequence - 1, CALL_S)
        except (LogUnavailable, AppendRefused):
            self._pause(CALL_S)
        self.position = Position(sequence, self.term, self._number, checksum_of(data))
        self._number += 1


class HopefulWriter(LogWriter):
    """Takes a record that got no answer for appended."""

    def _append(self, kind: int, body: bytes) -> None:
        former = self.position
        try:
            super()._append(kind, body)
        except LogUnavailable:
            number = self._number - 1
            data = encode_record(kind, self.term, number, former.checksum, body)
            self.position = Position(former.sequence + 1, self.term, number, checksum_of(data))
            self.is_in_doubt = False


class SelfElectedWriter(LogWriter):
    """Takes the silence of the heartbeats for its election, and appends no claim."""

    def claim(self, at: Position, body: bytes, kind: int = CLAIM) -> Position:
        del body, kind
        self.term = at.term + 1
        self.position = at._replace(term=self.term)
        self.is_in_doubt = False
        return self.position


class HastyDatabase(MemoryDatabase):
    """Writes before it appends."""

    def write(self, batch: StoreBatch, sync: bool = True) -> None:
        assert isinstance(batch, NotedBatch)
        if not batch.is_empty():
            self.write_here(batch.rocks, sync=False)
        super().write(batch, sync)


class BlindFollower(Follower):
    """Claims behind the end of the log, whether or not it has read up to there."""

    def _read(self, rank: int) -> bool:
        if self._standby.should_claim(self._view.end, 0):
            return False
        return super()._read(rank)

    def _claim(self, kind: int) -> Progress:
        try:
            last = self._log.bounds(CALL_S).last
            found = self._log.entry_at(last, CALL_S)
        except LogUnavailable:
            return Progress.UNREACHABLE
        if found is not None:
            record = decode_record(found.data)
            self._view.note_appended(Position(last, record.term, record.number, record.checksum))
        return super()._claim(kind)


class ForgetfulFollower(Follower):
    """Takes an empty log for that of a new cluster, whatever the others have."""

    def _object(self) -> Objection | None:
        return None if self._view.end.sequence == 0 else super()._object()


class Unfenced(Member):
    """Believes in itself."""

    writer_class = UnfencedWriter


class Pipelining(Member):
    """Has two appends under way."""

    writer_class = PipeliningWriter


class Hopeful(Member):
    """Acknowledges what may be in the log."""

    writer_class = HopefulWriter


class SelfElected(Member):
    """Appends no claim."""

    writer_class = SelfElectedWriter


class Hasty(Member):
    """Has a view ahead of the log."""

    database_class = HastyDatabase


class Blind(Member):
    """Serves without having read the log to its end."""

    follower_class = BlindFollower


class Forgetful(Member):
    """Begins a new history that nobody decided on."""

    follower_class = ForgetfulFollower


FAULTS: Final[list[type[Member]]] = [
    Unfenced,
    Pipelining,
    Hopeful,
    SelfElected,
    Hasty,
    Blind,
    Forgetful,
]


def first_found(member: type[Member]) -> AssertionError | None:
    """Return the verdict on the first seed that finds something wrong; None if none does."""
    for seed in range(SEEDS):
        try:
            play(seed, member)
        except AssertionError as found:
            return found
    return None


@pytest.mark.parametrize("member", FAULTS)
def test_a_faulty_member_is_found_out(member: type[Member]) -> None:
    found = first_found(member)
    assert found is not None, f"{SEEDS} seeds found nothing wrong with {member.__name__}"
    assert re.search(r"PENSTOCK_SEED=\d+: .", str(found))
