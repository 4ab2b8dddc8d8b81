"""Accepts connections on a listening socket, up to the wire that speaks MQTT.

::

   readable ─▶ accept() ─▶ admitted? ─▶ PROXY header ─▶ TLS handshake ─▶ a Wire and its Endpoint
                  │            │ not soon    ╰── connect_timeout_s for both ╯
                  │            ╰─▶ closed                    │ late or wrong
                  │ no descriptors, or too fast              ╰─▶ closed
                  ╰─▶ accepting pauses

   on a standby that relays:       … PROXY header ─▶ relayed, or if that fails ─▶ TLS handshake …

Each connection is opened in a task of its own, so none waits for another. The event loop's own
server (``asyncio.start_server``) is not used, because it has no limit on the number of connections,
on their rate, or on file descriptors.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import Callable, Coroutine, Sequence
from typing import Final, NamedTuple, final

from penstock.engine.values.addresses import IPNetwork, source_of
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, warn_limited
from penstock.transport.admission import Admission, ConnectionSlot, TokenBucket
from penstock.transport.handshake_turns import HandshakeTurns
from penstock.transport.refusals import Refusals
from penstock.transport.stream import StreamWire
from penstock.transport.tls_opening import open_tls

logger = get_logger(__name__)

_ACCEPTED_A_TURN_MAX: Final = 64  # per turn of the event loop
_NO_DESCRIPTORS_S: Final = 1.0
_TIMEOUT_S_MIN: Final = 0.001
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: process, user, group
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ConnectionOrigin(NamedTuple):
    """The origin of a connection, as it is known before TLS and MQTT."""

    peer: str
    """The name of the peer, such as HOST:PORT."""

    is_relayed: bool = False
    """True if a standby of a cluster relays the connection."""


ReadProxyHeader = Callable[[socket.socket, str], Coroutine[None, None, ConnectionOrigin]]
"""Read the PROXY header before TLS and MQTT; return the origin that it names.

The arguments are the connection and the name of its peer without the header. It raises
ConnectionRefusedError for bytes that are no acceptable header, and another OSError if the peer has
closed the connection.
"""

Relay = Callable[[socket.socket, str, ConnectionSlot], Coroutine[None, None, bool]]
"""Relay a connection before TLS and MQTT; return whether it is relayed, and the slot taken over.

