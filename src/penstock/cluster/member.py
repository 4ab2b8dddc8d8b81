"""A member of a cluster: its threads, from a standby that follows to a primary that is fenced.

::

      thread      as a standby                                as the primary
      beating     sends and takes heartbeats                  the same
      following   reads the log into the view; claims         ends
      watching    nothing                                     looks at the end of the log when
                                                              idle; trims; moves the log's leader
                                                              to another machine
      syncing     syncs the view each second, in both roles, and says so by the heartbeat

What is done and when is decided in ``follower.py``, ``watcher.py`` and ``role.py``, step by step;
here are the threads that take the steps and wait between them. Each has an object of the log for
itself. What they share is small and read whole: the roles, the position of the view, what is known
of the others.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, final

from penstock.cluster.beats import (
    COMPARED,
    Beat,
    Heard,
    Members,
    RoleName,
    decode_beat,
    encode_beat,
)
from penstock.cluster.database import ClusterDatabase, ViewOpener, open_cluster_database
from penstock.cluster.follower import Follower, Progress
from penstock.cluster.log import Heartbeats, LogRefused, LogState, LogUnavailable, ReplicatedLog
from penstock.cluster.log_leader import LogLeader
from penstock.cluster.operations import Operation
from penstock.cluster.reading import READ_S
from penstock.cluster.record import Claim, Position
from penstock.cluster.role import Standby
from penstock.cluster.tally import Tally
from penstock.cluster.view import View
from penstock.cluster.watcher import Watcher
from penstock.cluster.writer import LogWriter
from penstock.config.cluster import Cluster
from penstock.errors import ConfigError, StoreError
from penstock.store.database import Database
from penstock.store.watermark import WatermarkFile
from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited
from penstock.version import __version__

logger = get_logger(__name__)

BEATS_A_LEASE: Final = 10
"""Heartbeats in the time of one lease."""

SYNC_S: Final = 1.0
WATCH_S: Final = 1.0

POLL_S: Final = 0.02
"""Time in seconds from one read that found nothing to the next."""

UNREACHABLE_S: Final = 0.2
"""Time in seconds from one try to reach the log to the next."""


class Connect(Protocol):
    """Makes the objects by which a member reaches the log, one for each thread."""

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log, not opened yet; ``purpose`` names the connection for operators."""

    def heartbeats(self) -> Heartbeats:
        """Return the heartbeats of the cluster."""


