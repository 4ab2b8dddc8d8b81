"""A member of a cluster: its threads, from a standby that follows to a primary that is fenced.

::

      thread      as a standby                                as the primary
      beating     sends and receives heartbeats               the same
      following   reads the log into the view; claims         ends
      watching    nothing                                     reads the end of the log when
                                                              idle; trims; moves the log's leader
                                                              to another machine
      syncing     syncs the view each second, in both roles; the heartbeat reports the position

``follower.py``, ``watcher.py`` and ``role.py`` decide what is done and when, step by step; this
module has the threads that take the steps and wait between them. Each thread has its own connection
to the log. The threads share little, and each shared value is replaced as a whole: the role, the
position of the view, the heartbeats of the other members.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol, final

from penstock.cluster.beats import (
    COMPARED_ROLES,
    Beat,
    Members,
    ReceivedBeat,
    RoleName,
    decode_beat,
    encode_beat,
)
from penstock.cluster.beginning import HeardBeats, has_ended
from penstock.cluster.database import ClusterDatabase, ViewOpener, open_cluster_database
from penstock.cluster.follower import Follower, Progress
from penstock.cluster.keeper import LOOK_S, ServerKeeper
from penstock.cluster.log import Heartbeats, LogRefused, LogState, LogUnavailable, ReplicatedLog
from penstock.cluster.log_leader import LeaderMover
from penstock.cluster.operations import Operation
from penstock.cluster.reading import READ_S
from penstock.cluster.record import Claim, Position
from penstock.cluster.refilling import Grant, next_grant
from penstock.cluster.role import Standby
from penstock.cluster.tally import Tally
from penstock.cluster.view import View
from penstock.cluster.watcher import Watcher
from penstock.cluster.writer import LogWriter
from penstock.config.cluster import Cluster
from penstock.errors import ConfigError, StoreError
from penstock.store.database import Database
from penstock.store.watermark import WatermarkFile
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, warn_limited
from penstock.version import __version__

logger = get_logger(__name__)

BEATS_A_LEASE: Final = 10
"""Number of heartbeats in the time of one lease."""

SYNC_S: Final = 1.0
"""Pause between two syncs of the view, in seconds."""

WATCH_S: Final = 1.0
"""Pause between two steps of the watcher, in seconds."""

POLL_S: Final = 0.02
"""Pause after a read that returned no entries, in seconds."""

FAILING_S: Final = 2.0
"""Seconds for which the log must have refused a commit until the member says so."""

UNREACHABLE_S: Final = 0.1
"""Pause after an attempt that did not reach the log, in seconds."""


class Connector(Protocol):
    """Makes a member's connections to the log, one for each thread."""

    def log(self, purpose: str) -> ReplicatedLog:
        """Return a log that is not open yet; operators see ``purpose`` in the connection's name."""

    def heartbeats(self) -> Heartbeats:
        """Return the heartbeats of the cluster."""


class ViewMirror(Protocol):
    """Keeps a representation in memory equal to the view of a standby."""

    def load_view(self, database: Database) -> None:
        """Read the whole view from ``database``, replacing what was loaded before."""

    def apply_changes(self, operations: Sequence[Operation]) -> None:
        """Apply operations that were written to the view."""


