"""A session whose connection we dial, and dial again: that of a bridge or of a client.

::

      DIALLING ── socket, CONNACK ─▶ CONNECTED ── lost, dismissed ─╮
         ▲  ╰─── no answer, refused ──────────────────────────╮ │
         ╰────────── the pause is over ── WAITING (``backoff``) ◀─┴─╯

When an address cannot be reached, or its server does not let us in, the next one is tried; after a
connection that ended, the first again. All lead to one session.

That the server may have its half of the session is noted in ours, on disk, before the server can
have any of it (``established``): only a session known to both can be resumed [MQTT-3.2.2-4].
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final, final

from penstock.config.remote_url import RemoteUrl
from penstock.engine.batch.records import SessionRecord
from penstock.engine.connection.states import CONNECTED
from penstock.engine.dialling.client_callbacks import ClientCallbacks
from penstock.engine.dialling.client_connection import ClientConnection
from penstock.engine.dialling.unacknowledged import UnacknowledgedMessages
from penstock.engine.limits import EngineLimits
from penstock.engine.server.server import Server
from penstock.engine.session.session import Session
from penstock.errors import LocalProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connack, Connect
from penstock.runtime.driver import Driver
from penstock.runtime.peer import Peer
from penstock.telemetry.logs import Sentence, get_logger
from penstock.transport.api import Endpoint, Wire
from penstock.transport.backoff import Backoff
from penstock.transport.dialling import dial

logger = get_logger(__name__)

_REFUSED: Final = frozenset(
    (
        reasons.BAD_USER_NAME_OR_PASSWORD,
        reasons.NOT_AUTHORIZED,
        reasons.BANNED,
        reasons.BAD_AUTHENTICATION_METHOD,
        reasons.CLIENT_IDENTIFIER_NOT_VALID,
        reasons.UNSUPPORTED_PROTOCOL_VERSION,
    )
)
"""Refusals that only a person can mend: dialling again soon would not help."""


def established(zone: str) -> str:
    """Return the zone of a session once the server may have the other half of it."""
    return f"{zone}, established"


@final
class Dialler:
    """Keeps one session connected.

    Args:
        owner: the name of the session's owner in logs, such as "bridge cloud".
        urls: addresses of the server; the first that accepts us is used.
        context: the TLS context; None where no URL needs one.
        connect: makes the CONNECT packet; its argument says whether to start clean.
        server: the engine with the session.
        driver: runs the connection.
        session: the session that is kept connected.
        limits: its limits.
        application: the user of the connection; it calls ``connected`` and ``ended``.
        backoff: the pauses.
        connect_timeout_s: time limit of each step of connecting, seconds.
        headers: more of them, for the upgrade to WebSocket.
        changed: called when the state has changed.
    """

    def __init__(
        self,
        owner: str,
        urls: list[RemoteUrl],
        context: ssl.SSLContext | None,
        connect: Callable[[bool], Connect],
        server: Server,
        driver: Driver,
        session: Session,
        limits: EngineLimits,
        application: ClientCallbacks,
        backoff: Backoff,
        connect_timeout_s: float,
        headers: tuple[tuple[str, str], ...] = (),
        changed: Callable[[], None] | None = None,
    ) -> None:
        self.state = "dialling"
        self.attempt = 0  # since the last connection
        self.url = ""  # of the latest attempt
        self.pause_s = 0.0  # while waiting: how long, from its beginning
        self.last_error = ""
        self.reason_code = reasons.SUCCESS  # of the latest server that refused or dismissed us
        self.starts_clean = False  # the next connection
        self.follows_references = False  # of servers to others
        self.elsewhere: RemoteUrl | None = None  # where the next connection goes instead
        self.dials_again = False  # the same address, at once: the application says so
        self.arrivals = UnacknowledgedMessages()
        self.connection: ClientConnection | None = None
        self.peer: Peer | None = None
        self._owner = owner
        self.urls = urls
        self._context = context
        self._connect = connect
        self._server = server
        self._driver = driver
        self._session = session
        self._limits = limits
        self._application = application
        self._backoff = backoff
        self._connect_timeout_s = connect_timeout_s
        self._headers = headers
        self._changed = changed
        self._connected_s = 0.0  # since when, on the loop's clock
        self._said = Connect("")  # by the present connection
        self._over: asyncio.Future[None] | None = None  # done when the connection is
        self._woken = asyncio.Event()  # to dial at once
        self.inherits = 0  # the session is a former program's: so often its half is asked for
        self.is_known = session.zone == established(limits.zone)
        if self.is_known:
            self.establish()  # in one commit with its opening, which wrote it without that

    @property
    def is_connected(self) -> bool:
        """Return whether the server has let us in."""
        return self.connection is not None and self.connection.state == CONNECTED

    async def run(self) -> None:
        """Keep the session connected until cancelled."""
        while True:
            try:
                await self._keep_connected()
            except Exception:
                logger.exception("%s: a defect of Penstock; it goes on", self._owner)
                await asyncio.sleep(self._backoff.refused())

    def dial_now(self) -> None:
        """Do not wait any longer for the next attempt."""
        self._woken.set()

    # -- the application says ---------------------------------------------------------------

    def connected(self, connack: Connack) -> None:
        """Note that the server has accepted the connection."""
        self._connected_s = asyncio.get_running_loop().time()
        self.attempt = 0
        self.last_error = ""
        self.reason_code = reasons.SUCCESS
        self.is_known = True
        self.released()
        self.starts_clean = False
        logger.info(
            "%s: connected to %s, which %s",
            self._owner,
            self.url,
            "has our session" if connack.session_present else "begins a new session",
        )
        self._become("connected")

    def released(self) -> None:
        """Note that what a former program left, if anything, is released: the session is ours."""
        assert self.connection is not None
        is_noted = self._session.zone == established(self._limits.zone)
        if not is_noted and not self.connection.inherits:
            self.establish()

    def ended(self) -> None:
        """Note that the connection is over."""
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def establish(self) -> None:
        """Note on disk that the server may have the other half of the session.

        It has subscriptions, and so messages for us, only after that: SUBSCRIBE waits for the
        commit. Without this note a session found there is none of ours.
        """
        session = self._session
        session.zone = established(self._limits.zone)
        if session.stored:
            interval_s = session.expiry_interval_s
            self._server.effects.batch.put_session(
                SessionRecord(session.client_id, session.number, interval_s, 0, session.zone)
            )

    # -- dialling ---------------------------------------------------------------------------

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._over = loop.create_future()
        self._connected_s = 0.0
        self.peer = None
        self._become("dialling")

    def _become(self, state: str) -> None:
        self.state = state
        if self._changed is not None:
            self._changed()

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        place = 0
        told = ""  # why it failed, as the log has it already
        while True:
            url = self.elsewhere or self.urls[place]
            self.elsewhere = None
            self.url = str(url)
            self.attempt += 1
            self._begin(loop)
            try:
                self._said = self._connect(self.starts_clean)
                encode(self._said, self._said.version)
                await dial(
                    url,
                    self._owner,
                    self._context,
                    self._accept,
                    self._connect_timeout_s,
                    self._limits.write_buffer_bytes_max,
                    self._headers,
                )
                if self._over is not None:
                    await self._over
            except (OSError, ValueError, LocalProtocolError) as error:
                if self.peer is not None and self.connection is not None:  # both in one turn
                    self.connection.disconnect(self._driver.now())
                self.last_error = str(error) or f"no answer for {self._connect_timeout_s:g} s"
                place = (place + 1) % len(self.urls)
                self.pause_s = self._backoff.failed()
            except Exception as error:  # of what authenticates us
                logger.exception("%s: CONNECT could not be made", self._owner)
                self.last_error = f"CONNECT could not be made: {error!r}"
                self.pause_s = self._backoff.failed()
            else:
                told = told if self.attempt > 0 else ""
                refused = self.attempt > 0
                again = self.dials_again
                self.dials_again = False
                if not again:
                    place = (place + 1) % len(self.urls) if refused else 0
                self.pause_s = self._after(loop.time() - self._connected_s, place)
                place %= len(self.urls)
                if again:
                    self.pause_s = 0.0
            is_news = told != self.last_error
            told = self.last_error
            logger.log(
                logging.WARNING if is_news else logging.DEBUG,
                "%s: %s: %s; again in %.1f s",
                self._owner,
                self.url,
                Sentence(self.last_error),
                self.pause_s,
            )
            self._woken.clear()
            self._become("waiting")
            try:
                async with asyncio.timeout(self.pause_s):
                    await self._woken.wait()
            except TimeoutError:
                pass

    def _after(self, stood_s: float, place: int) -> float:
        """Return how long to wait before dialling again, in seconds, after a connection is over."""
        connection = self.connection
        assert connection is not None
        if self.attempt == 0 and self.inherits > 0:
            self.inherits = self.inherits - 1 if connection.inherits else 0
        self.last_error = connection.close_reason
        self.reason_code = connection.reason_code
        if self.follows_references and connection.server_reference:
            self._follow(connection.server_reference, connection.reason_code)
        if connection.is_unknown and not self.starts_clean:
            self.starts_clean = True
            logger.warning(
                "%s: %s keeps a session of %s that is unknown here; it is replaced, and the"
                " messages in it are lost",
                self._owner,
                self.url,
                connection.client_id,
            )
        if connection.reason_code in _REFUSED and self.attempt > 0 and place == 0:
            return self._backoff.refused()  # by the last of them
        if self.attempt == 0:
            self._backoff.stood(stood_s)
        return self._backoff.failed()

    def _follow(self, reference: str, code: int) -> None:
        """Dial next where the server said, the first of several: for once with 0x9C, else for good.

        A reference is HOST or HOST:PORT; how it is spoken to, TLS above all, stays as it was.
        """
        here = RemoteUrl.parse(self.url)
        where = reference.split()[0] if reference.split() else ""
        try:
            there = RemoteUrl.parse(f"{here.scheme}://{where}{here.path}")
        except ValueError:
            there = here
        if there == here or here.scheme == "unix":
            logger.warning("%s: %s names no other server: '%s'", self._owner, self.url, reference)
        elif code in (reasons.USE_ANOTHER_SERVER, reasons.SERVER_MOVED):
            self.elsewhere = there
            if code == reasons.SERVER_MOVED:
                self.urls = [there]

    def _accept(self, wire: Wire) -> Endpoint:
        assert not self.is_connected, "a session has one connection"
        self.connection = ClientConnection(
            self._server.effects,
            self._session,
            self.arrivals,
            self._said,
            self._limits,
            self._application,
            self.is_known,
            self._driver.now(),
            self.inherits > 0,
        )
        self.peer = self._driver.adopt(wire, self.connection)
        return self.peer
