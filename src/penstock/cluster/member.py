"""A member of a cluster: its threads, from a standby that follows to a primary that is fenced.

::

      thread      as a standby                                as the primary
      beating     sends and takes heartbeats                  the same
      following   reads the log into the view; claims         ends
      watching                                                looks at the end of the log when
                                                              idle; trims
      syncing     syncs the view each second, in both roles, and says so by the heartbeat

Each thread has an object of the log for itself. What they share is small and read whole: the roles,
the position of the view, what is known of the others.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, final

from penstock.cluster.beats import (
    Beat,
    Heard,
    Members,
    RoleName,
    decode_beat,
    encode_beat,
    trim_before,
)
from penstock.cluster.database import (
    ENTRIES_AT_ONCE,
    READ_S,
    ClusterDatabase,
    ViewOpening,
    refuse_view_ahead,
)
from penstock.cluster.log import (
    Heartbeats,
    LogState,
    LogUnavailable,
    ReplicatedLog,
)
from penstock.cluster.operations import Operation
from penstock.cluster.record import Claim, Position, decode_record, encode_claim
from penstock.cluster.role import Standby
from penstock.cluster.view import LogDamaged, View
from penstock.cluster.writer import Fenced, LogWriter
from penstock.config.cluster import Cluster
from penstock.errors import StoreError
from penstock.store.database import Database, open_database_as
from penstock.store.watermark import Watermark
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, warn_limited
from penstock.version import __version__

logger = get_logger(__name__)

BEATS_A_LEASE: Final = 10
"""Heartbeats in the time of one lease."""

SYNC_S: Final = 1.0
WATCH_S: Final = 1.0
TRIM_S: Final = 5.0
FRESH_S: Final = 15.0
"""A member that was silent for longer, seconds, has no say in what may be trimmed early."""

POLL_S: Final = 0.02
"""Time in seconds from one read that found nothing to the next."""

OPEN_S: Final = 5.0


class Connect(Protocol):
    """Makes the objects by which a member reaches the log, one for each thread."""

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log, not opened yet; ``purpose`` names the connection for operators."""

    def heartbeats(self) -> Heartbeats:
        """Return the heartbeats of the cluster."""


class ViewFollower(Protocol):
    """Keeps something in memory as the view of a standby is."""

    def opened(self, database: Database) -> None:
        """Take all that the view has now; it was just opened."""

    def changed(self, operations: Sequence[Operation]) -> None:
        """Take what has changed in it."""


