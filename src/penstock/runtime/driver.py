"""The driver: runs the engine's turns on an event loop.

::

      socket bytes ─▶ Peer.data_received ─▶ engine ─▶ open batch, links   (many times in one turn)
      what an earlier turn left ────────▶
                                                    │ end of turn
                    ready bytes written ◀───────────┤
                                                    ▼ seal, if no commit is under way
                                 committer ─▶ store: one synced write
                                                    │ committed
        deferred bytes written ◀────────────────────╯  and the next batch is sealed

One commit is under way at a time; messages that arrive meanwhile share the next. One that fails is
under way until the committer has written it after all. Where no client waits for a commit, because
only sessions made progress, it comes ``_PROGRESS_S`` later, or with the next one. A connection does
a bounded amount of work in one turn: the driver adapts the bound so that all connections together
take no longer than ``work_budget.SLICE_S``. The engine resumes in a later turn the rest of that
work, and publishers that wait for room; until then their sockets are not read
(``read_control``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from penstock.engine.access.access import AuthResult
from penstock.engine.batch.commit import Commit
from penstock.engine.clock import Now
from penstock.engine.connection.connection import Connection
from penstock.engine.connection.slow_peer import SlowPeer
from penstock.engine.connection.states import CONNECTED
from penstock.engine.dialling.client_connection import ClientConnection
from penstock.engine.limits import EngineLimits
from penstock.engine.server.server import Server
from penstock.engine.server.server_connection import ServerConnection
from penstock.engine.wire.link import Link
from penstock.errors import StoreFailed
from penstock.protocol import reasons
from penstock.runtime.batch_size import BatchSize
from penstock.runtime.bodies import BodyReader
from penstock.runtime.client_log import ClientLog
from penstock.runtime.committer import Committer
from penstock.runtime.deadlines import Deadlines
from penstock.runtime.machine_clock import MachineClock
from penstock.runtime.measures import SLOW_TURN_S, LoopMeasures
from penstock.runtime.peer import Peer, PeerOwner
from penstock.runtime.read_control import ReadControl
from penstock.store.api import Store
from penstock.telemetry.logs import get_logger
from penstock.transport.api import Wire

logger = get_logger(__name__)

_TICK_S: Final = 0.25
_PROGRESS_S: Final = 0.05  # progress of sessions waits so long for a commit that a client needs


@final
class Driver(PeerOwner):
    """Runs one ``Server`` against its store.

    Args:
        server: the engine.
        store: takes the commits, and has the bodies of messages.
        commit_bytes_max: message bytes waiting for a commit above which reading pauses.
        failed: called once when the store failed for good, with the reason.
        store_retry_s_max: how long a failed commit is tried again, seconds; 0 = not at all.
        turn_ended: called at the end of each turn.
        clock: the clock with which the engine was started; None for one without an earlier run.

    Attributes:
        measures: how long commits and turns take.
    """

    def __init__(
        self,
        server: Server,
        store: Store,
        commit_bytes_max: int,
        failed: Callable[[StoreFailed], None],
        store_retry_s_max: float = 0.0,
        turn_ended: Callable[[], None] | None = None,
        clock: MachineClock | None = None,
    ) -> None:
        self._server = server
        self._context = server.context
        self._store = store
        self._context.store.waiting_bytes_max = commit_bytes_max
        if store.writes_columns:
            self._context.batch.collect_columns()
        self._on_store_failed = failed
        self._loop = asyncio.get_running_loop()
        self._committer: Committer | None = None
        waits = store.acknowledged_when != "memory"
        if waits:
            self._committer = Committer(
                store, self._loop, self._committed, self._store_failing, store_retry_s_max
            )
            self._context.store.waits_for_disk = True
        self._batch_size = BatchSize(commit_bytes_max)
        self._batch_bytes = 0  # of the commit under way
        self._sealed_s = 0.0  # when it was sealed
        self.measures = LoopMeasures()
        self._read_peer: Peer | None = None  # read last in this turn
        self._read_since_s = 0.0
        self._turn_ended = turn_ended
        self.turns = 0  # that have ended
        self._bodies = BodyReader(store.read, self.now, self.end_turn_soon, waits)
        self._peers: dict[Link, Peer] = {}
        self._deadlines = Deadlines()
        self._read_control = ReadControl(self._context, self.end_turn_soon)
        self._congested: dict[Link, SlowPeer] = {}
        self._turn_end_scheduled = False
        self._turn_began_s = 0.0  # when its first input arrived
        self._turn_begin_scheduled = False
        self._progress_timer: asyncio.TimerHandle | None = None
        # each is done when the commit under way, the open or the sealed batch is durable
        self._commit_done: asyncio.Future[None] | None = None
        self._open_batch_durable: asyncio.Future[None] | None = None
        self._sealed_batch_durable: asyncio.Future[None] | None = None
        self._failed = False
        self._has_stopped = False  # whether nothing is committed any more
        self._end_reason = ""  # why no client is served any more; empty while clients are served
        self._failing_since_s = 0.0  # 0 = the store works
        self._clock = clock or MachineClock(None, server.context.batch.next_offset)
        self._log = ClientLog(server)
        self._tick_due_s = time.monotonic() + _TICK_S
        self._tick_cpu_s = time.thread_time()
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        self._store_clock()  # before what this start dates
        self.end_turn_soon()

    def now(self) -> Now:
        """Return the present time of the clocks; the wall clock's time goes back only if it was set
        back for good."""
        now = self._clock.now()
        if self._context.events is not None:
            self._context.events.now_us = now.wall_us
        if self._context.recorder is not None:
            self._context.recorder.clock.set(now)
        return now

    def now_of_turn(self) -> Now:
        """Return the clocks as they were when they were first read in this turn."""
        now = self._context.turn.now
        if now is None:
            now = self._context.turn.now = self.now()
            self.end_turn_soon()
        return now

    # -- connections -------------------------------------------------------------------

    def accept(
        self,
        wire: Wire,
        limits: EngineLimits,
        lets_anonymous_in: bool = True,
        identity_of: Callable[[Wire], str | None] | None = None,
    ) -> Peer:
        """Take a new connection, with the limits of its listener; return its peer.

        ``identity_of`` returns the user that the wire proves; None: CONNECT names the user.
        """
        connection = ServerConnection(self._server, limits, self.now())
        connection.lets_anonymous_in = lets_anonymous_in
        connection.address = wire.peer
        if identity_of is not None:
            connection.identity = identity_of(wire)
        peer = Peer(self, wire, connection)
        self._peers[connection.link] = peer
        if self._end_reason:  # its handshake was under way
            connection.close(reasons.SERVER_SHUTTING_DOWN, self._end_reason, self.now())
            self._loop.call_soon(wire.close)
        self._deadlines.watch(peer)
        return peer

    def adopt(self, wire: Wire, connection: ClientConnection) -> Peer:
        """Run a connection that a bridge dialled."""
        peer = Peer(self, wire, connection)
        self._peers[connection.link] = peer
        if self._end_reason:
            connection.close(reasons.SERVER_SHUTTING_DOWN, self._end_reason, self.now())
            self._loop.call_soon(wire.close)
        self._deadlines.watch(peer)
        self.end_turn_soon()
        return peer

    def data_received(self, peer: Peer, data: bytes) -> None:
        """Hand bytes from a client to its connection; pause reading while the connection must
        wait."""
        connection = peer.connection
        was = connection.state
        now = self.now()
        if self._read_peer is not None:
            self._measure_read(now.monotonic_s)
        self._read_peer = peer
        self._read_since_s = now.monotonic_s
        self.end_turn_soon()
        connection.receive(data, now)
        if connection.state == CONNECTED and was != CONNECTED:
            self._deadlines.watch(peer)
            self._log.connected(peer)
        self._read_control.update(peer)

    def _measure_read(self, now_s: float) -> None:
        """Record the client that was read last if more than SLOW_TURN_S has passed since its bytes
        came."""
        peer = self._read_peer
        self._read_peer = None
        took_s = now_s - self._read_since_s
        if peer is not None and took_s > SLOW_TURN_S:
            self.measures.read_was_slow(self._log.name_of(peer), took_s)

    def pause_writing(self, peer: Peer) -> None:
        """Measure from now on the unsent bytes of a client: its socket did not take all at once."""
        peer.is_backed_up = True
        self._measure(peer)

    def _write(self, peer: Peer, pieces: list[bytes]) -> None:
        for piece in pieces:
            if piece:
                peer.wire.write(piece)
        if peer.is_backed_up:
            self._measure(peer)

    def _measure(self, peer: Peer) -> None:
        """Report the wire's unsent bytes to the link; start the time limit of a congested
        client."""
        link = peer.connection.link
        if not link.report_socket_buffer(peer.wire.buffered_bytes()) or link in self._congested:
            return
        timeout_s = peer.connection.limits.slow_peer_timeout_s
        if timeout_s > 0 and link in self._peers:
            self._congested[link] = SlowPeer(timeout_s, time.monotonic())

    def resume_writing(self, peer: Peer) -> None:
        """Go on sending to a client whose socket has room again."""
        self._congested.pop(peer.connection.link, None)
        peer.is_backed_up = False
        peer.connection.writable(self.now())
        self._read_control.update(peer)
        self.end_turn_soon()

    def buffered_bytes(self, link: Link) -> int:
        """Return how many bytes were sent to a client and not taken by the system yet."""
        peer = self._peers.get(link)
        return 0 if peer is None else peer.wire.buffered_bytes()

    def decided(self, link: Link, verdict: AuthResult) -> None:
        """Pass the result of authentication to the client of ``link``, which may be gone."""
        peer = self._peers.get(link)
        if peer is not None and not self._failed:
            assert isinstance(peer.connection, ServerConnection)
            peer.connection.decided(verdict, self.now())
            if peer.connection.state == CONNECTED:
                self._log.connected(peer)
            self._deadlines.watch(peer)
            self._read_control.update(peer)
            self._drop_if_closed(peer)
            self.end_turn_soon()

    def connection_lost(self, peer: Peer, reason: str) -> None:
        """Note that a client's socket is gone, and why."""
        connection = peer.connection
        peer.is_lost = True
        peer.is_backed_up = False
        connection.link.report_socket_buffer(0)
        if peer.socket_gone is not None and not peer.socket_gone.done():
            peer.socket_gone.set_result(None)
        connection.lost(reason, self.now())
        self._read_control.forget(peer)
        self._congested.pop(connection.link, None)
        self._drop_if_closed(peer)
        self.end_turn_soon()

    def _drop_if_closed(self, peer: Peer) -> None:
        """Forget a peer whose socket is gone once its connection is over, too."""
        connection = peer.connection
        if not peer.is_closed or self._peers.pop(connection.link, None) is None:
            return
        self._deadlines.forget(peer)
        self._log.disconnected(peer)

    @property
    def store_fails(self) -> bool:
        """Return whether the store cannot write, and is tried again."""
        return self._context.store.fails

    def commit_waits_s(self) -> float:
        """Return how long the commit under way has taken until now, in seconds; 0 without one."""
        return 0.0 if self._commit_done is None else time.monotonic() - self._sealed_s

    # -- turns -------------------------------------------------------------------------

    def end_turn_soon(self) -> None:
        """Schedule the end of this turn, when all sockets that are ready have been read."""
        if not self._turn_end_scheduled:
            self._turn_end_scheduled = True
            self._turn_began_s = time.monotonic()
            self._loop.call_soon(self._end_turn)

    def push(self) -> None:
        """Write packets that are ready, and seal the open batch if it is needed, before the turn
        ends.

        Programs call it; it must not be called within a call of the driver's.
        """
        self._write_ready()
        if self._commit_done is None and not self._failed:
            if (
                self._context.needs_commit
                or self._open_batch_durable is not None
                or self._end_reason
            ):
                self._commit()
            elif self._context.batch.changed and self._progress_timer is None:
                self._progress_timer = self._loop.call_later(_PROGRESS_S, self._commit_progress)

    def _end_turn(self) -> None:
        has_begun = self._turn_end_scheduled  # else a commit ended, and no input came
        self._turn_end_scheduled = False
        self._context.turn.now = None
        if self._read_peer is not None:
            self._measure_read(time.monotonic())
        self.push()
        now_s = time.monotonic()
        took_s = now_s - self._turn_began_s
        self._context.turn.work_budget.turn_took(took_s)
        if took_s > SLOW_TURN_S and has_begun:
            self.measures.turn_was_slow(took_s)
        # a commit may have ended this turn early; its scheduled end comes later
        self._turn_began_s = now_s
        if self._context.turn.unfinished and not self._turn_begin_scheduled:
            self._turn_begin_scheduled = True
            self._loop.call_soon(self._begin_turn)
        if self._turn_ended is not None:
            self._turn_ended()
        self.turns += 1

    def _begin_turn(self) -> None:
        """Resume the work that earlier turns left over, after the sockets have been read."""
        self._turn_begin_scheduled = False
        now = self.now()
        self.end_turn_soon()
        resumed = self._server.resume(now)
        for user in resumed:
            if isinstance(user, Connection):
                peer = self._peers.get(user.link)
                if peer is not None:
                    self._read_control.update(peer)

    def _write_ready(self) -> None:
        context = self._context
        ready = context.turn.ready
        if ready:
            context.turn.ready = []
            for link in ready:
                peer = self._peers.get(link)
                pieces = link.take_ready()
                if peer is not None:
                    self._write(peer, pieces)
        closing = context.turn.closing
        if closing:
            context.turn.closing = []
            for link in closing:
                peer = self._peers.get(link)
                if peer is not None and link.drained:
                    peer.wire.close()
                    self._log.closed(peer)

    async def wait_durable(self) -> None:
        """Wait until everything done up to now is durable.

        Raises:
            StoreFailed: the store failed for good, or ``stop`` has made its last commit.
        """
        if self._has_stopped:
            raise StoreFailed("it was stopped before this was on disk")
        if self._open_batch_durable is None:
            self._open_batch_durable = self._loop.create_future()
            if self._failed:
                self._open_batch_durable.set_exception(StoreFailed("the store failed"))
        self.end_turn_soon()
        await asyncio.shield(self._open_batch_durable)

    def _commit_progress(self) -> None:
        """Commit the progress of sessions, when no client has needed a commit for a while."""
        self._progress_timer = None
        if self._commit_done is None and not self._failed and self._context.batch.changed:
            self._write_ready()  # it comes before what the batch holds
            self._commit()

    def _commit(self) -> None:
        assert self._commit_done is None, "one commit is under way at a time"
        self._batch_bytes = self._context.batch.size_bytes
        commit = self._context.seal()
        if commit.writes:
            self._sealed_s = time.monotonic()
            self.measures.sealed(commit.appended, self._batch_bytes)
        self._sealed_batch_durable = self._open_batch_durable
        self._open_batch_durable = None
        if self._committer is None or not commit.writes:
            if commit.writes:
                self._store.commit(commit)
            self._release(commit)
        else:
            self._commit_done = self._loop.create_future()
            self._committer.submit(commit)
            took_s = time.monotonic() - self._sealed_s
            if took_s > SLOW_TURN_S:
                self.measures.encoding_was_slow(took_s)

    def _committed(self, commit: Commit, failure: StoreFailed | None) -> None:
        under_way = self._commit_done
        assert under_way is not None
        self._commit_done = None
        under_way.set_result(None)
        assert self._committer is not None
        self._batch_size.adapt(self._batch_bytes, self._committer.took_s)
        if not self._context.store.fails:
            self._context.store.batch_bytes_max = self._batch_size.bytes_max
        if failure is not None:
            self._fail(failure)
            return
        self.measures.committed(time.monotonic() - self._sealed_s, self._committer.took_s)
        self._release(commit)
        self._end_turn()

    def _store_failing(self, failure: StoreFailed | None) -> None:
        """Note that the store cannot write, and is tried again; with None, that it can again."""
        context = self._context
        if failure is None:
            outage_s = time.monotonic() - self._failing_since_s
            self._failing_since_s = 0.0
            context.store_recovered()
            for peer in self._peers.values():
                context.turn.resume_later(peer.connection)
            logger.warning(
                "the store can write again, after %.1f s: no acknowledged message was lost",
                outage_s,
            )
        else:
            if self._failing_since_s == 0.0:
                self._failing_since_s = time.monotonic()
                self.measures.outages += 1
            context.store.failed(str(failure))
            logger.error(
                "%s. Until then nothing is acknowledged; QoS 0 reaches clients, and what the log"
                " has no memory for is missing in streams",
                failure,
            )
        self.end_turn_soon()

    def _release(self, commit: Commit) -> None:
        """Release the acknowledgements and deliveries that waited for ``commit``, which is
        durable."""
        if self._context.events is not None or self._context.recorder is not None:
            self.now()
        if self._context.events is not None:
            self._context.events.committed()
        if self._sealed_batch_durable is not None:
            self._sealed_batch_durable.set_result(None)
            self._sealed_batch_durable = None
        self._context.store.committed(commit)
        for release in commit.releases:
            link = release.link
            peer = self._peers.get(link)
            if peer is not None and (link.draining or not link.closed):
                self._write(peer, release.pieces)
            release.done()
            if peer is not None and link.draining and link.drained:
                peer.wire.close()
        self._write_ready()
        for stored, offsets in commit.body_requests:
            self._bodies.fetch(stored, offsets)

    def _fail(self, failure: StoreFailed) -> None:
        """Fail closed: acknowledge nothing more, and close all connections."""
        if self._failed:
            return
        self._failed = True
        for waiting in (self._sealed_batch_durable, self._open_batch_durable):
            if waiting is not None:
                waiting.set_exception(failure)
        self._bodies.stop()
        logger.error("%s; nothing is acknowledged any more", failure)
        self._close_all(reasons.UNSPECIFIED_ERROR, "the store failed")
        self._write_ready()
        self._on_store_failed(failure)

    # -- time --------------------------------------------------------------------------

    def _tick(self) -> None:
        now_s = time.monotonic()
        cpu_s = time.thread_time()
        self.measures.ticked(max(0.0, now_s - self._tick_due_s), cpu_s - self._tick_cpu_s)
        self._tick_due_s = now_s + _TICK_S
        self._tick_cpu_s = cpu_s
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        self._check_clock()
        now = self.now()
        for peer in self._deadlines.due(now.monotonic_s):
            peer.connection.tick(now)
            self._deadlines.watch(peer)
            self._drop_if_closed(peer)
        self._give_up_slow_peers(now)
        self._close_hung_up(now)
        self._server.tick(now)
        self._log.drops(now.monotonic_s)
        self._log.refused_filters(now.monotonic_s)
        self.end_turn_soon()

    def _check_clock(self) -> None:
        if self._clock.check_jump(self._context.batch.next_offset):
            now = self.now()
            if now.lead_us != self._context.batch.lead_us:
                self._server.clock_jumped(now)
            self._store_clock()

    def _store_clock(self) -> None:
        if self._committer is not None:  # else there is no next start
            self._context.batch.put_clock(self._clock.record())

    def _give_up_slow_peers(self, now: Now) -> None:
        for link, slow in list(self._congested.items()):
            peer = self._peers[link]
            taken_bytes = link.unwritten_bytes - peer.wire.unwritten_bytes()
            if slow.has_stalled(taken_bytes, now.monotonic_s):
                del self._congested[link]
                peer.connection.close(
                    reasons.IMPLEMENTATION_SPECIFIC_ERROR,
                    f"it read nothing for {slow.timeout_s:g} s while its write buffer was full",
                    now,
                )

    def _close_hung_up(self, now: Now) -> None:
        if self._failing_since_s > 0.0 or self._context.store.is_full():
            return  # what they left must wait
        self._read_control.close_hung_up(now)

    @property
    def commit_attempts(self) -> int:
        """Return how many attempts to write a commit have ended; -1 while none is under way."""
        if self._committer is None or self._commit_done is None:
            return -1
        return self._committer.attempts

    def retry_store_for(self, store_retry_s_max: float) -> None:
        """Set how many seconds a commit that fails from now on is tried again; 0 = not at all."""
        if self._committer is not None:
            self._committer.retry_s_max = store_retry_s_max

    # -- the end -----------------------------------------------------------------------

    def _close_all(
        self, reason_code: int, because: str, references: dict[str, str] | None = None
    ) -> None:
        """Close every connection, also before its CONNECT, and refuse new ones."""
        now = self.now()
        self._end_reason = because
        self._server.shut_down(reason_code, because, now, references)
        if references is not None:
            reason_code = reasons.SERVER_SHUTTING_DOWN  # of what is no client: our bridges
        for peer in list(self._peers.values()):
            peer.connection.close(reason_code, because, now)
            self._drop_if_closed(peer)

    async def stop(self, references: dict[str, str] | None = None) -> None:
        """Close all connections, commit the open batch, and end the committer.

        Args:
            references: HOST:PORT of the server that takes over, for the clients of each listener,
                by the listener's name: MQTT 5 clients are sent there (0x9C, v5 §4.11). None: no
                server takes over; they get the configured farewell.
        """
        self._ticker.cancel()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        self._bodies.stop()
        if not self._failed:
            if references is None:
                self._close_all(reasons.SERVER_SHUTTING_DOWN, "the server is shutting down")
            else:
                because = "another machine of the cluster takes over"
                self._close_all(reasons.USE_ANOTHER_SERVER, because, references)
            self._store_clock()
            self._end_turn()
            self._log.drops(self.now().monotonic_s)
        if self._committer is not None:
            self._committer.stop_trying()
            await self._last_commit()
            if not self._failed and self._server.write_events(self.now()):  # about that commit
                self._end_turn()
                await self._last_commit()
            self._committer.stop()
            self._has_stopped = True

    async def _last_commit(self) -> None:
        while self._commit_done is not None:
            await self._commit_done
