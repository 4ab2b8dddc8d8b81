"""The parts that all connections and sessions of a broker share: turn, batch, store, events.

::

      handlers ──▶ batch ──seal()──▶ Commit ──▶ store: one atomic, synced write
             │                          │                     │
             ╰───▶ turn: links          │ releases            ▼ committed
                     │ ready            ╰──────────▶ deferred bytes: acknowledgements,
                     ▼                               and deliveries of QoS 1 and 2
              bytes sent at once

The methods under "the shell" are what the driver of the event loop calls; see ``engine.api``.
"""

from __future__ import annotations

from typing import final

from penstock.engine.batch.batch import Batch
from penstock.engine.batch.blocked_publishers import BlockedPublishers
from penstock.engine.batch.commit import Commit, StoredState
from penstock.engine.batch.store_health import StoreHealth
from penstock.engine.batch.timers import Timers
from penstock.engine.memory.accounts import Accounts
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.events import Events
from penstock.engine.reporting.flight_recorder import FlightRecorder
from penstock.engine.values.clock import Now
from penstock.engine.values.counters import AllCounters
from penstock.engine.values.limit_usage import LimitUsage
from penstock.engine.values.steady_clock import ClockRecord
from penstock.engine.waiting import Resumable
from penstock.engine.wire.link import Link, Turn


class GroupSource:
    """The port by which a session takes messages from the queue of a shared subscription."""

    def precedes(self, rank: int, offset: int) -> bool:
        """Return whether the next message of the group comes before another message.

        Args:
            rank: the rank (priority) of the other message; a higher rank comes first.
            offset: the log offset of the other message; of equal ranks the lower comes first.
        """
        del rank, offset
        return False

    def give_next_to(self, taker: StoredState, now: Now) -> bool:
        """Send the session ``taker`` the first message that it may take; return whether there was
        one."""
        del taker, now
        return False

    def offer(self, now: Now) -> None:
        """Send queued messages to connected members that have room."""

    def has_free_member(self) -> bool:
        """Return whether a connected member has room for any message of QoS 1 or 2."""
        return False

    def watch_links(self) -> None:
        """Have the members without room in their links resumed when there is room again."""


class MemberConnections:
    """The port that is notified when a session connects or disconnects: see
    ``shared_subscriptions``."""

    def member_connected(self, session: StoredState, now: Now) -> None:
        """Note that ``session`` is connected, so that it may take messages from its groups."""

    def member_disconnected(self, session: StoredState, now: Now) -> None:
        """Note that the connection of ``session`` ended."""