The arguments are the connection, the name of its peer, and its slot. If False is returned, nothing
was read of the connection, and it is opened as any other.
"""


@final
class Acceptor:
    """One listening socket.

    Args:
        listening: the socket, bound, listening and non-blocking; ``close`` closes it.
        name: the name of the listener, for logs.
        admission: the limits on the number of the listener's connections.
        bucket: the limit on the listener's rate of connections.
        connect_timeout_s: time limit of PROXY header and TLS handshake together, in seconds.
        make_wire: makes the wire of a connection from the peer's name and the connection's slot.
        get_context: returns the TLS context for a new connection; None without TLS.
        read_proxy_header: reads the PROXY header; None if connections have none.
        refusals: logs connections that are refused.
        exempt: networks whose connections are not counted by address.
        relay: relays connections, except those that were relayed already; None if none are.
    """

    def __init__(
        self,
        listening: socket.socket,
        name: str,
        admission: Admission,
        bucket: TokenBucket,
        connect_timeout_s: float,
        make_wire: Callable[[str, ConnectionSlot], StreamWire],
        get_context: Callable[[], ssl.SSLContext | None],
        read_proxy_header: ReadProxyHeader | None,
        refusals: Refusals,
        exempt: Sequence[IPNetwork] = (),
        relay: Relay | None = None,
    ) -> None:
        self.listening = listening
        self._name = name
        self._admission = admission
        self._bucket = bucket
        self.connect_timeout_s = connect_timeout_s
        self._make_wire = make_wire
        self._get_context = get_context
        self._read_proxy_header = read_proxy_header
        self._refusals = refusals
        self.exempt = exempt
        self._relay = relay
        self._loop = asyncio.get_running_loop()
        self._handshakes = HandshakeTurns()
        self._resume_timer: asyncio.TimerHandle | None = None  # while accepting is paused
        self._open_tasks: set[asyncio.Task[None]] = set()
        self._limiter = RepeatLimiter()
        self._closed = False
        self._loop.add_reader(listening, self._accept)

    def close(self) -> None:
        """Stop listening. Open connections stay; those that are still being opened are closed."""
        if not self._closed:
            self.detach().close()

    def detach(self) -> socket.socket:
        """Stop accepting, and return the listening socket, which stays open: the system queues new
        connections until another acceptor takes them.

        Open connections stay; those that are still being opened are closed.
        """
        assert not self._closed, "a listening socket has one owner"
        self._closed = True
        if self._resume_timer is None:
            self._loop.remove_reader(self.listening)
        else:
            self._resume_timer.cancel()
        for task in list(self._open_tasks):
            task.cancel()
        return self.listening

    # -- accepting ---------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_A_TURN_MAX):
            wait_s = self._bucket.wait_s(self._loop.time())
            if wait_s > 0.0:
                self._pause_accepting(wait_s)
                return
            try:
                connection, address = self.listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_DESCRIPTORS:
                    self._pause_without_descriptors(error)
                    return
                continue  # the client closed the connection before it was accepted
            self._bucket.take()
            self._admit(connection, address)

    def _admit(self, connection: socket.socket, address: object) -> None:
        connection.setblocking(False)
        peer = peer_name(connection, address)
        # behind a load balancer the PROXY header has the address
        source = None if self._read_proxy_header is not None else self._source(peer)
        slot = self._admission.admit(peer, source)
        if slot is None and not self._admission.may_wait():
            self._admission.refused += 1
            connection.close()
            return
        task = self._loop.create_task(self._open(connection, peer, slot, source))
        self._open_tasks.add(task)

        def end(task: asyncio.Task[None]) -> None:
            self._open_tasks.discard(task)
            if task.cancelled():  # maybe before its first step, so that its ``finally`` never ran
                _give_up(connection, slot)

        task.add_done_callback(end)

    def _source(self, peer: str) -> str | None:
        """Return the source under which ``peer`` is counted; None if its address is exempt."""
        return source_of(peer, self.exempt) or None

    def _pause_without_descriptors(self, error: OSError) -> None:
        """Log that the process has no descriptor left, and pause accepting for a second."""
        warn_limited(
            logger,
            self._limiter,
            self._loop.time(),
            "exhausted",
            "listener %s cannot accept connections: %s; trying again every second. Raise the"
            " limit of open files",
            self._name,
            error.strerror,
        )
        self._pause_accepting(_NO_DESCRIPTORS_S)

    def _pause_accepting(self, wait_s: float) -> None:
        self._loop.remove_reader(self.listening)
        self._resume_timer = self._loop.call_later(wait_s, self._resume_accepting)

    def _resume_accepting(self) -> None:
        self._resume_timer = None
        self._loop.add_reader(self.listening, self._accept)

    # -- opening a connection ----------------------------------------------------------

    async def _open(
        self,
        connection: socket.socket,
        peer: str,
        slot: ConnectionSlot | None,
        source: str | None,
    ) -> None:
        """Make the wire of an accepted socket; a failure closes this connection only."""
        is_open = False
        try:
            if slot is None:
                slot = await self._admission.wait(peer, source)
            if slot is None:
                return
            ends_s = self._loop.time() + self.connect_timeout_s
            async with asyncio.timeout_at(ends_s):
                origin = ConnectionOrigin(peer)
                if self._read_proxy_header is not None:
                    origin = await self._read_proxy_header(connection, peer)
                    peer = origin.peer
                    if not await self._count_by_address(peer, slot):
                        return
                if self._relay is not None and not origin.is_relayed:
                    is_open = await self._relay(connection, peer, slot)
                if not is_open:
                    await self._open_wire(connection, peer, slot, ends_s)
                    is_open = True
        except OSError as error:
            is_late = isinstance(error, TimeoutError)
            why = Sentence("no answer in time" if is_late else _reason(error))
            if isinstance(error, ConnectionRefusedError):
                self._refusals.log_refusal(peer, why)
            else:
                logger.debug("listener %s: %s did not get through: %s", self._name, peer, why)
        finally:
            if not is_open:
                _give_up(connection, slot)

    async def _count_by_address(self, peer: str, slot: ConnectionSlot) -> bool:
        """Count a connection by the address in its PROXY header; return whether it has a slot.

        The connection may wait up to a second for a slot.
        """
        source = self._source(peer)
        if self._admission.count_address(slot, source):
            return True
        return await self._admission.wait(peer, source, slot) is not None

    async def _open_wire(
        self, connection: socket.socket, peer: str, slot: ConnectionSlot, ends_s: float
    ) -> None:
        context = self._get_context()
        if context is None:
            await self._open_plain(connection, peer, slot)
        else:
            await self._handshakes.wait(connection, source_of(peer, ()))
            await open_tls(
                connection,
                lambda: self._make_wire(peer, slot),
                context,
                max(_TIMEOUT_S_MIN, ends_s - self._loop.time()),
            )

    async def _open_plain(self, connection: socket.socket, peer: str, slot: ConnectionSlot) -> None:
        """Make the wire of a connection without TLS; a cancellation takes effect afterwards.

        uvloop closes a connection if ``connect_accepted_socket`` is cancelled, even if the
        connection is open already, and does not report that to its wire.
        """
        opening = self._loop.create_task(
            self._loop.connect_accepted_socket(lambda: self._make_wire(peer, slot), connection)
        )
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            await opening


def _give_up(connection: socket.socket, slot: ConnectionSlot | None) -> None:
    """Close a connection that was not opened; further calls do nothing."""
    connection.close()
    if slot is not None:
        slot.release()


def _reason(error: OSError) -> str:
    return str(error) or type(error).__name__


def peer_name(connection: socket.socket, address: object) -> str:
    """Return the name of an accepted connection's peer for logs: HOST:PORT, or its process.

    Args:
        connection: the accepted socket.
        address: the address that ``socket.accept`` returned with it.
    """
    if isinstance(address, tuple):
        host, port = address[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if hasattr(socket, "SO_PEERCRED"):
        found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        return f"process {pid} of user {uid}"
    return "a local process"
