"""A TCP proxy between an MQTT client (or a bridge) and a broker that fails as a test says.

::

      client ══▶ cut in packets ─▶ rules ─▶ delay ─▶ gate ─▶ throttle ══▶ broker
      client ◀══ throttle ◀─ gate ◀─ delay ◀─ rules ◀─ cut in packets ◀══ broker
                                      │        ╰ shut by ``partition``
                                      ╰ ``swallow``, ``cut``: by packet type or by a predicate

It cuts the byte stream into packets by their fixed header alone (v5 §2.1) and passes them on as
they came: nothing is decoded that a test does not ask for, and nothing is encoded. What passed,
and what was swallowed, is recorded in the order in which it left (``seen``).

It runs in a thread of its own; every call has taken effect when it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar, final

from penstock.protocol.kinds import CONNECT, PUBLISH
from tests.support.broker import Address
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.seen_packets import DOWN, UP, Seen, cut_in_packets, seen, version_of

FOREVER: Final = 0  # as ``times`` of a rule
_PID: Final = os.getpid()
_HOST: Final = f"127.{1 + _PID // 2**14 % 254}.{_PID // 2**7 % 2**7}.{1 + _PID % 2**7}"
"""A loopback address of this process alone: a client of another test, which dials again and again
where its broker was, must not be counted here when the port is given out again."""

_READ_BYTES: Final = 65_536
_PACKETS_WAITING_MAX: Final = 10_000  # of one direction; then its sender is not read
_PIECES_A_SECOND: Final = 50  # of a throttled stream
_BACKLOG: Final = 100
_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER, 0 s: close() sends RST

Answer = TypeVar("Answer")


Wanted = int | Callable[[Seen], bool]
"""Which packets a rule is for: all of one type, or what a predicate says."""


@final
class Rule:
    """What happens to the nth packet of those that are wanted; then counting begins anew."""

    def __init__(
        self,
        way: str,
        wanted: Wanted,
        nth: int,
        times: int,
        passes: bool,
        cuts: bool,
        refuses: bool = False,
    ) -> None:
        self.hits = 0  # how often it has done what it says
        self._begun = 0
        self.passes = passes
        self.cuts = cuts
        self.refuses = refuses
        self._way = way
        self._wanted = wanted
        self._nth = nth
        self._times = times
        self._count = 0

    def is_for(self, packet: Seen) -> bool:
        """Whether it is for this very packet; it counts those that it sees."""
        if packet.way != self._way or 0 < self._times <= self._begun:
            return False
        wanted = self._wanted
        if packet.kind != wanted if isinstance(wanted, int) else not wanted(packet):
            return False
        self._count += 1
        if self._count < self._nth:
            return False
        self._count = 0
        self._begun += 1
        return True

    def wait(self, times: int = 1) -> None:
        """Wait until it has done so as often."""
        wait_for(f"a fault {times} times", lambda: self.hits >= times)


@final
class FaultProxy:
    """One proxy; a context manager.

    Args:
        target: the broker. It need not be there yet: who connects before is reset.
    """

    def __init__(self, target: Address) -> None:
        self.target = target
        self.seen: list[Seen] = []
        self.connections = 0  # so many came
        self.delays_s = {UP: 0.0, DOWN: 0.0}
        self.bytes_per_s = {UP: 0, DOWN: 0}
        self.rules: list[Rule] = []
        self.is_open = asyncio.Event()  # not while partitioned
        self.is_open.set()
        self._open: dict[int, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # of those
        self._holder = socket.socket()  # keeps the port while nobody listens
        self._holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._holder.bind((_HOST, 0))
        self.address: Address = self._holder.getsockname()
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="faults", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self.accept()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()
        self._holder.close()

    # -- faults of the link ----------------------------------------------------------------

    def delay(self, seconds: float, *ways: str) -> None:
        """What comes from now on leaves so much later (both ways unless named); 0: at once."""
        self._call(lambda: self.delays_s.update(dict.fromkeys(ways or (UP, DOWN), seconds)))

    def throttle(self, bytes_per_s: int, *ways: str) -> None:
        """Let so many bytes a second through each connection (both ways unless named); 0: all."""
        self._call(lambda: self.bytes_per_s.update(dict.fromkeys(ways or (UP, DOWN), bytes_per_s)))

    def partition(self) -> None:
        """Nothing passes, and nobody hears of it; who connects now waits. ``heal`` ends it."""
        self._call(self.is_open.clear)

    def heal(self) -> None:
        """What waited since ``partition`` passes in its order, as TCP sends it again."""
        self._call(self.is_open.set)

    def refuse(self) -> None:
        """The port is closed: who connects now is refused. Connections stay."""
        self._call(self.stop_listening)

    def accept(self) -> None:
        """The port is open, as at the beginning and after ``refuse``."""
        self._call(self._listen)

    def reset(self) -> None:
        """End all connections with RST, at both ends; what was on its way is lost."""
        self._do(self._reset_all())

    def half_close(self, way: str) -> None:
        """End all streams of this direction with FIN, and lose what more is sent there."""
        self._do(self._half_close(way))

    # -- faults of packets -----------------------------------------------------------------

    def swallow(self, way: str, wanted: Wanted, nth: int = 1, times: int = 1) -> Rule:
        """Let the nth wanted packet vanish; again so many ``times``, ``FOREVER`` without end.

        Packets are counted over all connections, from now on, and anew after each time:
        ``nth=1, times=FOREVER`` is every packet of them, ``nth=2`` the second.
        """
        return self._add(Rule(way, wanted, nth, times, passes=False, cuts=False))

    def cut(
        self, way: str, wanted: Wanted, nth: int = 1, times: int = 1, refuse: bool = False
    ) -> Rule:
        """End the connection right after the nth wanted packet, as for ``swallow``.

        The packet and all before it arrive, then FIN; its sender gets RST, and no answer. With
        ``refuse`` the port is closed in the same moment, until ``accept``.
        """
        return self._add(Rule(way, wanted, nth, times, passes=True, cuts=True, refuses=refuse))

    def cut_before(
        self, way: str, wanted: Wanted, nth: int = 1, times: int = 1, refuse: bool = False
    ) -> Rule:
        """As ``cut``, but the packet itself does not arrive."""
        return self._add(Rule(way, wanted, nth, times, passes=False, cuts=True, refuses=refuse))

    def forget_rules(self) -> None:
        """All packets pass again."""
        self._call(self.rules.clear)

    # -- what passed -----------------------------------------------------------------------

    def passed(self, way: str, *kinds: int) -> list[Seen]:
        """The packets of this direction that passed, of these types (all unless named)."""
        return [
            packet
            for packet in list(self.seen)
            if packet.way == way and packet.passed and (not kinds or packet.kind in kinds)
        ]

    def payloads(self, way: str, connection: int = 0) -> list[bytes]:
        """Payloads of the PUBLISH packets that passed; of one connection if it is named."""
        return [
            packet.payload
            for packet in self.passed(way, PUBLISH)
            if connection in (0, packet.connection)
        ]

    def forget_seen(self) -> None:
        """Begin the record anew."""
        self._call(self.seen.clear)

    @property
    def open_connections(self) -> int:
        """How many stand now."""
        return len(self._open)

    # -- inside ------------------------------------------------------------------------------

    def _add(self, rule: Rule) -> Rule:
        self._call(lambda: self.rules.append(rule))
        return rule

    def _do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)

    def _call(self, act: Callable[[], object]) -> None:
        async def work() -> None:
            act()

        self._do(work())

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.socket()
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._listener.setblocking(False)
            self._listener.bind(self.address)
            self._listener.listen(_BACKLOG)
            self._loop.add_reader(self._listener, self._accept_one, self._listener)

    def stop_listening(self) -> None:
        """Close the port; in the proxy's own thread."""
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept_one(self, listener: socket.socket) -> None:
        """In one step, so that ``reset`` and ``refuse`` find nobody half accepted."""
        try:
            client, _ = listener.accept()
        except OSError:  # it has gone already
            return
        self.connections += 1
        connection = _Connection(self, self.connections, client)
        self._open[connection.number] = connection
        task = self._loop.create_task(self._pass_on(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, connection: _Connection) -> None:
        try:
            await connection.run()
        finally:
            del self._open[connection.number]

    async def _reset_all(self) -> None:
        for connection in list(self._open.values()):
            connection.reset()

    async def _half_close(self, way: str) -> None:
        for connection in list(self._open.values()):
            if connection.streams:
                connection.streams[way].half_close()

    async def _close(self) -> None:
        self.stop_listening()
        await self._reset_all()
        await asyncio.gather(*self._tasks)


@final
class _Connection:
    """One connection of a client, and the one to the broker that belongs to it."""

    def __init__(
        self,
        proxy: FaultProxy,
        number: int,
        client: socket.socket,
    ) -> None:
        self.proxy = proxy
        self.number = number
        self.version = 0  # of the protocol, as CONNECT says
        self.streams: dict[str, _Stream] = {}
        self._client = client
        self._writers: list[asyncio.StreamWriter] = []
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Pass on until both directions ended or somebody cut it."""
        connecting = asyncio.ensure_future(self._join())
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((connecting, over), return_when=asyncio.FIRST_COMPLETED)
            if connecting.done() and connecting.result():
                work = asyncio.gather(*(stream.run() for stream in self.streams.values()))
                await asyncio.wait((work, over), return_when=asyncio.FIRST_COMPLETED)
                await _end(work)
            else:
                self.reset()
        finally:
            await _end(connecting)
            await _end(over)
            for writer in self._writers:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
            self._client.close()  # if it never came to a writer

    @property
    def is_over(self) -> bool:
        """Whether somebody cut it."""
        return self._over.is_set()

    async def _join(self) -> bool:
        """Whether the broker is there."""
        from_client, to_client = await asyncio.open_connection(sock=self._client, limit=_READ_BYTES)
        self._writers.append(to_client)
        await self.proxy.is_open.wait()
        try:
            reader, writer = await asyncio.open_connection(*self.proxy.target, limit=_READ_BYTES)
        except OSError:
            return False
        self._writers.append(writer)
        self.streams = {
            UP: _Stream(self, UP, from_client, writer),
            DOWN: _Stream(self, DOWN, reader, to_client),
        }
        return True

    def reset(self) -> None:
        """RST to both ends."""
        with contextlib.suppress(OSError):  # it is closed
            self._client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        for writer in self._writers:
            _reset(writer)
        self._over.set()

    def cut(self, receiver: asyncio.StreamWriter) -> None:
        """FIN to the receiver of the last packet, RST to its sender."""
        for writer in self._writers:
            if writer is receiver:
                writer.close()
            else:
                _reset(writer)
        self._over.set()


async def _end(work: asyncio.Future[Any]) -> None:
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):  # it is closed
        end = writer.get_extra_info("socket")
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


@final
class _Stream:
    """One direction of a connection."""

    def __init__(
        self,
        connection: _Connection,
        way: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._connection = connection
        self._proxy = connection.proxy
        self._way = way
        self._reader = reader
        self._writer = writer
        self._waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PACKETS_WAITING_MAX)
        self._is_half_closed = False

    async def run(self) -> None:
        """Pass on to the end of the stream."""
        reading = asyncio.ensure_future(self._read())
        try:
            await self._write()
        except ConnectionError:
            self._connection.reset()
        finally:
            await _end(reading)

    async def _read(self) -> None:
        """Cut what comes into packets; an empty one is the end."""
        loop = asyncio.get_running_loop()
        data = b""
        while True:
            try:
                piece = await self._reader.read(_READ_BYTES)
            except ConnectionError:
                self._connection.reset()
                return
            data += piece
            due_s = loop.time() + self._proxy.delays_s[self._way]
            *whole, data = cut_in_packets(data)
            for packet in whole:
                await self._waiting.put((due_s, packet))
            if not piece:
                if data:  # the beginning of a packet
                    await self._waiting.put((due_s, data))
                await self._waiting.put((due_s, b""))
                return

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s, packet = await self._waiting.get()
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await self._proxy.is_open.wait()
            if self._connection.is_over:
                return
            if not packet:
                self.half_close()
                return
            await self._pass(packet)

    async def _pass(self, raw: bytes) -> None:
        connection = self._connection
        if raw[0] >> 4 == CONNECT:
            connection.version = version_of(raw)
        packet = seen(connection.number, self._way, raw, connection.version)
        matching = [rule for rule in self._proxy.rules if rule.is_for(packet)]
        if self._is_half_closed or any(not rule.passes for rule in matching):
            packet = seen(connection.number, self._way, raw, connection.version, passed=False)
        self._proxy.seen.append(packet)
        if packet.passed:
            await self._send(raw)
        if any(rule.refuses for rule in matching):
            self._proxy.stop_listening()
        if any(rule.cuts for rule in matching):
            connection.cut(self._writer)
        for rule in matching:
            rule.hits += 1

    async def _send(self, raw: bytes) -> None:
        bytes_per_s = self._proxy.bytes_per_s[self._way]
        if bytes_per_s == 0:
            self._writer.write(raw)
            await self._writer.drain()
            return
        size = max(1, bytes_per_s // _PIECES_A_SECOND)
        for start in range(0, len(raw), size):
            piece = raw[start : start + size]
            self._writer.write(piece)
            await self._writer.drain()
            await asyncio.sleep(len(piece) / bytes_per_s)

    def half_close(self) -> None:
        """FIN to the receiver; nothing more reaches it."""
        if not self._is_half_closed:
            self._is_half_closed = True
            if not self._writer.transport.is_closing():
                with contextlib.suppress(OSError):  # the receiver hung up
                    self._writer.write_eof()