@final
class EngineContext:
    """The parts of one broker that its connections and sessions act on.

    ``turn`` has the links with bytes to send, and the connections to resume in later turns;
    ``batch`` has the changes that the next commit writes; ``store_health`` says whether the store
    can write, and where the durable log ends.

    Args:
        next_offset: the log offset that the next appended message gets.
        budget: the memory that all clients together may use; None = no limit.
        accounts: the memory accounts of users; None = each user may use the whole budget.
    """

    def __init__(
        self, next_offset: int, budget: Pool | None = None, accounts: Accounts | None = None
    ) -> None:
        self.turn = Turn()
        self.batch = Batch(next_offset, self.turn.work_budget)
        self.store_health = StoreHealth(self.batch, self.turn)
        self.budget = budget or Pool()
        self.accounts = accounts or Accounts(self.budget)
        self.turn.buffers_bytes_max = self.budget.limits.unsent
        self.events: Events | None = None  # None: no events are written
        self.recorder: FlightRecorder | None = None  # None: the flight recorder is off
        self.timers = Timers()
        self.now_of_turn: Now | None = None  # the shell's reading of its clocks for this turn
        self.newly_reached: list[LimitUsage] = []  # the shell takes these limits
        self.blocked_publishers = BlockedPublishers(self.turn.waiting)
        self.groups_with_backlog: dict[
            str, GroupSource
        ] = {}  # groups with messages in their queues, by name
        self.member_connections = MemberConnections()

    def begin_at(self, next_offset: int) -> None:
        """Set the end of the log, which is the offset of the first message that is appended."""
        self.batch.begin_at(next_offset)
        self.store_health.durable_log_end = next_offset

    def tick(self) -> None:
        """Have publishers that wait for room, and connections that wait for a tick, resumed."""
        self.blocked_publishers.tick()
        self.turn.waiting.tick()

    def reach(self, limit_usage: LimitUsage, now: Now) -> None:
        """Note that a client is at a limit; add the limit to ``newly_reached`` if it was below."""
        if limit_usage.mark_reached(now.monotonic_s) and not limit_usage.is_watched:
            limit_usage.is_watched = True
            self.newly_reached.append(limit_usage)

    # -- the shell: what happened ------------------------------------------------------

    def attach_store(self, bytes_max: int, takes_columns: bool, waits_for_disk: bool) -> None:
        """Set the properties of the store that gets the commits.

        Args:
            bytes_max: how many bytes may wait for it; above, no client is read.
            takes_columns: whether commits have the messages as columns.
            waits_for_disk: whether a commit takes longer than the turn that seals it.
        """
        self.store_health.waiting_bytes_max = bytes_max
        self.store_health.waits_for_disk = waits_for_disk
        if takes_columns:
            self.batch.collect_columns()

    def set_time(self, now: Now) -> None:
        """Take a reading of the clocks: what is noted from now on has this time."""
        if self.events is not None:
            self.events.now_us = now.wall_us
        if self.recorder is not None:
            self.recorder.clock.set(now)

    def put_clock(self, record: ClockRecord) -> None:
        """Have the next commit store the clock, from which the next start continues."""
        self.batch.put_clock(record)

    def end_turn(self, took_s: float) -> None:
        """Note that a turn took ``took_s`` seconds: the work of the next ones is adapted to it."""
        self.turn.work_budget.adapt_to_turn(took_s)

    def resume_soon(self, resumable: Resumable | None) -> None:
        """Have a connection, if any, continue in the next turn: what held it up is over."""
        self.turn.waiting.until_turn(resumable)

    def committed(self, commit: Commit) -> None:
        """Note that ``commit`` and all before it are durable: its packets may be sent."""
        if self.events is not None:
            self.events.note_committed()
        self.store_health.mark_committed(commit)

    def commit_failed(self, why: str) -> None:
        """Note that the store cannot write, and tries again; ``why`` is one sentence."""
        self.store_health.mark_failed(why)

    def store_recovered(self) -> None:
        """Note that the store can write again, and wake the publishers that it blocked."""
        if self.store_health.mark_recovered():
            self.blocked_publishers.wake(self.blocked_publishers.store)

    def expect_no_commit(self) -> None:
        """Note that no commit will follow: a link that is closed waits for none."""
        self.turn.awaits_no_commit = True

    def limit_batch(self, bytes_max: int) -> None:
        """Limit the size of a batch, unless the store fails; above, heavy clients wait."""
        if not self.store_health.is_failing:
            self.store_health.batch_bytes_max = bytes_max

    # -- the shell: what comes back ----------------------------------------------------

    def take_ready(self) -> list[Link]:
        """Return the links with bytes to send now; they are the caller's."""
        ready = self.turn.ready
        if ready:
            self.turn.ready = []
        return ready

    def take_closing(self) -> list[Link]:
        """Return the links to be closed once their last packets are sent; they are the caller's."""
        closing = self.turn.closing
        if closing:
            self.turn.closing = []
        return closing

    def take_newly_reached(self) -> list[LimitUsage]:
        """Return the limits that clients have reached since the last call."""
        reached = self.newly_reached
        if reached:
            self.newly_reached = []
        return reached

    @property
    def has_work(self) -> bool:
        """Return whether work is left for the next turn, see ``Server.resume``."""
        return self.turn.waiting.has_turn

    @property
    def needs_commit(self) -> bool:
        """Return whether the open batch must be committed soon.

        It must if packets or connections wait for the seal, or if the batch has more than the
        states of sessions.
        """
        return self.turn.waits_for_batch or self.batch.needs_commit

    @property
    def has_progress(self) -> bool:
        """Return whether the open batch has states of sessions, for which no client waits."""
        return len(self.batch.changed_states) > 0

    @property
    def batch_bytes(self) -> int:
        """Return the size of the open batch, in bytes."""
        return self.batch.size_bytes

    @property
    def log_end(self) -> int:
        """Return the log offset that the next message gets."""
        return self.batch.next_offset

    @property
    def counters(self) -> AllCounters:
        """Return what was counted: packets and bytes, commits, sessions that expired."""
        return self.turn.counters

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes for all clients that their systems have not taken yet."""
        return self.turn.unsent_bytes + self.turn.buffered_bytes

    @property
    def is_timed(self) -> bool:
        """Return whether somebody notes times: the clocks should be read before a commit is
        noted."""
        return self.events is not None or self.recorder is not None

    @property
    def store_failure(self) -> str:
        """Return why the store cannot write, in one sentence; empty while it can."""
        return self.store_health.failure

    def is_full(self) -> bool:
        """Return whether so much waits for commits and sockets that no client is read."""
        return self.store_health.is_full()

    def seal(self) -> Commit:
        """Seal the open batch and begin the next; return its commit, which is to be written."""
        if self.events is not None:
            self.events.seal()
        turn = self.turn
        turn.work_budget.batch += 1
        commit = self.batch.seal()
        commit.deferred_packets = turn.seal_links()
        if commit.has_writes:
            turn.counters.commits += 1
        turn.waiting.sealed()
        return commit
