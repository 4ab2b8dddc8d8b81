"""The driver: runs the engine's turns on an event loop.

::

      socket bytes ─▶ Peer.data_received ─▶ engine ─▶ open batch, links   (many times in one turn)
      unfinished work of earlier turns ───▶
                                                    │ end of turn
                    ready bytes written ◀───────────┤
                                                    ▼ seal, if no commit is under way
                                 committer ─▶ store: one synced write
                                                    │ committed
        deferred bytes written ◀────────────────────╯  and the next batch is sealed

One commit is under way at a time; messages that arrive meanwhile share the next commit. A commit
that fails stays under way until the committer has written it. If no client waits for a commit,
because only sessions made progress, it follows ``_PROGRESS_S`` later, or with the next commit. A
connection does a bounded amount of work in one turn: the driver adapts the bound so that all
connections together take no longer than ``work_budget.SLICE_S``. The engine resumes unfinished
work, and publishers that wait for room, in a later turn; until then their sockets are not read
(``read_control``).

A connection that this side closes sends what its peer is owed first: its link *drains* until the
commits of its packets are durable (``link``), at most for ``DRAIN_S_MAX``. ``stop`` has the states
of a planned stop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, final

from penstock.engine.api import ClientConnection, Commit, Connection, Link, Server, ServerConnection
from penstock.engine.values.access import AuthResult
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.states import CONNECTED
from penstock.errors import StoreUnavailable
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
from penstock.runtime.slow_peer import SlowPeer
from penstock.runtime.stop import (
    CLOSED,
    COMMITTING,
    DRAIN_S_MAX,
    FINISHING,
    FLUSHING,
    NEXT,
    RUNNING,
    StopState,
)
from penstock.store.port import Store
from penstock.telemetry.logs import get_logger
from penstock.transport.wire import Wire

logger = get_logger(__name__)

_TICK_S: Final = 0.25
_PROGRESS_S: Final = 0.05  # time that progress of sessions waits for a commit


@final
class Driver(PeerOwner):
    """Runs one ``Server`` against its store.

    Args:
        server: the engine.
        store: the store, which writes the commits and has the bodies of messages.
        commit_bytes_max: bytes of messages waiting for a commit above which reading pauses.
        on_store_failed: called once with the failure when the store failed for good.
        store_retry_s_max: seconds for which a failed commit is tried again; 0 = not at all.
        on_turn_end: called at the end of each turn.
        clock: the clock with which the engine was started; None for a new clock.

    Attributes:
        measures: measurements of commits and turns.
        turns: the number of turns that have ended.
    """

    def __init__(
        self,
        server: Server,
        store: Store,
        commit_bytes_max: int,
        on_store_failed: Callable[[StoreUnavailable], None],
        store_retry_s_max: float = 0.0,
        on_turn_end: Callable[[], None] | None = None,
        clock: MachineClock | None = None,
    ) -> None:
        self._server = server
        self._context = server.context
        self._store = store
        self._on_store_failed = on_store_failed
        self._loop = asyncio.get_running_loop()
        self._committer: Committer | None = None
        is_on_disk = store.acknowledged_when != "memory"
        self._context.attach_store(commit_bytes_max, store.writes_columns, is_on_disk)
        if is_on_disk:
            self._committer = Committer(
                store, self._loop, self._end_commit, self._handle_outage, store_retry_s_max
            )
        self._batch_size = BatchSize(commit_bytes_max)
        self._batch_bytes = 0  # of the commit under way
        self._sealed_s = 0.0  # when it was sealed
        self.measures = LoopMeasures()
        self._read_peer: Peer | None = None  # read last in this turn
        self._read_since_s = 0.0
        self._on_turn_end = on_turn_end
        self.turns = 0
        self._bodies = BodyReader(store.read, self.now, self.end_turn_soon, is_on_disk)
        self._peers: dict[Link, Peer] = {}
        self._deadlines = Deadlines()
        self._read_control = ReadControl(self._context, self.end_turn_soon)
        self._congested: dict[Link, SlowPeer] = {}
        self._draining: dict[Link, float] = {}  # closed links with unsent packets: since when
        self._turn_end_scheduled = False
        self._turn_began_s = 0.0  # when its first input arrived
        self._turn_begin_scheduled = False
        self._progress_timer: asyncio.TimerHandle | None = None
        # Each is done when the commit under way, the open or the sealed batch is durable.
        self._commit_done: asyncio.Future[None] | None = None
        self._open_batch_durable: asyncio.Future[None] | None = None
        self._sealed_batch_durable: asyncio.Future[None] | None = None
        self._has_failed = False
        self._stop = RUNNING  # the state of a planned stop
        self._releasing: list[Connection] = []  # have a QoS 2 message under way: FINISHING
        self._all_released: asyncio.Future[None] | None = None  # done when none has
        self._last_closed: asyncio.Future[None] | None = None  # done when no socket is left
        self._end_reason = ""  # set once clients are served no more
        self._failing_since_s = 0.0  # 0 = the store works
        self._clock = clock or MachineClock(None, server.context.log_end)
        self._log = ClientLog(server)
        self._tick_due_s = time.monotonic() + _TICK_S
        self._tick_cpu_s = time.thread_time()
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        self._store_clock()  # before the first message with a time of this start
        self.end_turn_soon()

    def now(self) -> Now:
        """Return the present time of the clocks.

        The wall clock's time goes back only if the clock was set back for good.
        """
        now = self._clock.now()
        self._context.set_time(now)
        return now

    def now_of_turn(self) -> Now:
        """Return the time of the clocks at their first reading in this turn."""
        now = self._context.now_of_turn
        if now is None:
            now = self._context.now_of_turn = self.now()
            if not self._turn_end_scheduled:
                self._begin_turn_at(now.monotonic_s)
        return now

    # -- connections -------------------------------------------------------------------

    def accept(
        self,
        wire: Wire,
        limits: EngineLimits,
        allows_anonymous: bool = True,
        identity_of: Callable[[Wire], str | None] | None = None,
    ) -> Peer:
        """Take an accepted connection; return its peer.

        Args:
            wire: the connection.
            limits: the limits of its listener.
            allows_anonymous: whether clients without a user name are accepted.
            identity_of: returns the user name that the wire proves, by a certificate; None if
                CONNECT names the user.
        """
        connection = ServerConnection(self._server, limits, self.now())
        connection.allows_anonymous = allows_anonymous
        connection.address = wire.peer
        if identity_of is not None:
            connection.identity = identity_of(wire)
        peer = Peer(self, wire, connection)
        self._peers[connection.link] = peer
        if self._stop is not RUNNING:
            connection.finish()
        if self._end_reason:  # its handshake was under way
            connection.close(reasons.SERVER_SHUTTING_DOWN, self._end_reason, self.now())
            self._loop.call_soon(wire.close)
        self._deadlines.watch(peer)
        return peer

    def adopt(self, wire: Wire, connection: ClientConnection) -> Peer:
        """Take a connection that was dialled; return its peer."""
        peer = Peer(self, wire, connection)
        self._peers[connection.link] = peer
        if self._stop is not RUNNING:
            connection.finish()
        if self._end_reason:
            connection.close(reasons.SERVER_SHUTTING_DOWN, self._end_reason, self.now())
            self._loop.call_soon(wire.close)
        self._deadlines.watch(peer)
        self.end_turn_soon()
        return peer

    def data_received(self, peer: Peer, data: bytes) -> None:
        """Pass bytes from a client to its connection; pause reading if the connection must wait."""
        connection = peer.connection
        former_state = connection.state
        now = self.now()
        if self._read_peer is not None:
            self._measure_read(now.monotonic_s)
        self._read_peer = peer
        self._read_since_s = now.monotonic_s
        if not self._turn_end_scheduled:
            self._begin_turn_at(now.monotonic_s)
        connection.receive(data, now)
        if connection.state == CONNECTED and former_state != CONNECTED:
            self._deadlines.watch(peer)
            self._log.log_connect(peer)
        self._read_control.update(peer)

    def _measure_read(self, now_s: float) -> None:
        """Record the client that was read last if handling its bytes took more than
        SLOW_TURN_S."""
        peer = self._read_peer
        self._read_peer = None
        took_s = now_s - self._read_since_s
        if peer is not None and took_s > SLOW_TURN_S:
            self.measures.record_slow_read(self._log.name_of(peer), took_s)

    def pause_writing(self, peer: Peer) -> None:
        """Begin to measure the unsent bytes of a client: its write buffer is full."""
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
            self._congested[link] = SlowPeer(timeout_s)

    def resume_writing(self, peer: Peer) -> None:
        """Continue sending to a client: its write buffer has room again."""
        self._congested.pop(peer.connection.link, None)
        peer.is_backed_up = False
        peer.connection.writable(self.now())
        self._read_control.update(peer)
        self.end_turn_soon()

    def buffered_bytes(self, link: Link) -> int:
        """Return the number of bytes that were sent to a client and not taken by the system yet."""
        peer = self._peers.get(link)
        return 0 if peer is None else peer.wire.buffered_bytes()

    def deliver_verdict(self, link: Link, verdict: AuthResult) -> None:
        """Pass the result of authentication to the client of ``link``, if it is still connected."""
        peer = self._peers.get(link)
        if peer is not None and not self._has_failed:
            assert isinstance(peer.connection, ServerConnection)
            peer.connection.apply_late_verdict(verdict, self.now())
            if peer.connection.state == CONNECTED:
                self._log.log_connect(peer)
            self._deadlines.watch(peer)
            self._read_control.update(peer)
            self._drop_if_closed(peer)
            self.end_turn_soon()

    def connection_lost(self, peer: Peer, reason: str) -> None:
        """Tell the peer's connection why its socket is closed."""
        connection = peer.connection
        peer.is_lost = True
        peer.is_backed_up = False
        connection.link.report_socket_buffer(0)
        connection.lost(reason, self.now())
        self._read_control.forget(peer)
        self._congested.pop(connection.link, None)
        self._draining.pop(connection.link, None)
        self._drop_if_closed(peer)
        self.end_turn_soon()

    def _drop_if_closed(self, peer: Peer) -> None:
        """Forget a peer once both its socket and its connection are closed."""
        connection = peer.connection
        if not peer.is_closed or self._peers.pop(connection.link, None) is None:
            return
        self._deadlines.forget(peer)
        self._log.log_disconnect(peer)
        if self._last_closed is not None and not self._peers and not self._last_closed.done():
            self._last_closed.set_result(None)

    @property
    def store_fails(self) -> bool:
        """True while the store cannot write, and commits are tried again."""
        return self._context.store_failure != ""

    def commit_waits_s(self) -> float:
        """Return the age of the commit under way, in seconds; 0 if none is under way."""
        return 0.0 if self._commit_done is None else time.monotonic() - self._sealed_s

    # -- turns -------------------------------------------------------------------------

    def end_turn_soon(self) -> None:
        """Schedule the end of this turn, after all sockets that are ready have been read."""
        if not self._turn_end_scheduled:
            self._begin_turn_at(time.monotonic())

    def _begin_turn_at(self, now_s: float) -> None:
        """Note when this turn began, and schedule its end."""
        self._turn_end_scheduled = True
        self._turn_began_s = now_s
        self._loop.call_soon(self._end_turn)

    def push(self) -> None:
        """Write packets that are ready, and commit the open batch if a client waits for it, without
        waiting for the end of the turn.

        It must not be called from a callback of the driver.
        """
        self._write_ready()
        if self._commit_done is None and not self._has_failed:
            if (
                self._context.needs_commit
                or self._open_batch_durable is not None
                or self._end_reason
            ):
                self._commit()
            elif self._context.has_progress and self._progress_timer is None:
                self._progress_timer = self._loop.call_later(_PROGRESS_S, self._commit_progress)

    def _end_turn(self) -> None:
        has_begun = self._turn_end_scheduled  # False if a commit ended without new input
        self._turn_end_scheduled = False
        self._context.now_of_turn = None
        if self._read_peer is not None:
            self._measure_read(time.monotonic())
        self.push()
        now_s = time.monotonic()
        took_s = now_s - self._turn_began_s
        self._context.end_turn(took_s)
        if took_s > SLOW_TURN_S and has_begun:
            self.measures.record_slow_turn(took_s)
        # The end of a commit may end this turn early; its scheduled end follows later.
        self._turn_began_s = now_s
        if self._context.has_work and not self._turn_begin_scheduled:
            self._turn_begin_scheduled = True
            self._loop.call_soon(self._begin_turn)
        if self._on_turn_end is not None:
            self._on_turn_end()
        if self._all_released is not None:
            self._check_released(self._all_released)
        self.turns += 1

    def _begin_turn(self) -> None:
        """Resume the unfinished work of earlier turns, after the sockets have been read."""
        self._turn_begin_scheduled = False
        now = self.now()
        self.end_turn_soon()
        resumed = self._server.resume(now)
        for resumable in resumed:
            if isinstance(resumable, Connection):
                peer = self._peers.get(resumable.link)
                if peer is not None:
                    self._read_control.update(peer)

    def _write_ready(self) -> None:
        for link in self._context.take_ready():
            peer = self._peers.get(link)
            pieces = link.take_ready()
            if peer is not None:
                self._write(peer, pieces)
        for link in self._context.take_closing():
            peer = self._peers.get(link)
            if peer is not None and link.is_drained:
                self._close_wire(peer)
            elif peer is not None:
                self._draining[link] = time.monotonic()

    def _close_wire(self, peer: Peer) -> None:
        """Close the socket of a peer whose last packet was written."""
        self._draining.pop(peer.connection.link, None)
        peer.wire.close(lingers=peer.connection.is_closed_locally)
        self._log.log_close(peer)

    async def wait_durable(self) -> None:
        """Wait until all changes up to now are durable.

        Raises:
            StoreUnavailable: the store failed for good, or ``stop`` has made the last commit.
        """
        if not self._stop.commits:
            raise StoreUnavailable("it was stopped before this was on disk")
        if self._open_batch_durable is None:
            self._open_batch_durable = self._loop.create_future()
            if self._has_failed:
                self._open_batch_durable.set_exception(StoreUnavailable("the store failed"))
        self.end_turn_soon()
        await asyncio.shield(self._open_batch_durable)

    def _commit_progress(self) -> None:
        """Commit the progress of sessions, if no client has needed a commit for ``_PROGRESS_S``."""
        self._progress_timer = None
        if self._commit_done is None and not self._has_failed and self._context.has_progress:
            self._write_ready()  # before packets that wait for the batch
            self._commit()

    def _commit(self) -> None:
        assert self._commit_done is None, "one commit is under way at a time"
        self._batch_bytes = self._context.batch_bytes
        commit = self._context.seal()
        if commit.has_writes:
            self._sealed_s = time.monotonic()
            self.measures.record_seal(commit.appended_count, self._batch_bytes)
        self._sealed_batch_durable = self._open_batch_durable
        self._open_batch_durable = None
        if self._committer is None or not commit.has_writes:
            if commit.has_writes:
                self._store.commit(commit)
            self._release(commit)
        else:
            self._commit_done = self._loop.create_future()
            self._committer.submit(commit)
            took_s = time.monotonic() - self._sealed_s
            if took_s > SLOW_TURN_S:
                self.measures.record_slow_encoding(took_s)

    def _end_commit(self, commit: Commit, failure: StoreUnavailable | None) -> None:
        commit_done = self._commit_done
        assert commit_done is not None
        self._commit_done = None
        commit_done.set_result(None)
        assert self._committer is not None
        self._batch_size.adapt(self._batch_bytes, self._committer.took_s)
        self._context.limit_batch(self._batch_size.bytes_max)
        if failure is not None:
            self._fail(failure)
            return
        self.measures.record_commit(time.monotonic() - self._sealed_s, self._committer.took_s)
        if self._context.is_timed:
            self.now()  # it was under way for a while
        self._release(commit)
        self._end_turn()

    def _handle_outage(self, failure: StoreUnavailable | None) -> None:
        """Stop accepting input that needs the store, which cannot write; with None, resume: the
        store can write again."""
        context = self._context
        if failure is None:
            outage_s = time.monotonic() - self._failing_since_s
            self._failing_since_s = 0.0
            context.store_recovered()
            for peer in self._peers.values():
                context.resume_soon(peer.connection)
            logger.warning(
                "the store can write again, after %.1f s: no acknowledged message was lost",
                outage_s,
            )
        else:
            if self._failing_since_s == 0.0:
                self._failing_since_s = time.monotonic()
                self.measures.outages += 1
            context.commit_failed(str(failure))
            self._stop_draining(time.monotonic())
            logger.error(
                "%s. Until then nothing is acknowledged; QoS 0 reaches clients, and messages for"
                " which the log has no memory are missing in streams",
                failure,
            )
        self.end_turn_soon()

    def _release(self, commit: Commit) -> None:
        """Send the acknowledgements and deliveries that waited for ``commit``, which is durable
        now."""
        if self._sealed_batch_durable is not None:
            self._sealed_batch_durable.set_result(None)
            self._sealed_batch_durable = None
        self._context.committed(commit)
        for release in commit.deferred_packets:
            link = release.link
            peer = self._peers.get(link)
            if peer is not None and link.sends_deferred:
                self._write(peer, release.pieces)
            release.mark_sent()
            if peer is not None and link.is_draining and link.is_drained:
                self._close_wire(peer)
        self._write_ready()
        for requester, offsets in commit.body_requests:
            self._bodies.fetch(requester, offsets)

    def _fail(self, failure: StoreUnavailable) -> None:
        """Fail closed: acknowledge nothing more, and close all connections."""
        if self._has_failed:
            return
        self._has_failed = True
        for waiting in (self._sealed_batch_durable, self._open_batch_durable):
            if waiting is not None:
                waiting.set_exception(failure)
        self._bodies.stop()
        logger.error("%s; nothing is acknowledged any more", failure)
        self._context.expect_no_commit()
        self._stop_draining(time.monotonic())
        self._close_all(reasons.UNSPECIFIED_ERROR, "the store failed")
        self._write_ready()
        self._on_store_failed(failure)

    # -- time --------------------------------------------------------------------------

    def _tick(self) -> None:
        now_s = time.monotonic()
        cpu_s = time.thread_time()
        self.measures.record_tick(max(0.0, now_s - self._tick_due_s), cpu_s - self._tick_cpu_s)
        self._tick_due_s = now_s + _TICK_S
        self._tick_cpu_s = cpu_s
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        self._check_clock()
        now = self.now()
        for peer in self._deadlines.take_due(now.monotonic_s):
            peer.connection.tick(now)
            self._deadlines.watch(peer)
            self._drop_if_closed(peer)
        self._close_slow_peers(now)
        self._close_hung_up(now)
        self._stop_draining(now.monotonic_s - DRAIN_S_MAX)
        self._server.tick(now)
        self._log.log_drops(now.monotonic_s)
        self._log.log_refused_filters(now.monotonic_s)
        self.end_turn_soon()

    def _check_clock(self) -> None:
        if self._clock.check_jump(self._context.log_end):
            self._server.clock_jumped(self.now())
            self._store_clock()

    def _store_clock(self) -> None:
        if self._committer is not None:  # else there is no next start
            self._context.put_clock(self._clock.record())

    def _close_slow_peers(self, now: Now) -> None:
        for link, slow in list(self._congested.items()):
            peer = self._peers[link]
            acknowledged_bytes = link.congested_bytes - peer.wire.unwritten_bytes()
            if slow.has_stalled(acknowledged_bytes, now.monotonic_s):
                del self._congested[link]
                peer.connection.close(
                    reasons.IMPLEMENTATION_SPECIFIC_ERROR,
                    f"it read nothing for {slow.timeout_s:g} s while its write buffer was full",
                    now,
                )

    def _stop_draining(self, since_s: float) -> None:
        """Close the connections that have waited for their last commit since ``since_s`` or
        longer."""
        for link, drains_since_s in list(self._draining.items()):
            if drains_since_s <= since_s:
                del self._draining[link]
                link.stop_draining()

    def _close_hung_up(self, now: Now) -> None:
        if self._failing_since_s > 0.0 or self._context.is_full():
            return  # their last packets must wait
        self._read_control.close_hung_up(now)

    @property
    def commit_attempts(self) -> int:
        """The number of attempts to write a commit that have ended; -1 if no commit is under
        way."""
        if self._committer is None or self._commit_done is None:
            return -1
        return self._committer.attempts

    def set_store_retry(self, store_retry_s_max: float) -> None:
        """Set the seconds for which a commit that fails from now on is tried again; 0 = not at
        all."""
        if self._committer is not None:
            self._committer.retry_s_max = store_retry_s_max

    # -- the end -----------------------------------------------------------------------

    def _close_all(
        self, reason_code: int, reason: str, references: dict[str, str] | None = None
    ) -> None:
        """Close every connection, also before its CONNECT, and refuse new ones."""
        now = self.now()
        self._end_reason = reason
        self._server.shut_down(reason_code, reason, now, references)
        if references is not None:
            reason_code = reasons.SERVER_SHUTTING_DOWN  # for bridges; clients are closed already
        for peer in list(self._peers.values()):
            peer.connection.close(reason_code, reason, now)
            self._drop_if_closed(peer)

    async def stop(
        self, references: dict[str, str] | None = None, append_s_max: float = 0.0
    ) -> bool:
        """Take over nothing more, commit and acknowledge what was taken over, close all
        connections, and end the committer: see ``runtime/stop.py``.

        Args:
            references: HOST:PORT of the server that takes over, by the name of the listener whose
                clients reach it there: MQTT 5 clients are referred to it (0x9C, v5 §4.11). None if
                no server takes over; clients get the configured DISCONNECT.
            append_s_max: seconds after which a commit of the store fails by itself, in a cluster;
                the last one gets so much more time.

        Returns:
            False if the store hangs: its thread is still writing, and the store cannot be closed.
        """
        self._enter(FINISHING)
        if not self._has_failed:
            await self._finish()
        self._ticker.cancel()
        if self._progress_timer is not None:
            self._progress_timer.cancel()
        self._bodies.stop()
        self._enter(COMMITTING)
        if not self._has_failed:
            if references is None:
                self._close_all(reasons.SERVER_SHUTTING_DOWN, "the server is shutting down")
            else:
                reason = "another machine of the cluster takes over"
                self._close_all(reasons.USE_ANOTHER_SERVER, reason, references)
            self._store_clock()
            self._end_turn()
            self._log.log_drops(self.now().monotonic_s)
        is_durable = True
        if self._committer is not None:
            self._committer.stop_retrying()
            try:
                async with asyncio.timeout(COMMITTING.s_max + append_s_max):
                    await self._finish_commits()
            except TimeoutError:
                is_durable = False
                logger.error(
                    "the store did not finish the last commit in %.0f s: nothing of it is"
                    " acknowledged",
                    COMMITTING.s_max + append_s_max,
                )
        self._enter(FLUSHING)
        self._context.expect_no_commit()
        self._stop_draining(time.monotonic())
        self._write_ready()
        await self._flush()
        self._enter(CLOSED)
        if self._committer is not None and is_durable:
            self._committer.stop()
        return is_durable

    def _enter(self, state: StopState) -> None:
        assert NEXT[self._stop] is state, f"{state.name} does not follow {self._stop.name}"
        self._stop = state

    async def _finish(self) -> None:
        """Wait until the clients have released their QoS 2 messages, or have not in time."""
        for peer in self._peers.values():
            peer.connection.finish()
            if peer.connection.awaits_release():
                self._releasing.append(peer.connection)
        if self._releasing:
            self._all_released = self._loop.create_future()
            await asyncio.wait((self._all_released,), timeout=FINISHING.s_max)
            self._all_released = None

    def _check_released(self, all_released: asyncio.Future[None]) -> None:
        while self._releasing and not self._releasing[-1].awaits_release():
            self._releasing.pop()
        if not self._releasing and not all_released.done():
            all_released.set_result(None)

    async def _finish_commits(self) -> None:
        """Wait for the commit under way and for the open batch, with the events about the last."""
        await self._finish_commit()
        if not self._has_failed and self._server.write_events(self.now()):
            self._end_turn()
            await self._finish_commit()

    async def _finish_commit(self) -> None:
        while self._commit_done is not None:
            await self._commit_done

    async def _flush(self) -> None:
        """Wait until all sockets are closed, or are not in time."""
        if self._peers:
            self._last_closed = self._loop.create_future()
            await asyncio.wait((self._last_closed,), timeout=FLUSHING.s_max)