@final
class Member:
    """One member of a cluster.

    Args:
        settings: the cluster's settings.
        data_dir: the data directory of this member.
        address: HOST:PORT at which clients reach it while it is the primary.
        stream_address: HOST:PORT of its stream service; empty if it has none.
        connect: makes the connections to the log.
        mirror: a representation of the view in memory, which the following thread updates; None for
            none.
        keeper: keeps the server of the log on this machine healthy; None for nothing of the kind.
        now_s: returns the monotonic time in seconds.

    Attributes:
        settings: the cluster's settings.
        keeper: as passed.
        node: name of the member.
        data_dir: the data directory of the member.
        role: its present role.
        members: the other members, as known by their heartbeats.
        writer: the writer of the last claimed term; None before the first claim.
        note: the present problem as a sentence; empty for none.
        failure: the defect that stopped the member, as a sentence; empty for none.
        tally: the counters since its start.
    """

    def __init__(
        self,
        settings: Cluster,
        data_dir: Path,
        address: str,
        stream_address: str,
        connect: Connector,
        mirror: ViewMirror | None = None,
        keeper: ServerKeeper | None = None,
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
        self.keeper = keeper
        self._address = address
        self._stream_address = stream_address
        self._connect = connect
        self._mirror = mirror
        self._now_s = now_s
        self._view: View | None = None
        self._database: ClusterDatabase | None = None
        self._is_other_log = False
        self._last = Position()  # position of the view that was open last
        self._synced = 0
        self._hands_over_to = ""
        self._logged_term = 0  # term of the last primary that was logged
        self._standby = Standby(self.node, settings.lease_s, now_s(), self._process)
        self._stopping = threading.Event()
        self._following_ends = threading.Event()
        self._leading = threading.Event()
        self._must_reload_mirror = threading.Event()
        self._threads: list[threading.Thread] = []
        self._limiter = RepeatLimiter()
        self._fencing = threading.Lock()
        self._fenced: Callable[[str], None] | None = None  # while it leads

    # -- state -------------------------------------------------------------------------

    @property
    def position(self) -> Position:
        """Return the position of the member's view in the log."""
        view = self._view
        return self._last if view is None else view.position

    def beat(self) -> Beat:
        """Return the heartbeat to send to the other members."""
        view, position, now_s = self._view, self.position, self._now_s()
        note = self.note
        if self.members.has_namesake(now_s):
            note = f"another machine is named {self.node}, too: give each a cluster.node of its own"
        keeper = self.keeper
        writer = self.writer if self.role == "primary" else None
        if writer is not None and not note:
            note = _failing_note(writer, now_s)
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
            epoch="" if view is None else view.epoch,
            is_empty=view is not None and not view.epoch and position.sequence == 0,
            former=() if view is None else view.former,
            damaged=self.tally.damaged,
            skipped=self.tally.skipped,
            append_s=0.0 if writer is None else round(writer.lately_append_s(now_s), 4),
            sent_s=now_s,
            process=self._process,
            log_server=self.settings.local_server_name,
            server_health="" if keeper is None else keeper.judgement.health,
            refill="" if keeper is None else keeper.refill.stage,
            refill_number=0 if keeper is None else keeper.refill.number,
            server_note="" if keeper is None else keeper.note,
        )

    def primary(self) -> Beat | None:
        """Return the last heartbeat of the primary; None if none was heard for two leases."""
        if self.role == "primary":
            return self.beat()
        return self.members.primary(self._now_s(), 2 * self.settings.lease_s)

    def recent_beats(self) -> dict[str, ReceivedBeat]:
        """Return the last heartbeats of the other members, by name."""
        return self.members.recent_beats(self._now_s())

    def now_s(self) -> float:
        """Return the present monotonic time, seconds, with which heartbeats are recorded."""
        return self._now_s()

    @property
    def database(self) -> Database | None:
        """Return the database of the view; None while it is not open."""
        return self._database

    def log_state(self) -> LogState:
        """Open a connection and return the state of the log; this blocks for some seconds at most.

        Raises:
            LogMissing: the servers have no log of this name.
            LogUnavailable: no server answers.
        """
        log = self._connect.log("status")
        try:
            return log.state(READ_S)
        finally:
            log.close()

    def find_successor(self, name: str) -> Beat:
        """Return the last heartbeat of the standby to which this member may hand over.

        Args:
            name: name of the standby; empty for the standby with the newest view.

        Raises:
            StoreError: no other member is a standby, or the named one is none.
        """
        heard = self.members.recent_beats(self._now_s(), 2 * self.settings.lease_s)
        standbys = [one.beat for one in heard.values() if one.beat.role == "standby"]
        if name:
            standbys = [beat for beat in standbys if beat.node == name]
        if not standbys:
            found = f"{name} is no standby" if name else "no other member is a standby"
            raise StoreError(f"{found} now: see 'penstock cluster status'")
        return max(standbys, key=lambda beat: beat.applied)

    # -- life cycle --------------------------------------------------------------------

    def start(self) -> None:
        """Start the threads for heartbeats, syncing and watching."""
        self._start("beating", self._keep_beating)
        self._start("syncing", self._keep_syncing)
        self._start("watching", self._keep_watching)
        if self.keeper is not None:
            self._start("keeping", partial(self._keep_server, self.keeper))

    def stop(self) -> None:
        """End all threads, and close the view if this object still has it open."""
        self._stopping.set()
        self._following_ends.set()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._close_view()

    def follow(self) -> ViewOpener | None:
        """Follow the log as a standby until this member is the primary. This blocks.

        Returns:
            The opener of the primary's store; None after ``stop_following``.

        Raises:
            ForeignView: the log's history began with another store.
            StoreError: the view cannot be opened or written, or a later version of Penstock wrote
                the log.
            EntriesTrimmed: the entries that the view needs next were trimmed; it must be seeded.
            Superseded: an operator began a new history; the view must be seeded.
        """
        self.role = "waiting"
        self._leading.clear()
        database = open_cluster_database(self.data_dir)
        mirror = self._mirror
        view = View(database, None if mirror is None else mirror.apply_changes, self.tally)
        self._database, self._view = database, view
        self._synced = view.position.sequence  # opening flushed its write-ahead log to tables
        if mirror is not None:
            mirror.load_view(database)
        log = self._connect.log("follow")
        claim = Claim(
            self.node, "", self._address, self._stream_address, __version__, self._process
        )
        members = self.settings.members
        others = [node for node in members if node != self.node] if members else None
        follower = Follower(
            *(log, view, self._standby, claim, self._new_writer, self._now_s),
            self._heard,
            others,
        )
        try:
            while not self._following_ends.is_set():
                if mirror is not None and self._must_reload_mirror.is_set():
                    self._must_reload_mirror.clear()
                    mirror.load_view(database)
                progress = follower.step(self._rank())
                self._report_note(follower.note)
                if progress is Progress.CLAIMED:
                    assert follower.writer is not None
                    return self._become_primary(follower.writer, database, view)
                self.role = "standby" if follower.is_following else "waiting"
                self._is_other_log = follower.is_other_log
                if follower.is_following:
                    self._attach_watermark(view)
                if progress is Progress.READ:
                    if view.claim is not None:
                        self._hands_over_to = ""
                else:
                    unreachable = progress is Progress.UNREACHABLE
                    self._following_ends.wait(UNREACHABLE_S if unreachable else POLL_S)
        except BaseException:
            self._close_view()
            raise
        finally:
            log.close()
        self._close_view()
        return None

    def stop_following(self) -> None:
        """Make ``follow`` return None."""
        self._following_ends.set()

    def reload_mirror(self) -> None:
        """Make the following thread load the whole view into ``mirror`` again."""
        self._must_reload_mirror.set()

    def serve_as_primary(self, fenced: Callable[[str], None]) -> None:
        """Watch the log as the primary, until ``resign``.

        Args:
            fenced: called once, possibly in another thread, with the reason why this member may not
                write any more.
        """
        assert self.writer is not None
        with self._fencing:
            self._fenced = fenced
            why = self.writer.fenced_by  # if it was fenced while the store was opened
        if why:
            fenced(why)
        self._leading.set()

    def resign(self) -> None:
        """Give up the role of primary; the caller has closed the store."""
        self._leading.clear()
        self._fenced = None
        self._last = self.position
        self._view = None
        self._database = None
        if self.role == "primary":
            self.role = "waiting"

    def hand_over_to(self, node: str) -> None:
        """Ask ``node`` by heartbeat to claim at once, without waiting for the lease.

        This member must not write any more: it was fenced, or it resigned.
        """
        self._hands_over_to = node

    def wait_for_successor(self, timeout_s: float) -> bool:
        """Wait until another member is the primary in a later term; return whether it is in
        time."""
        ends_s = self._now_s() + timeout_s
        while True:
            primary = self.primary()
            if primary is not None and primary.term > self._last.term:
                return True
            if self._now_s() >= ends_s or self._stopping.wait(POLL_S):
                return False

    def _start(self, name: str, work: Callable[[], None]) -> None:
        """Start a thread; if ``work`` raises, record the failure and end the member's role."""

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

    def _report_note(self, note: str) -> None:
        if self.note and not note:
            logger.info("the cluster's log is read again")
        self.note = note
        if note:
            warn_limited(logger, self._limiter, self._now_s(), "follow", "%s", Sentence(note))

    def _attach_watermark(self, view: View) -> None:
        """Show the view to readers on this machine, once it has an epoch."""
        if view.has_watermark:
            return
        watermark = view.current_watermark()
        if watermark.epoch:
            view.attach_watermark(WatermarkFile(self.data_dir, watermark), watermark)

    def _heard(self) -> HeardBeats:
        """Return the last heartbeats of the other members."""
        now_s = self._now_s()
        lately, known = (
            {node: one.beat for node, one in heard.items()}
            for heard in (
                self.members.recent_beats(now_s, 2 * self.settings.lease_s),
                self.members.recent_beats(now_s),
            )
        )
        return HeardBeats(lately, known)

    def _rank(self) -> int:
        """Return the number of standbys that come before this one in the order of names."""
        heard = self.members.recent_beats(self._now_s(), 2 * self.settings.lease_s)
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
        """Hand over to a standby because this machine's disk fails; without a standby, keep the
        role and wait for the disk."""
        try:
            successor = self.find_successor("")
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
                    self._standby.record_beat(beat, now_s)
                    if self.members.record(beat, now_s):
                        self._compare_terms(beat)
                        self._log_primary(beat)
        finally:
            heartbeats.close()

    def _log_primary(self, beat: Beat) -> None:
        """Log once for each term that another member is the primary."""
        if beat.role == "primary" and beat.term > self._logged_term:
            self._logged_term = beat.term
            logger.info("%s is the primary, in term %d", beat.node, beat.term)

    def _compare_terms(self, beat: Beat) -> None:
        """Fence this primary if the view of another member has reached a newer term, or succeeds
        its history."""
        writer, view = self.writer, self._view
        if writer is not None and beat.role in COMPARED_ROLES and beat.term > writer.term:
            self._fence(f"the view of {beat.node} has come to term {beat.term}", writer)
        elif view is not None and view.epoch and has_ended(view.epoch, beat):
            why = f"an operator let the store of {beat.node} begin a new history of the cluster"
            self._fence(why, writer)

    # -- syncing -----------------------------------------------------------------------

    def _keep_syncing(self) -> None:
        while not self._stopping.wait(SYNC_S):
            database, view = self._database, self._view
            if database is None or view is None:
                continue
            sequence = view.position.sequence
            if sequence == self._synced:
                continue
            view.read_epoch_again()
            with contextlib.suppress(StoreError):  # the next write reports the failing disk
                if database.sync():
                    self._synced = sequence

    # -- watching ----------------------------------------------------------------------

    def _keep_watching(self) -> None:
        while not self._stopping.is_set():
            if self._leading.wait(WATCH_S):
                self._watch()

    def _watch(self) -> None:
        """Take the steps of watcher and leader mover until this member is not the primary."""
        writer = self.writer
        assert writer is not None
        log = self._connect.log("watch")
        watcher = Watcher(log, writer, self.settings.log_entries_max, self._now_s)
        mover = LeaderMover(self.settings.local_server_name, self._now_s, writer.log.prefer)
        try:
            while self._leading.is_set() and not self._stopping.wait(WATCH_S):
                if self.writer is not writer or not self._leading.is_set():
                    break
                synced, fresh = self.members.synced_sequences(self._synced, self._now_s())
                try:
                    why = watcher.step(synced, fresh)
                    if not why:
                        mover.step(log)
                        self._grant_refill(log, writer)
                except (LogUnavailable, LogRefused, ConfigError) as error:
                    text = "the cluster's log does not answer: %s"  # the next step tries again
                    warn_limited(logger, self._limiter, self._now_s(), "watch", text, error)
                else:
                    if why:
                        self._fence(why, writer)
        finally:
            log.close()

    def _grant_refill(self, log: ReplicatedLog, writer: LogWriter) -> None:
        """Write a grant if a member waits for one, and may have it."""
        view = self._view
        heard = self.members.recent_beats(self._now_s(), 2 * self.settings.lease_s)
        beats = {node: one.beat for node, one in heard.items()} | {self.node: self.beat()}
        if view is None or not any(beat.refill for beat in beats.values()):
            return
        grant = next_grant(view.grant, beats, log.state(READ_S), writer.claimed)
        if grant is None:
            return
        logger.info(
            "%s may %s its server of the log", grant.node, "refill" if grant.may_begin else "stop"
        )
        try:
            with writer.one_at_a_time:
                view.write_grant(grant)
        except StoreError as error:
            text = "a grant may be unwritten: %s"
            warn_limited(logger, self._limiter, self._now_s(), "grant", text, error)

    # -- the server of the log on this machine -----------------------------------------

    def _keep_server(self, keeper: ServerKeeper) -> None:
        grant = Grant()
        try:
            while not self._stopping.wait(LOOK_S):
                view = self._view
                position, epoch = Position(), ""  # the next view may be of another history
                if view is not None:
                    position, epoch, grant = view.position, view.epoch, view.grant
                # The entries of another log say nothing about the server's copy of this one.
                keeper.step(Position() if self._is_other_log else position, epoch, grant)
        finally:
            keeper.close()

    def _fence(self, why: str, writer: LogWriter | None) -> None:
        """Fence ``writer`` if it is still this member's writer, and call the ``fenced``
        callback."""
        with self._fencing:
            if writer is None or writer is not self.writer or self.role != "primary":
                return
            writer.fenced_by = writer.fenced_by or why
            self.role = "fenced"
            fenced = self._fenced
        if fenced is not None:
            fenced(why)


def _failing_note(writer: LogWriter, now_s: float) -> str:
    """Return the sentence about commits that wait for the log; empty if none waits for long."""
    since_s = writer.failing_since_s
    if not since_s or now_s - since_s < FAILING_S:
        return ""
    return f"commits wait for the cluster's log since {now_s - since_s:.0f} s: {writer.failing_why}"