class ViewFollower(Protocol):
    """Keeps something in memory as the view of a standby is."""

    def opened(self, database: Database) -> None:
        """Read the whole view, which was just opened."""

    def changed(self, operations: Sequence[Operation]) -> None:
        """Apply operations that were written to the view."""


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
        tally: its counts since its start.
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
        self._process = secrets.token_hex(8)
        self.members = Members(self.node, now_s(), process=self._process)
        self.writer: LogWriter | None = None
        self.note = ""
        self.failure = ""
        self.tally = Tally()
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
        self._told_term = 0  # of the primary that the log named last
        self._brings_store = False
        self._standby = Standby(self.node, settings.lease_s, now_s(), self._process)
        self._stopping = threading.Event()
        self._unfollowing = threading.Event()
        self._leading = threading.Event()
        self._unprepared = threading.Event()
        self._threads: list[threading.Thread] = []
        self._limiter = RepeatLimiter()
        self._fencing = threading.Lock()
        self._fenced: Callable[[str], None] | None = None  # while it leads

    # -- what others ask ---------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Return how far its view has come."""
        view = self._view
        return self._last if view is None else view.position

    def beat(self) -> Beat:
        """Return the heartbeat to send to the other members."""
        position, now_s = self.position, self._now_s()
        note = self.note
        if self.members.has_namesake(now_s):
            note = f"another machine is named {self.node}, too: give each a cluster.node of its own"
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
            note=note,
            brings_store=self._brings_store and position.sequence == 0,
            damaged=self.tally.damaged,
            skipped=self.tally.skipped,
            sent_s=now_s,
            process=self._process,
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
            found = f"{name} is no standby" if name else "no other member is a standby"
            raise StoreError(f"{found} now: see 'penstock cluster status'")
        return max(standbys, key=lambda beat: beat.applied)

    # -- its life ----------------------------------------------------------------------

    def start(self) -> None:
        """Start to send and take heartbeats, and to sync the view."""
        self._start("beating", self._keep_beating)
        self._start("syncing", self._keep_syncing)
        self._start("watching", self._keep_watching)

    def stop(self) -> None:
        """End all threads, and the view if it is still open here."""
        self._stopping.set()
        self._unfollowing.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._close_view()

    def follow(self) -> ViewOpener | None:
        """Follow the log as a standby until it is the primary; return how its store is opened.

        It blocks. After ``stop_following`` it returns None.

        Raises:
            StoreError: the view cannot be opened or written, is ahead of the log, or a later
                Penstock wrote the log.
            EntriesTrimmed: the log has lost what the view needs next: it must be seeded.
        """
        self.role = "waiting"
        self._leading.clear()
        database = open_cluster_database(self.data_dir)
        preparation = self._preparation
        view = View(database, None if preparation is None else preparation.changed, self.tally)
        self._database, self._view = database, view
        self._synced = view.position.sequence  # opening it wrote all that its log had to tables
        self._brings_store = bool(view.committed().epoch)
        if preparation is not None:
            preparation.opened(database)
        log = self._connect.log("follow")
        claim = Claim(
            self.node, "", self._address, self._stream_address, __version__, self._process
        )
        follower = Follower(log, view, self._standby, claim, self._new_writer, self._now_s)
        try:
            while not self._unfollowing.is_set():
                if preparation is not None and self._unprepared.is_set():
                    self._unprepared.clear()
                    preparation.opened(database)
                progress = follower.step(self._rank())
                self._tell(follower.note)
                if progress is Progress.CLAIMED:
                    assert follower.writer is not None
                    return self._become_primary(follower.writer, database, view)
                if follower.is_following:
                    self.role = "standby"
                    self._attach_watermark(view)
                if progress is Progress.READ:
                    if view.claim is not None:
                        self._hands_over_to = ""
                else:
                    unreachable = progress is Progress.UNREACHABLE
                    self._unfollowing.wait(UNREACHABLE_S if unreachable else POLL_S)
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

    def prepare_anew(self) -> None:
        """Let the following thread tell ``preparation`` all that the view has, once more."""
        self._unprepared.set()

    def lead(self, fenced: Callable[[str], None]) -> None:
        """Watch over the primary until ``resign``.

        Args:
            fenced: called by a thread, once, with the reason for which nothing may be written.
        """
        assert self.writer is not None
        with self._fencing:
            self._fenced = fenced
            why = self.writer.fenced_by  # while the store was opened
        if why:
            fenced(why)
        self._leading.set()

    def resign(self) -> None:
        """Be the primary no longer; the store is closed already."""
        self._leading.clear()
        self._fenced = None
        self._last = self.position
        self._view = None
        self._database = None
        if self.role == "primary":
            self.role = "waiting"

    def hand_over_to(self, node: str) -> None:
        """Let ``node`` claim next, without waiting for the lease.

        Nothing may be written here any more: it was fenced, or it resigned.
        """
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
                self._fence(self.failure, self.writer)

        thread = threading.Thread(target=run, name=f"cluster {name}", daemon=True)
        thread.start()
        self._threads.append(thread)

    # -- following ---------------------------------------------------------------------

    def _new_writer(self) -> LogWriter:
        return LogWriter(
            self._connect.log("write"),
            self.settings.append_s_max,
            self._now_s,
            appended=self.tally.append_s.count,
        )

    def _tell(self, note: str) -> None:
        if self.note and not note:
            logger.info("the cluster's log is read again")
        self.note = note
        if note:
            warn_limited(logger, self._limiter, self._now_s(), "follow", "%s", note)

    def _attach_watermark(self, view: View) -> None:
        """Let readers of this machine see the view, from the first epoch on."""
        if view.has_watermark:
            return
        committed = view.committed()
        if committed.epoch:
            view.attach_watermark(WatermarkFile(self.data_dir, committed), committed)

    def _rank(self) -> int:
        """Return how many standbys come before this one in the order of names."""
        heard = self.members.heard(self._now_s(), 2 * self.settings.lease_s)
        return sum(node < self.node and one.beat.role == "standby" for node, one in heard.items())

    def _become_primary(
        self, writer: LogWriter, database: ClusterDatabase, view: View
    ) -> ViewOpener:
        logger.info("this member is the primary, in term %d", writer.term)
        self.writer = writer
        self.tally.claims += 1
        self.role = "primary"
        self._hands_over_to = ""
        view.close_watermark()
        return ViewOpener(
            writer, self._use_view, database, view, tally=self.tally, disk_fails=self._disk_fails
        )

    def _disk_fails(self, why: str) -> None:
        """Let a standby go on where this machine's disk takes nothing; without one, wait for it."""
        try:
            successor = self.successor("")
        except StoreError:
            return
        self._fence(f"{why}; {successor.node} takes over", self.writer)
        self.hand_over_to(successor.node)

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
                    self.members.forget_silent(now_s)
                    self._standby.heard(beat, now_s)
                    if self.members.hear(beat, now_s):
                        self._compare_terms(beat)
                        self._tell_primary(beat)
        finally:
            heartbeats.close()

    def _tell_primary(self, beat: Beat) -> None:
        """Log that another member is the primary, once for each term."""
        if beat.role == "primary" and beat.term > self._told_term:
            self._told_term = beat.term
            logger.info("%s is the primary, in term %d", beat.node, beat.term)

    def _compare_terms(self, beat: Beat) -> None:
        """Fence this primary if the view of another member has reached a newer term."""
        writer = self.writer
        if writer is not None and beat.role in COMPARED and beat.term > writer.term:
            self._fence(f"the view of {beat.node} has come to term {beat.term}", writer)

    # -- syncing -----------------------------------------------------------------------

    def _keep_syncing(self) -> None:
        while not self._stopping.wait(SYNC_S):
            database, view = self._database, self._view
            if database is None or view is None:
                continue
            sequence = view.position.sequence
            if sequence == self._synced:
                continue
            with contextlib.suppress(StoreError):  # the disk fails: the next write says so
                if database.sync():
                    self._synced = sequence

    # -- watching ----------------------------------------------------------------------

    def _keep_watching(self) -> None:
        while not self._stopping.is_set():
            if self._leading.wait(WATCH_S):
                self._watch()

    def _watch(self) -> None:
        """Watch until this member leads no longer."""
        writer = self.writer
        assert writer is not None
        log = self._connect.log("watch")
        watcher = Watcher(log, writer, self.settings.log_entries_max, self._now_s)
        leader = LogLeader(self.settings.local_server_name, self._now_s)
        try:
            while self._leading.is_set() and not self._stopping.wait(WATCH_S):
                if self.writer is not writer or not self._leading.is_set():
                    break
                synced, fresh = self.members.synced(self._synced, self._now_s())
                try:
                    why = watcher.step(synced, fresh)
                    if not why:
                        leader.step(log)
                except (LogUnavailable, LogRefused, ConfigError) as error:
                    text = "the cluster's log does not answer: %s"  # it may, later
                    warn_limited(logger, self._limiter, self._now_s(), "watch", text, error)
                else:
                    if why:
                        self._fence(why, writer)
        finally:
            log.close()

    def _fence(self, why: str, writer: LogWriter | None) -> None:
        """Let ``writer`` write nothing more, unless another one has followed it."""
        with self._fencing:
            if writer is None or writer is not self.writer or self.role != "primary":
                return
            writer.fenced_by = writer.fenced_by or why
            self.role = "fenced"
            fenced = self._fenced
        if fenced is not None:
            fenced(why)
