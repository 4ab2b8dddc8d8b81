"""One member of a simulated cluster: ``cluster.member`` and ``app.membership`` without threads.

The parts that decide are the real ones: follower, writer, view, watcher, standby, the database of a
primary, and ``RocksStore`` on it. What the threads of a member do beside one another is done here
one after the other by ``turn``, whenever the world says so; while an append waits for its answer,
the world goes on without this member. A subclass with another writer, follower or database is a
broken member, and must be found out (``tests/model/test_cluster_faults.py``).
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final, Protocol

from penstock.cluster.beats import COMPARED_ROLES, Beat, Members, RoleName, decode_beat, encode_beat
from penstock.cluster.beginning import HeardBeats, has_ended
from penstock.cluster.database import ClusterDatabase, ViewOpener
from penstock.cluster.follower import Follower, Progress
from penstock.cluster.histories import Word, begin_history
from penstock.cluster.log import EntriesTrimmed
from penstock.cluster.record import Claim
from penstock.cluster.role import Standby
from penstock.cluster.view import ForeignView, Superseded, View
from penstock.cluster.watcher import Watcher
from penstock.cluster.writer import Fenced, LogWriter
from penstock.engine.batch.commit import Commit
from penstock.engine.server.server import Server
from penstock.engine.values.records import RecoveredState
from penstock.errors import StoreUnavailable
from penstock.store.identity import begin_epoch
from penstock.store.rocks import RocksStore
from tests.model.cluster_referee import Referee
from tests.model.memory_rocks import Content, MemoryDatabase, StoppedDatabase, ViewDisk, copied
from tests.model.shell import Shell
from tests.support.memory_log import AppendFault, MemoryCluster, MemoryHeartbeats, MemoryLog

LEASE_S: Final = 1.5
BEAT_S: Final = 0.15
SYNC_S: Final = 1.0
WATCH_S: Final = 1.0
APPEND_S_MAX: Final = 0.5
READS_OF_A_TURN: Final = 3
REFUSED_S: Final = 1e9


class Surroundings(Protocol):
    """What a member needs of its world."""

    random: Random
    forget_s: float
    entries_max: int

    def now_s(self) -> float:
        """Return the time of the monotonic clock."""

    def wait(self, member: Member, seconds: float) -> None:
        """Let time pass in which this member waits."""

    def new_server(self, recovered: RecoveredState) -> Server:
        """Return an engine on what was recovered."""

    names: tuple[str, ...]

    def seed(self, member: Member, term: int = 0, is_given_up: bool = False) -> None:
        """Give a member the view of another one.

        Args:
            member: a member that is too far behind, or of another history.
            term: the term to which the view must have come.
            is_given_up: whether an operator gave up what the member has.
        """

    def began(self, member: Member) -> None:
        """Note that a member serves as the primary."""

    def ended(self, shell: MemberShell) -> None:
        """Note that a broker ended: its connections are cut."""


class MemberShell(Shell):
    """The broker of a member that is the primary.

    Attributes:
        ended: the reason for which it ends; empty while it does not.
        fails: whether the store could not write the commit under way.
        stops: whether it was asked to stop.
        told_lead_us: the lead of the wall clock that its engine knows.
        term: the term in which it is the primary.
    """

    def __init__(self, server: Server, store: RocksStore, member: Member) -> None:
        super().__init__(server, store)
        self.member = member
        self.ended = ""
        self.fails = False
        self.stops = False
        self.told_lead_us: int | None = None
        self.term = 0 if member.writer is None else member.writer.term
        self._rocks = store

    def write(self) -> Commit | None:
        """Try once to write the commit under way, as the committer does."""
        commit = self.under_way
        if commit is None or self.written or self.ended:
            return None
        context = self.server.context
        try:
            if self.fails:
                self._rocks.reopen()
            self.store.commit(commit)
        except StoreUnavailable as failure:
            self.fails = True
            context.store_health.mark_failed(str(failure))
            return None
        except Fenced as fenced:
            self.ended = str(fenced)
            return None
        if self.fails:
            self.fails = False
            context.store_recovered()
            for pipe in self.pipes.values():
                context.turn.waiting.until_turn(pipe.connection)
        self.written = True
        self.durable = self.sealed
        self.member.acknowledges()
        return commit

    def trim(self, older_than_us: int, keep_from: int) -> int | None:
        """Let retention remove what it may; return where the log begins, None if it failed."""
        if self.ended:
            return None
        try:
            return self._rocks.trim_log(older_than_us, 2**62, keep_from)
        except StoreUnavailable:
            return None  # the next commit is in doubt as well
        except Fenced as fenced:
            self.ended = str(fenced)
            return None


class Member:
    """One member.

    Args:
        name: its name.
        world: what is around it.
        cluster: the log.
        referee: judges what it does.
        data_dir: a directory for its watermark.
    """

    writer_class: type[LogWriter] = LogWriter
    follower_class: type[Follower] = Follower
    database_class: type[MemoryDatabase] = MemoryDatabase

    def __init__(
        self,
        name: str,
        world: Surroundings,
        cluster: MemoryCluster,
        referee: Referee,
        data_dir: Path,
    ) -> None:
        self.name = name
        self.world = world
        self.cluster = cluster
        self.disk = ViewDisk()
        self.shell: MemberShell | None = None
        self.writer: LogWriter | None = None
        self.role: RoleName = "waiting"
        self.is_busy = False  # waits for the answer to an append
        self.paused_until_s = 0.0
        self.down_until_s = 0.0
        self.is_cut = False
        self.is_refused = False  # its store has something which the cluster has not
        self.replica_end: int | None = None
        self.leader_end: int | None = None
        self.deposed_until_s = 0.0  # that leader, which notices then
        self.faults: list[AppendFault] = []
        self.hands_over_to = ""
        self._referee = referee
        self._data_dir = data_dir
        self._starts = 0
        self._logs: list[MemoryLog] = []
        self._opener: ViewOpener | None = None
        self.start()

    # -- its life ----------------------------------------------------------------------

    def start(self) -> None:
        """Start the process."""
        now_s = self.world.now_s()
        self._starts += 1
        self.down_until_s = 0.0
        self.paused_until_s = 0.0
        self.hands_over_to = ""
        self.members = Members(self.name, now_s, self.world.forget_s)
        self._standby = Standby(self.name, LEASE_S, now_s)
        self._heartbeats = MemoryHeartbeats(self.cluster, self.name)
        self._next_beat_s = self._next_watch_s = now_s
        self._next_sync_s = now_s + self.world.random.random()
        self.follow()

    def follow(self) -> None:
        """Be a standby from now on."""
        self.role = "waiting"
        self._logs.clear()
        self.database: ClusterDatabase = self.open_database(self._data_dir)
        self.view = View(self.database)
        self.synced = self.view.position.sequence
        claim = Claim(self.name, process=f"{self.name} {self._starts}")
        self.follower = self.follower_class(
            *(self.new_log(), self.view, self._standby, claim, self.new_writer, self.world.now_s),
            self.heard,
            [name for name in self.world.names if name != self.name],
        )

    def heard(self) -> HeardBeats:
        """Return the last heartbeats of the others."""
        now_s = self.world.now_s()
        lately, known = (
            {node: one.beat for node, one in self.members.recent_beats(now_s, within_s).items()}
            for within_s in (2 * LEASE_S, self.world.forget_s)
        )
        return HeardBeats(lately, known)

    def open_database(self, data_dir: Path) -> ClusterDatabase:
        """Open the view; RocksDB writes what its log has to tables then, and syncs them."""
        self.disk.sync()
        return self.database_class(self.disk, data_dir)

    def new_log(self) -> MemoryLog:
        """Return a way to the log."""
        log = MemoryLog(self.cluster, self.name)
        self._logs.append(log)
        self.set_ways()
        return log

    def new_writer(self) -> LogWriter:
        """Return a writer."""
        log = self.new_log()
        log.faults.extend(self.faults)
        self.faults.clear()
        return self.writer_class(log, APPEND_S_MAX, self.world.now_s, self._wait)

    def _wait(self, seconds: float) -> None:
        self.world.wait(self, seconds)

    def set_ways(self) -> None:
        """Let its ways to the log be cut or lag as it is set."""
        for log in self._logs:
            log.is_cut = self.is_cut
            log.replica_end = self.replica_end
            log.leader_end = self.leader_end
        self._heartbeats.is_cut = self.is_cut

    def add_faults(self, faults: list[AppendFault]) -> None:
        """Let its next appends have these fates."""
        if self.writer is not None and self.shell is not None:
            log = self.writer.log
            if isinstance(log, MemoryLog):
                log.faults.extend(faults)
        else:
            self.faults += faults

    def mend(self) -> None:
        """Let it reach the present leader, and a replica that has all."""
        self.is_cut = False
        self.replica_end = self.leader_end = None
        self.set_ways()

    def clear_faults(self) -> None:
        """Let its appends be answered."""
        self.faults.clear()
        for log in self._logs:
            log.faults.clear()

    # -- what its threads do -----------------------------------------------------------

    def is_up(self) -> bool:
        """Return whether the process runs, and is not stopped at the moment."""
        now_s = self.world.now_s()
        return self.down_until_s == 0 and self.paused_until_s <= now_s and not self.is_busy

    def turn(self) -> None:
        """Do what is due."""
        now_s = self.world.now_s()
        if self.leader_end is not None and now_s >= self.deposed_until_s:
            self.leader_end = None
            self.set_ways()
        if self.down_until_s:
            if self.down_until_s <= now_s:
                self.start()
            return
        if not self.is_up():
            return
        self._beat(now_s)
        if self.shell is None:
            self._follow_on()
        elif self.shell.ended:
            self.resign()
        elif now_s >= self._next_watch_s:
            self._next_watch_s = now_s + WATCH_S
            self._watch(now_s)
        if now_s >= self._next_sync_s:
            self._next_sync_s = now_s + SYNC_S
            self.sync()

    def take_copy(self, content: Content) -> None:
        """Begin anew with a copy of another member's view."""
        self.disk = ViewDisk(content)
        self.is_refused = False
        self.follow()

    def refuse(self) -> None:
        """End the process: only an operator may replace its store."""
        self.is_refused = True
        self.crash(cuts_power=False, down_s=REFUSED_S)

    def begin_history(self, word: Word) -> None:
        """Let the store begin a new history, as ``penstock cluster recover`` does."""
        before = copied(self.disk.content)
        database = StoppedDatabase(self.disk, self._data_dir)
        epoch = begin_history(database, word)
        database.close()
        self._referee.give_word(before, epoch, self.disk.content)

    def restore(self, content: Content) -> None:
        """Put a backup in place of the store, as ``penstock store restore`` does."""
        self.disk = ViewDisk(content)
        database = StoppedDatabase(self.disk, self._data_dir)
        begin_epoch(database)
        database.close()

    def sync(self) -> None:
        """Sync the view."""
        sequence = self.view.position.sequence
        self.disk.sync()
        self.synced = sequence

    def beat(self) -> Beat:
        """Return what it tells the others."""
        position = self.view.position
        return Beat(
            node=self.name,
            role=self.role,
            term=position.term,
            applied=position.sequence,
            synced=min(self.synced, position.sequence),
            hands_over_to=self.hands_over_to,
            epoch=self.view.epoch,
            is_empty=not self.view.epoch and position.sequence == 0,
            former=self.view.former,
            sent_s=self.world.now_s(),
        )

    def _beat(self, now_s: float) -> None:
        if now_s >= self._next_beat_s:
            self._next_beat_s = now_s + BEAT_S
            self._heartbeats.send(encode_beat(self.beat()))
        for data in self._heartbeats.received(1.0):
            beat = decode_beat(data)
            assert beat is not None
            self._standby.record_beat(beat, now_s)
            if self.members.record(beat, now_s) and self.shell is not None:
                writer = self.writer
                if writer is None or beat.role not in COMPARED_ROLES:
                    continue
                if beat.term > writer.term:
                    self.fence(f"{beat.node} has come to term {beat.term}")
                elif self.view.epoch and has_ended(self.view.epoch, beat):
                    self.fence(f"{beat.node} has begun a new history")

    def _follow_on(self) -> None:
        heard = self.members.recent_beats(self.world.now_s(), 2 * LEASE_S)
        rank = sum(node < self.name and one.beat.role == "standby" for node, one in heard.items())
        for _ in range(READS_OF_A_TURN):
            try:
                progress = self.follower.step(rank)
            except EntriesTrimmed:
                self.world.seed(self)
                return
            except ForeignView as foreign:
                if foreign.is_empty:
                    self.world.seed(self, foreign.term)
                else:
                    self.refuse()
                return
            except Superseded as error:
                self.world.seed(self, error.term, is_given_up=True)
                return
            if progress is Progress.CLAIMED:
                assert self.follower.writer is not None
                self.serve_as_primary(self.follower.writer)
                return
            self.role = "standby" if self.follower.is_following else "waiting"
            if progress is not Progress.READ:
                return
            if self.view.claim is not None:
                self.hands_over_to = ""

    def serve_as_primary(self, writer: LogWriter) -> None:
        """Serve as the primary."""
        self.writer = writer
        self.role = "primary"
        self.hands_over_to = ""
        opener = ViewOpener(writer, self._use_view, self.database, self.view, self.open_database)
        self._opener = opener
        self.is_busy = True
        try:
            store = RocksStore(self._data_dir, (), opener)
        except (Fenced, StoreUnavailable):
            self.is_busy = False
            opener.close()
            self.follow()
            return
        self.is_busy = False
        recovered = store.recover()
        self._referee.poll()
        if self._referee.term == writer.term:
            assert recovered.next_offset == len(self._referee.rows), "a primary without all rows"
        self.shell = MemberShell(self.world.new_server(recovered), store, self)
        self._watcher = Watcher(self.new_log(), writer, self.world.entries_max, self.world.now_s)
        self._next_watch_s = self.world.now_s() + WATCH_S
        self.world.began(self)

    def _use_view(self, database: ClusterDatabase, view: View) -> None:
        self.database, self.view = database, view

    def acknowledges(self) -> None:
        """Report to the referee that the commit under way is about to be acknowledged."""
        assert self.writer is not None
        self._referee.acknowledged(self.name, self.writer.term, self.writer.position)

    def _watch(self, now_s: float) -> None:
        self._referee.poll()
        synced, fresh = self.members.synced_sequences(self.synced, now_s)
        try:
            why = self._watcher.step(synced, fresh)
        except StoreUnavailable:
            return
        if why:
            self.fence(why)

    def fence(self, why: str) -> None:
        """End the broker: another member is the primary."""
        if self.shell is not None and self.writer is not None:
            self.writer.fenced_by = self.writer.fenced_by or why
            self.shell.ended = why

    def resign(self, restarts: bool = False) -> None:
        """End the broker, and be a standby again; or end the process as well."""
        shell = self.shell
        assert shell is not None
        assert self._opener is not None
        self.world.ended(shell)
        shell.store.close()
        self._opener.close()
        self.shell = None
        self._referee.check_view(self.name, self.disk.content)
        if restarts:
            self._heartbeats.close()
            self.start()
        else:
            self.follow()

    def crash(self, cuts_power: bool, down_s: float) -> int:
        """Die; return how many writes to the view were lost."""
        if self.shell is not None:
            self.world.ended(self.shell)
            self.shell.store.close()
            self.shell = None
        self._heartbeats.close()
        self._referee.check_view(self.name, self.disk.content)
        lost = self.disk.cut_power(self.world.random) if cuts_power else 0
        self._referee.check_view(self.name, self.disk.content)
        self.down_until_s = self.world.now_s() + down_s
        return lost
