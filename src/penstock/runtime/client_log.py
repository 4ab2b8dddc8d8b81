"""Log lines about the clients of a driver: connects, disconnects, drops and refusals.

Lines that clients can cause at will are limited in number (``RepeatLimiter``). The lines have the
driver's logger name, by which operators filter them.
"""

from __future__ import annotations

import logging
import time
from typing import Final, final

from penstock.engine.api import Server, ServerConnection
from penstock.engine.values.drop_reasons import REASONS
from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.protocol import reasons
from penstock.runtime.peer import Peer
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, short, warn_limited

logger = get_logger("penstock.runtime.driver")

_VERSIONS: Final = {3: "MQTT 3.1", 4: "MQTT 3.1.1", 5: "MQTT 5"}


@final
class ClientLog:
    """Logs the events of one server's clients.

    Args:
        server: the engine, which counts drops and refused subscriptions.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._limiter = RepeatLimiter()

    def log_connect(self, peer: Peer) -> None:
        """Log one line for a client that was accepted, once."""
        connection = peer.connection
        if peer.was_connected or not isinstance(connection, ServerConnection):
            return
        peer.was_connected = True
        granted = connection.granted
        if granted is not None and granted.is_parted:
            logger.warning(
                "client %s: an older copy of the data at one end was put back, or a new outbox has"
                " taken its place: messages may come twice, with QoS 2 too",
                connection.client_id,
            )
        if granted is not None and logger.isEnabledFor(logging.INFO):
            logger.info(
                "client %s connected from %s: user %s, listener %s, %s, clean start %s,"
                " session expiry %s, session present %s",
                connection.client_id,
                peer.wire.peer,
                "none" if granted.username is None else granted.username,
                peer.wire.listener,
                _VERSIONS.get(connection.version, "MQTT"),
                "yes" if granted.clean_start else "no",
                _expiry_text(granted.expiry_s),
                "yes" if granted.present else "no",
            )

    def name_of(self, peer: Peer) -> str:
        """Return a client's name and address for a log line: "press-7 at 10.0.0.7:51234"."""
        connection = peer.connection
        if not isinstance(connection, ServerConnection):
            return f"the bridge to {peer.wire.peer}"
        name = short(connection.client_id) if connection.client_id else "a client without a name"
        return f"{name} at {peer.wire.peer}"

    def log_close(self, peer: Peer) -> None:
        """Log one line for a connection that the broker closes; for clients that were never
        accepted, few lines a second."""
        connection = peer.connection
        if connection.close_reason in ("client disconnected", ""):
            return
        peer.close_is_noted = True
        suppressed: int | None = 0
        if not peer.was_connected:
            suppressed = self._limiter.admit(_refusal_kind(peer), time.monotonic())
        if suppressed is not None:
            logger.info(
                "closed the connection of %s from %s: %s%s",
                connection.client_id or "an unknown client",
                peer.wire.peer,
                Sentence(connection.close_reason),
                f" (and {suppressed} more like this since the last line)" if suppressed else "",
            )

    def log_disconnect(self, peer: Peer) -> None:
        """Log one line for an accepted client whose connection has ended."""
        if peer.was_connected:
            connection = peer.connection
            level = (
                logging.DEBUG if peer.close_is_noted else logging.INFO
            )  # the reason is logged once
            name = connection.client_id
            logger.log(level, "client %s left: %s", name, Sentence(connection.close_reason))

    def log_drops(self, now_s: float) -> None:
        """Log the messages that were dropped since the last call."""
        for dropped in self._server.drops.take_recent():
            count = dropped.messages
            warn_limited(
                logger,
                self._limiter,
                now_s,
                f"drop {dropped.reason} {dropped.client_id}",
                "dropped %s (client %s%s%s): %s",
                "a message" if count == 1 else f"{count:,} messages",
                dropped.client_id,
                (", topic " if count == 1 else ", the last on ") if dropped.topic else "",
                dropped.topic,
                REASONS[dropped.reason],
                count=count,
            )

    def log_refused_filters(self, now_s: float) -> None:
        """Log the subscriptions that were refused since the last call."""
        for refused in self._server.refused_filters.take():
            many = f"{refused.count:,} subscriptions" if refused.count > 1 else "a subscription"
            latest = ", the last to" if refused.count > 1 else " to"
            warn_limited(
                logger,
                self._limiter,
                now_s,
                f"filter {refused.code} {refused.client_id}",
                "refused %s of client %s%s %r: %s",
                many,
                refused.client_id,
                latest,
                refused.topic_filter,
                reasons.name_of(refused.code),
                count=refused.count,
            )


def _expiry_text(expiry_s: int) -> str:
    return "never" if expiry_s == NEVER_EXPIRES_S else f"{expiry_s} s"


def _refusal_kind(peer: Peer) -> str:
    """Return the kind of refusal that ended a connection, by which repeated lines are counted."""
    why = peer.connection.close_reason
    kind = why.partition(" (")[0] if why.startswith("CONNECT refused: ") else ""
    return f"refused {peer.wire.listener} {kind}"