@final
class Member:
    """One member of a cluster.

    Args:
        settings: the cluster's settings.
        data_dir: the data directory of this member.
        address: HOST:PORT at which clients reach it while it is the primary.
        stream_address: HOST:PORT of its stream service; empty if it has none.
        connect: reaches the log.
        preparation: is told the view and its changes, by the following thread; None: nothing is.
        now_s: the monotonic clock.

    Attributes:
        role: its role now.
        members: the others, as their heartbeats tell.
        writer: the writer of the last term that it claimed; None before.
        note: its present problem, in one sentence; empty without one.
        failure: the defect for which it cannot go on; empty without one.
    """

    def __init__(
        self,
        settings: Cluster,
        data_dir: Path,
        address: str,
        stream_address: str,
        connect: Connect,
        preparation: ViewFollower | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.node = settings.node_name
        self.data_dir = data_dir
        self.role: RoleName = "waiting"
        self.members = Members(self.node)
        self.writer: LogWriter | None = None
        self.note = ""
        self.failure = ""
        self._address = address
        self._stream_address = stream_address
        self._connect = connect
        self._preparation = preparation
        self._now_s = now_s
        self._view: View | None = None
        self._database: ClusterDatabase | None = None
        self._last = Position()  # of the view that was open last
        self._synced = 0
        self._hands_over_to = ""
        self._standby = Standby(self.node, settings.lease_s, now_s())
        self._stopping = threading.Event()
        self._unfollowing = threading.Event()
        self._leading = threading.Event()
        self._threads: list[threading.Thread] = []
        self._limiter = RepeatLimiter()
        self._fenced: Callable[[str], None] | None = None

    # -- what others ask ---------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Return how far its view has come."""
        view = self._view
        return self._last if view is None else view.position

    def beat(self) -> Beat:
        """Return what it tells the others of itself."""
        position = self.position
        return Beat(
            node=self.node,
            role=self.role,
            term=position.term,
            applied=position.sequence,
            synced=min(self._synced, position.sequence),
            address=self._address,
            stream_address=self._stream_address,
            version=__version__,
            hands_over_to=self._hands_over_to,
            note=self.note,
        )

    def primary(self) -> Beat | None:
        """Return the last heartbeat of the primary; None if none was heard for two leases."""
        if self.role == "primary":
            return self.beat()
        return self.members.primary(self._now_s(), 2 * self.settings.lease_s)

    def heard(self) -> dict[str, Heard]:
        """Return the last heartbeats of the others, by name."""
        return self.members.heard(self._now_s())

    def now_s(self) -> float:
        """Return the time of the clock by which others were heard, seconds."""
        return self._now_s()

    @property
    def database(self) -> Database | None:
        """Return the database of its view; None while it is not open."""
        return self._database

    def log_state(self) -> LogState:
        """Ask for the state of the log; it blocks.

        Raises:
            LogUnavailable: no server answers.
        """
        log = self._connect.log("status")
        try:
            log.open(READ_S)
            return log.state(READ_S)
        finally:
            log.close()

    def successor(self, name: str) -> Beat:
        """Return the last heartbeat of the standby to which it may hand over.

        Args:
            name: its name; empty for the one whose view is the newest.

        Raises:
            StoreError: there is none, or it cannot take over now.
        """
        heard = self.members.heard(self._now_s(), 2 * self.settings.lease_s)
        standbys = [one.beat for one in heard.values() if one.beat.role == "standby"]
        if name:
            standbys = [beat for beat in standbys if beat.node == name]
        if not standbys:
            raise StoreError(
                f"{name or 'no other member'} is a standby now: see 'penstock cluster status'"
            )
        return max(standbys, key=lambda beat: beat.applied)

    # -- its life ----------------------------------------------------------------------

    def start(self) -> None:
        """Start to send and take heartbeats, and to sync the view."""
        for name, work in (("beating", self._keep_beating), ("syncing", self._keep_syncing)):
            self._start(name, work)

    def stop(self) -> None:
        """End all threads, and the view if it is still open here."""
        self._stopping.set()
        self._unfollowing.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._close_view()

    def follow(self) -> ViewOpening | None:
        """Follow the log as a standby until it is the primary; return how its store is opened.

        It blocks. After ``stop_following`` it returns None.

        Raises:
            StoreError: the view cannot be opened or written, is ahead of the log, or a later
                Penstock wrote the log.
            EntriesTrimmed: the log has lost what the view needs next: it must be seeded.
        """
        self.role = "waiting"
        self._leading.clear()
        database = open_database_as(ClusterDatabase, self.data_dir)
        preparation = self._preparation
        view = View(database, None if preparation is None else preparation.changed)
        self._database, self._view = database, view
        self._synced = view.position.sequence
        if preparation is not None:
            preparation.opened(database)
        log = self._connect.log("follow")
        try:
            if not self._open_log(log):
                return None
            self._wait_for_bounds(log, view)
            self._standby.begin(self._now_s())
            self.role = "standby"
            while not self._unfollowing.is_set():
                if self._read(log, view):
                    continue
                if self._standby.should_claim(view.position.sequence, self._rank()):
                    opening = self._claim(database, view)
                    if opening is not None:
                        return opening
                self._unfollowing.wait(POLL_S)
        except BaseException:
            self._close_view()
            raise
        finally:
            log.close()
        self._close_view()
        return None

    def stop_following(self) -> None:
        """Let ``follow`` return."""
        self._unfollowing.set()

    def lead(self, fenced: Callable[[str], None]) -> None:
        """Watch over the primary until ``resign``.

        Args:
            fenced: called by a thread, once, with the reason for which nothing may be written.
        """
        self._fenced = fenced
        self._leading.set()
        self._start("watching", self._keep_watching)

    def resign(self) -> None:
        """Be the primary no longer; the store is closed already."""
        self._leading.clear()
        self._last = self.position
        self._view = None
        self._database = None
        if self.role == "primary":
            self.role = "waiting"

    def hand_over_to(self, node: str) -> None:
        """Let ``node`` claim next, without waiting for the lease; to be called after ``resign``."""
        self._hands_over_to = node

    def _start(self, name: str, work: Callable[[], None]) -> None:
        """Start a thread; one that fails ends the member's role, for nobody would miss it else."""

        def run() -> None:
            try:
                work()
            except Exception as error:
                logger.exception("the cluster's thread %s failed", name)
                self.failure = f"the cluster's thread {name} failed: {error!r}"
                self.stop_following()
                self._fence(self.failure)

        thread = threading.Thread(target=run, name=f"cluster {name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    # -- following ---------------------------------------------------------------------

    def _open_log(self, log: ReplicatedLog) -> bool:
        """Open the log; return False if the member stops before."""
        while not self._unfollowing.is_set():
            try:
                log.open(OPEN_S)
            except LogUnavailable as error:
                self._warn("waits", "the cluster's log cannot be reached: %s", error)
                self._unfollowing.wait(0.2)
            else:
                self.note = ""
                return True
        return False

    def _wait_for_bounds(self, log: ReplicatedLog, view: View) -> None:
        """Compare the view with the log's end, when a leader tells it."""
        while not self._unfollowing.is_set():
            try:
                refuse_view_ahead(view, log.bounds(READ_S).last)
            except LogUnavailable as error:
                self._warn("waits", "the cluster's log has no leader: %s", error)
                self._unfollowing.wait(0.2)
            else:
                self.note = ""
                return

    def _read(self, log: ReplicatedLog, view: View) -> bool:
        """Apply the entries that come next; return whether there were any."""
        term = view.position.term
        try:
            entries = log.read(view.next_sequence, ENTRIES_AT_ONCE, READ_S)
            if not entries:
                return False
            view.apply(entries)
        except LogDamaged as damage:
            self._warn("damaged", "%s; the leader is asked", damage)
            self._read_from_leader(log, view, damage.sequence)
        except LogUnavailable as error:
            self._warn("unreadable", "the cluster's log cannot be read: %s", error)
            self._unfollowing.wait(POLL_S)
            return False
        self.note = ""
        has_claim = view.position.term > term
        self._standby.read(self._now_s(), has_claim)
        if has_claim:
            self._hands_over_to = ""
        self._show(view)
        return True

    def _read_from_leader(self, log: ReplicatedLog, view: View, sequence: int) -> None:
        """Apply the entry at ``sequence`` as the leader has it; if that is wrong too, another node
        shall lead."""
        try:
            found = log.entry_at(sequence, READ_S)
            if found is not None:
                view.apply([found])
        except LogDamaged as damage:
            leader = log.state(READ_S).leader
            others = [node.name for node in log.state(READ_S).nodes if not node.is_leader]
            self._warn("leader damaged", "%s. Its leader %s shall hand over", damage, leader)
            log.move_leader(others, READ_S)

    def _show(self, view: View) -> None:
        """Let readers of this machine see the view, from the first epoch on."""
        if view.is_shown:
            return
        committed = view.committed()
        if committed.epoch:
            view.show(Watermark(self.data_dir, committed), committed)

    def _rank(self) -> int:
        """Return how many standbys come before this one in the order of names."""
        heard = self.members.heard(self._now_s(), 2 * self.settings.lease_s)
        return sum(node < self.node and one.beat.role == "standby" for node, one in heard.items())

    def _claim(self, database: ClusterDatabase, view: View) -> ViewOpening | None:
        """Claim the next term behind the view; return how the store is opened, or None."""
        log = self._connect.log("write")
        writer = LogWriter(log, self.settings.append_s_max, self._now_s)
        claim = Claim(
            self.node, view.committed().epoch, self._address, self._stream_address, __version__
        )
        try:
            log.open(READ_S)
            writer.claim(view.position, encode_claim(claim))
        except (Fenced, StoreError) as error:
            log.close()
            self._standby.begin(self._now_s())
            logger.info("claimed nothing: %s", Sentence(str(error)))
            return None
        logger.info("this member is the primary, in term %d", writer.term)
        self.writer = writer
        self.role = "primary"
        view.close_watermark()
        return ViewOpening(writer, self._use_view, database, view)

    def _use_view(self, database: ClusterDatabase, view: View) -> None:
        self._database, self._view = database, view

    def _close_view(self) -> None:
        database, view = self._database, self._view
        self._database = self._view = None
        if view is not None:
            view.close_watermark()
        if database is not None:
            database.close()

    # -- beating -----------------------------------------------------------------------

    def _keep_beating(self) -> None:
        period_s = self.settings.lease_s / BEATS_A_LEASE
        heartbeats = self._connect.heartbeats()
        try:
            next_s = self._now_s()
            while not self._stopping.is_set():
                now_s = self._now_s()
                if now_s >= next_s:
                    heartbeats.send(encode_beat(self.beat()))
                    next_s = now_s + period_s
                for data in heartbeats.received(max(0.001, next_s - self._now_s())):
                    beat = decode_beat(data)
                    now_s = self._now_s()
                    if beat is None:
                        continue
                    self._standby.heard(beat, now_s)
                    if self.members.hear(beat, now_s):
                        self._compare_terms(beat)
        finally:
            heartbeats.close()

    def _compare_terms(self, beat: Beat) -> None:
        """Look at the log at once where another member says that it is the primary of a newer
        term."""
        writer = self.writer
        if writer is not None and self.role == "primary" and beat.term > writer.term:
            self._fence(f"{beat.node} is the primary, in term {beat.term}")

    # -- syncing -----------------------------------------------------------------------

    def _keep_syncing(self) -> None:
        while not self._stopping.wait(SYNC_S):
            database, view = self._database, self._view
            if database is None or view is None:
                continue
            sequence = view.position.sequence
            if sequence == self._synced:
                continue
            with contextlib.suppress(Exception):  # closed meanwhile, or the disk fails: said there
                database.rocks.flush_wal(True)
                self._synced = sequence

    # -- watching ----------------------------------------------------------------------

    def _keep_watching(self) -> None:
        log = self._connect.log("watch")
        opened = False
        seen, trimmed_s = -1, self._now_s()
        try:
            while self._leading.is_set() and not self._stopping.wait(WATCH_S):
                writer = self.writer
                if writer is None or not self._leading.is_set():
                    break
                try:
                    if not opened:
                        log.open(READ_S)
                        opened = True
                    if writer.position.sequence == seen:
                        self._look_at_end(log, writer)
                    seen = writer.position.sequence
                    if self._now_s() - trimmed_s >= TRIM_S:
                        trimmed_s = self._now_s()
                        self._trim(log)
                except LogUnavailable as error:
                    self._warn("watch", "the cluster's log does not answer: %s", error)
        finally:
            log.close()

    def _look_at_end(self, log: ReplicatedLog, writer: LogWriter) -> None:
        """Learn from the last entry whether this member is the primary still."""
        end = log.bounds(READ_S).last
        found = None if end <= writer.position.sequence else log.entry_at(end, READ_S)
        if found is not None:
            term = decode_record(found.data).term
            if term > writer.term:
                self._fence(f"another member of the cluster is the primary, in term {term}")

    def _trim(self, log: ReplicatedLog) -> None:
        heard = self.members.heard(self._now_s())
        synced = [self._synced, *(one.beat.synced for one in heard.values())]
        first, last = log.bounds(READ_S)
        before = trim_before(synced, first, last, self.settings.log_entries_max)
        if before > first:
            log.trim(before, READ_S)

    def _fence(self, why: str) -> None:
        writer, fenced = self.writer, self._fenced
        if writer is None or self.role != "primary":
            return
        writer.fenced_by = writer.fenced_by or why
        self.role = "fenced"
        if fenced is not None:
            fenced(why)

    def _warn(self, kind: str, text: str, *arguments: object) -> None:
        self.note = text % arguments
        warn_limited(logger, self._limiter, self._now_s(), kind, text, *arguments)
