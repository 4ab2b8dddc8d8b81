"""Dials the connection of a bridge's or client's session, and dials again when it ends.

::

      DIALLING ── socket, CONNACK ─▶ CONNECTED ── lost, DISCONNECT ╮
         ▲  ╰─── no answer, refused ──────────────────────────╮ │
         ╰────────── the pause is over ── WAITING (``backoff``) ◀─┴─╯

``server_addresses`` chooses the address of each attempt and the pause before it. All addresses lead
to one session.

A session is *established* when the server may have state of it. Our half of the session is marked
so on disk (``with_established_mark``) before the server can have any state: only a session that
both sides know can be resumed [MQTT-3.2.2-4]. In MQTT 5 each connection of a session that is on
disk has a name, by which an older copy of either end is noticed (``connection_names``).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable
from typing import Final, final

from penstock.config.remote_url import RemoteUrl
from penstock.engine.api import (
    CONNECTION,
    ClientCallbacks,
    ClientConnection,
    Server,
    Session,
    ToldNames,
    UnacknowledgedMessages,
    told_names,
)
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.records import SessionRecord
from penstock.engine.values.states import CONNECTED
from penstock.errors import LocalProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect
from penstock.protocol.properties import Properties
from penstock.runtime.driver import Driver
from penstock.runtime.packet_trace import TracedPeer, TracedWire, is_traced
from penstock.runtime.peer import Peer
from penstock.runtime.server_addresses import ServerAddresses
from penstock.telemetry.logs import Sentence, get_logger
from penstock.transport.dialling import dial
from penstock.transport.wire import Endpoint, Wire, failure_text

logger = get_logger(__name__)

_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "UNEXPECTED_EOF_WHILE_READING")
_LOGGED_ERRORS_MAX: Final = 100  # addresses whose latest error is remembered
_ESTABLISHED: Final = ", established"  # behind the ``limits_name`` of an established session


def with_established_mark(limits_name: str) -> str:
    """Return a ``limits_name`` with the mark of an established session, as a session stores it."""
    return f"{limits_name}{_ESTABLISHED}"


@final
class Dialler:
    """Keeps one session connected.

    Args:
        owner: the name of the session's owner in logs, such as "bridge cloud".
        addresses: chooses the address of each attempt, and the pause before it.
        tls_context: the TLS context; None if no URL needs one.
        make_connect: makes the CONNECT packet; its argument is Clean Start.
        server: the engine with the session.
        driver: the driver that runs the connection.
        session: the session that is kept connected.
        limits: the limits of the session.
        application: gets the callbacks of the connection; in its ``on_connected`` and ``on_end`` it
            must call ``on_connect`` and ``on_end`` of this object.
        connect_timeout_s: time limit of each step of connecting, in seconds.
        headers: additional headers for the upgrade to WebSocket.
        on_state_change: called when ``state`` has changed.
        may_trace: log each packet while the log has level debug: the ``-d`` of a client.

    Attributes:
        state: "dialling", "connected" or "waiting".
        attempt: the number of attempts since the last connection; 0 while connected.
        url: the address of the latest attempt.
        pause_s: the length of the latest pause between two attempts, in seconds.
        last_error: the reason why there is no connection; empty while connected.
        reason_code: the reason code of the latest refusal or DISCONNECT; 0 if it had none.
    """

    def __init__(
        self,
        owner: str,
        addresses: ServerAddresses,
        tls_context: ssl.SSLContext | None,
        make_connect: Callable[[bool], Connect],
        server: Server,
        driver: Driver,
        session: Session,
        limits: EngineLimits,
        application: ClientCallbacks,
        connect_timeout_s: float,
        headers: tuple[tuple[str, str], ...] = (),
        on_state_change: Callable[[], None] | None = None,
        may_trace: bool = False,
    ) -> None:
        self.state = "dialling"
        self.attempt = 0
        self.url = ""
        self.pause_s = 0.0
        self.last_error = ""
        self.reason_code = reasons.SUCCESS
        self.starts_clean = False  # Clean Start of the next CONNECT
        self.redials_at_once = False  # set by the application: the same address, without a pause
        self.arrivals = UnacknowledgedMessages()
        self.connection: ClientConnection | None = None
        self.peer: Peer | None = None
        self._owner = owner
        self.addresses = addresses
        self._tls_context = tls_context
        self._make_connect = make_connect
        self._server = server
        self._driver = driver
        self._session = session
        self._limits = limits
        self._application = application
        self._connect_timeout_s = connect_timeout_s
        self._headers = headers
        self._on_state_change = on_state_change
        self._may_trace = may_trace
        self._connected_s = 0.0  # time of CONNACK on the loop's clock
        self._logged_errors: dict[str, str] = {}  # since the last connection, by address
        self._sent_connect = Connect("")  # of the present connection
        self._sent_names: ToldNames | None = None  # in that CONNECT
        self._connection_end: asyncio.Future[None] | None = None
        self._dial_requested = asyncio.Event()  # ends the pause
        # The number of connections on which the server is still asked to release the packet
        # identifiers of an earlier program.
        self.cleanup_connections_left = 0
        self.is_known = self._is_established
        if self.is_known:
            self.establish()  # opening the session stored it as not established

    @property
    def is_connected(self) -> bool:
        """True if the server has accepted the present connection."""
        return self.connection is not None and self.connection.state == CONNECTED

    @property
    def _is_established(self) -> bool:
        return self._session.limits_name == with_established_mark(self._limits.name)

    async def run(self) -> None:
        """Keep the session connected until cancelled."""
        while True:
            try:
                await self._keep_connected()
            except Exception:
                logger.exception("%s: an error of Penstock, please report it", self._owner)
                await asyncio.sleep(self.addresses.pause(is_longest=True))

    def dial_now(self) -> None:
        """End the pause before the next attempt."""
        self._dial_requested.set()

    # -- called by the application ----------------------------------------------------------

    def on_connect(self, connack: Connack) -> None:
        """Update the state: the server has accepted the connection with ``connack``."""
        self._connected_s = asyncio.get_running_loop().time()
        self.attempt = 0
        self._logged_errors.clear()
        self.last_error = ""
        self.reason_code = reasons.SUCCESS
        self.is_known = True
        self.establish_if_released()
        self.starts_clean = False
        self._note_accepted_names(connack)
        logger.info(
            "%s: connected to %s, which %s",
            self._owner,
            self.url,
            "has our session" if connack.session_present else "begins a new session",
        )
        self._set_state("connected")

    def establish_if_released(self) -> None:
        """Establish the session once the server has released the packet identifiers of an earlier
        program."""
        assert self.connection is not None
        if not self._is_established and not self.connection.needs_packet_id_cleanup:
            self.establish()

    def on_end(self) -> None:
        """Begin the pause before the next attempt: the connection has ended."""
        if self._connection_end is not None and not self._connection_end.done():
            self._connection_end.set_result(None)

    def establish(self) -> None:
        """Store the session as established, with the next commit.

        SUBSCRIBE waits for that commit, so the server has subscriptions, and messages for us, only
        afterwards. A session that the server has without this record is not ours.
        """
        session = self._session
        session.limits_name = with_established_mark(self._limits.name)
        if session.is_stored:
            interval_s = session.expiry_interval_s
            self._server.context.batch.put_session(
                SessionRecord(session.client_id, session.number, interval_s, 0, session.limits_name)
            )

    # -- the names of connections -----------------------------------------------------------

    def _name_connection(self, connect: Connect) -> None:
        """Add the name of the connection that ``connect`` begins, if its session is on disk at both
        ends."""
        self._sent_names = None
        if connect.version != V5 or not self._session.is_stored or not self.is_known:
            return
        server = self._server
        self._sent_names = server.connection_names.next_names(
            self._session.client_id,
            server.epoch,
            secrets.token_hex(6),
            self.cleanup_connections_left > 0,
            self._driver.now(),
        )
        self._driver.end_turn_soon()  # CONNECT waits for the commit
        connect.properties = connect.properties or Properties()
        chosen = connect.properties.user_properties or []
        connect.properties.user_properties = [*chosen, (CONNECTION, str(self._sent_names))]

    def _note_accepted_names(self, connack: Connack) -> None:
        """Store that the server has stored the name of this connection, if its CONNACK says so."""
        if self._sent_names is None:
            return
        names, session = self._server.connection_names, self._session
        told = told_names(connack.properties)
        if told is None or told.this != self._sent_names.this:
            names.passed_over(session.client_id, self._driver.now())
            return
        name = ToldNames((told.this,))
        names.accept(session.client_id, name, self._server.epoch, self._driver.now())
        if told.is_parted:
            session.forget_received()
            logger.warning(
                "%s: %s: an older copy of the data at one end was put back, or a new outbox has"
                " taken its place: messages may come twice, with QoS 2 too",
                self._owner,
                self.url,
            )
        elif self.connection is not None and self.connection.unknown_ids:
            logger.warning(
                "%s: %s has QoS 2 messages of this session that are unknown here: was an older copy"
                " of the data at this end put back? They are released; messages may come twice",
                self._owner,
                self.url,
            )

    # -- dialling ---------------------------------------------------------------------------

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._connection_end = loop.create_future()
        self._connected_s = 0.0
        self.peer = None
        self._set_state("dialling")

    def _set_state(self, state: str) -> None:
        self.state = state
        if self._on_state_change is not None:
            self._on_state_change()

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            url = self.addresses.take()
            self.url = str(url)
            self.attempt += 1
            self._begin(loop)
            try:
                self._sent_connect = self._make_connect(self.starts_clean)
                encode(self._sent_connect, self._sent_connect.version)
                await dial(
                    url,
                    self._owner,
                    self._tls_context,
                    self._accept,
                    self._connect_timeout_s,
                    self._limits.write_buffer_bytes_max,
                    self._headers,
                )
                if self._connection_end is not None:
                    await self._connection_end
            except (OSError, ValueError, LocalProtocolError) as error:
                if self.peer is not None and self.connection is not None:  # opened just before
                    self.connection.disconnect(self._driver.now())
                self.last_error = _reason_of(error, url, self._connect_timeout_s)
                self.reason_code = reasons.SUCCESS
                self.pause_s = self.addresses.after_failure()
            except Exception as error:  # for example of the authentication method
                logger.exception("%s: CONNECT could not be made", self._owner)
                self.last_error = f"CONNECT could not be made: {error!r}"
                self.pause_s = self.addresses.pause()
            else:
                self.pause_s = self._pause_after(loop.time() - self._connected_s)
            self._log_error()
            self._dial_requested.clear()
            self._set_state("waiting")
            try:
                async with asyncio.timeout(self.pause_s):
                    await self._dial_requested.wait()
            except TimeoutError:
                pass

    def _log_error(self) -> None:
        """Log why there is no connection: at level debug if the address had the same error before,
        else as a warning."""
        is_new = self._logged_errors.get(self.url) != self.last_error
        if is_new and len(self._logged_errors) >= _LOGGED_ERRORS_MAX:
            self._logged_errors.clear()
        self._logged_errors[self.url] = self.last_error
        following = self.addresses.next
        again = "again" if following == self.addresses.current else f"then {following}"
        logger.log(
            logging.WARNING if is_new else logging.DEBUG,
            "%s: %s: %s; %s in %.1f s",
            self._owner,
            self.url,
            Sentence(self.last_error),
            again,
            self.pause_s,
        )

    def _pause_after(self, lasted_s: float) -> float:
        """Record the reason of a connection's end; return the pause before the next attempt, in
        seconds.

        Args:
            lasted_s: the time since CONNACK, in seconds.
        """
        connection = self.connection
        assert connection is not None
        if self.attempt == 0 and self.cleanup_connections_left > 0:
            if connection.needs_packet_id_cleanup:
                self.cleanup_connections_left -= 1
            else:
                self.cleanup_connections_left = 0
        self.last_error = connection.close_reason
        self.reason_code = connection.reason_code
        if connection.has_foreign_session and not self.starts_clean:
            self.starts_clean = True
            logger.warning(
                "%s: %s keeps a session of %s that is unknown here; it is replaced, and the"
                " messages in it are lost",
                self._owner,
                self.url,
                connection.client_id,
            )
        if self.redials_at_once:
            self.redials_at_once = False
            return self.addresses.redial()
        if self.attempt > 0:
            return self.addresses.after_refusal(connection.reason_code, connection.server_reference)
        return self.addresses.after_connection(
            connection.reason_code, connection.server_reference, lasted_s
        )

    def _accept(self, wire: Wire) -> Endpoint:
        assert not self.is_connected, "a session has one connection"
        self._name_connection(self._sent_connect)
        version = self._sent_connect.version
        traced = self._may_trace and is_traced()
        if traced:
            wire = TracedWire(wire, self._owner, version)
        self.connection = ClientConnection(
            self._server.context,
            self._session,
            self.arrivals,
            self._sent_connect,
            self._limits,
            self._application,
            self.is_known,
            self._driver.now(),
            self.cleanup_connections_left > 0,
        )
        self.connection.link.counters = self._server.drops.counters_of(self._session.client_id)
        self.peer = self._driver.adopt(wire, self.connection)
        return TracedPeer(self.peer, self._owner, version) if traced else self.peer


def _reason_of(error: Exception, url: RemoteUrl, connect_timeout_s: float) -> str:
    """Return why ``url`` could not be dialled, in words."""
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer for {connect_timeout_s:g} s"
    is_cut_off = isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError))
    is_no_tls = isinstance(error, ssl.SSLError) and error.reason in _NO_TLS
    if url.is_encrypted and (is_cut_off or is_no_tls):
        return "the server ends the connection when TLS is begun: is this its port for TLS?"
    return failure_text(error)
