"""Examining a store: what it holds, and whether all of it can be read and fits together.

Every block is read, and so every checksum compared. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.engine.inflight import AWAIT_PUBCOMP
from penstock.engine.queue import PRIORITY_SHIFT
from penstock.engine.records import SessionRecord
from penstock.errors import StoreError
from penstock.store import records
from penstock.store.chunk import decode_key
from penstock.store.database import Database, has_database, open_for_reading, unused
from penstock.store.identity import (
    COMMITS,
    Loss,
    counter,
    created_at_us,
    find_loss,
    read_epoch,
    read_lineage,
)
from penstock.store.log_walk import walk_log
from penstock.store.manifest import read_manifest
from penstock.store.places import no_store
from penstock.store.watermark import read_watermark

PROBLEMS_MAX: Final = 100
"""Problems told one by one; further ones are only counted."""


@dataclass(slots=True)
class Examination:
    """What was found.

    Attributes:
        problems: sentences, none where all is well.
        loss: one of them: what was acknowledged and is not there.
        unreadable: the first of those that a start would fail over, or a reader; else empty.
    """

    epoch: str = ""
    lineage: list[tuple[str, int]] = field(default_factory=list)
    created_at_us: int = 0
    commits: int = 0
    begin: int = 0
    end: int = 0
    messages: int = 0
    chunks: int = 0
    log_size_bytes: int = 0
    sessions: int = 0
    subscriptions: int = 0
    queued: int = 0
    in_flight: int = 0
    retained: int = 0
    wills: int = 0
    loss: Loss | None = None
    unreadable: str = ""
    problems: list[str] = field(default_factory=list)
    problems_untold: int = 0

    def tell(self, problem: str) -> None:
        """Note a problem."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(problem)
        else:
            self.problems_untold += 1

    def tell_unreadable(self, problem: str) -> None:
        """Note that something that is there cannot be read, or a hole between what is."""
        self.unreadable = self.unreadable or problem
        self.tell(problem)


def examine(data_dir: Path) -> Examination:
    """Read all of the store, or of the backup, in ``data_dir``.

    Raises:
        StoreLocked: a broker has it open.
        StoreFormatError: it is of another format.
        StoreError: there is no store, or it cannot even be opened.
    """
    if not has_database(data_dir):
        raise no_store(data_dir)
    with unused(data_dir):
        database = open_for_reading(data_dir)
        try:
            return _examine(database, data_dir)
        finally:
            database.close()


def _examine(database: Database, data_dir: Path) -> Examination:
    found = Examination()
    found.epoch = read_epoch(database) or ""
    found.lineage = read_lineage(database)
    found.commits = counter(database, COMMITS)
    found.created_at_us = created_at_us(database)
    manifest = read_manifest(data_dir)
    claimed = read_watermark(data_dir) if manifest is None else manifest.committed
    try:
        loss = find_loss(database, claimed)
    except StoreError as error:
        found.tell_unreadable(f"it cannot be told where the log ends: {error}")
    else:
        found.loss = loss
        if loss is not None:
            found.tell(f"it has lost {loss}")
    spans = _examine_log(database, 0 if claimed is None else claimed.begin, found)
    sessions = _examine_sessions(database, found)
    _examine_subscriptions(database, sessions, found)
    _examine_queues(database, sessions, spans, found)
    found.retained = _examine_values(
        database, "retained", lambda _, value: records.decode_message(value), found
    )
    found.wills = _examine_values(
        database, "wills", lambda _, value: records.decode_will(value), found
    )
    return found


Spans = list[tuple[int, int]]


def _examine_log(database: Database, begin: int, found: Examination) -> Spans:
    """Read the log; the ranges of offsets that are there."""
    spans: Spans = []
    for piece in walk_log(database, begin):
        if piece.chunk is None:
            last = f" to {piece.end - 1}" if piece.end > piece.begin else " and above"
            found.tell_unreadable(
                f"the messages with the offsets {piece.begin}{last}: {piece.damage}"
            )
            continue
        found.chunks += 1
        found.messages += piece.end - piece.begin
        found.log_size_bytes += len(piece.chunk)
        if spans and spans[-1][1] == piece.begin:
            spans[-1] = (spans[-1][0], piece.end)
        else:
            spans.append((piece.begin, piece.end))
    if spans:
        found.begin, found.end = spans[0][0], spans[-1][1]
    return spans


def _examine_sessions(database: Database, found: Examination) -> dict[int, SessionRecord]:
    sessions: dict[int, SessionRecord] = {}

    def decode(key: bytes, value: bytes) -> None:
        session = records.decode_session(key.decode(), value)
        sessions[session.number] = session

    found.sessions = _examine_values(database, "sessions", decode, found)
    return sessions


def _examine_subscriptions(
    database: Database, sessions: dict[int, SessionRecord], found: Examination
) -> None:
    def decode(key: bytes, value: bytes) -> None:
        number = decode_key(key[:8])
        records.decode_subscription(number, key[8:].decode(), value)
        if number not in sessions:
            found.tell(f"a subscription to {key[8:].decode()} belongs to no session ({number})")

    found.subscriptions = _examine_values(database, "subscriptions", decode, found)


def _examine_queues(
    database: Database, sessions: dict[int, SessionRecord], spans: Spans, found: Examination
) -> None:
    heads: dict[tuple[int, int], int] = {}  # by session number and priority

    def missing(number: int, offset: int, where: str) -> None:
        if not any(begin <= offset < end for begin, end in spans):
            session = sessions.get(number)
            name = f"session {number}" if session is None else repr(session.client_id)
            found.tell(f"{where} of {name} refers to offset {offset}, which is not in the log")

    def decode_progress(key: bytes, value: bytes) -> None:
        number = decode_key(key)
        progress = records.decode_progress(number, value)
        heads[number, 0] = progress.queue_head
        for priority, head, _ in progress.lanes:
            heads[number, priority] = head
        found.in_flight += len(progress.window)
        if number not in sessions:
            found.tell(f"the progress of session {number} belongs to no session")
        for entry in progress.window:
            if entry[1] != AWAIT_PUBCOMP:  # from there on only the packet identifier counts
                missing(number, entry[3], "the in-flight window")
        for _, offset, _ in progress.held:
            missing(number, offset, "what waits for PUBREL")

    def decode_queue(key: bytes, value: bytes) -> None:
        number = decode_key(key[:8])
        for run in records.decode_segment(value):
            head = heads.get((number, run.first >> PRIORITY_SHIFT), 0)
            waiting = run.offsets[max(0, head - run.first) :]  # the others have left the queue
            found.queued += len(waiting)
            if waiting and number not in sessions:
                found.tell(f"{len(waiting)} queued messages belong to no session ({number})")
            for offset in waiting:
                missing(number, offset, "the message queue")

    _examine_values(database, "progress", decode_progress, found)
    _examine_values(database, "queue", decode_queue, found)


def _examine_values(
    database: Database, family: str, decode: Callable[[bytes, bytes], Any], found: Examination
) -> int:
    """Read and decode all of a column family; how many values it has."""
    count = 0
    try:
        for key, value in database.items(family):
            count += 1
            try:
                decode(key, value)
            except (StoreError, msgspec.MsgspecError, ValueError) as error:
                found.tell_unreadable(
                    f"{family}: the value of {key!r} cannot be understood: {error}"
                )
    except StoreError as error:
        found.tell_unreadable(f"{family}: {error}")
    return count
