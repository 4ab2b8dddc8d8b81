"""The subscriptions of a client: sent to the server, answered, and sent again.

::

      subscribe ─▶ WAITING ── connected ─▶ SENT ── SUBACK ─▶ answered
                      ▲                      │
                      ╰── connection lost ◀──╯

Granted subscriptions are asked for again when the server has lost the session. If it refuses one
then, that is logged, because no caller waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, final

from penstock.engine.dialling.client_connection import ClientConnection
from penstock.errors import (
    LocalProtocolError,
    NotConnected,
    RemoteProtocolError,
    SubscribeFailed,
)
from penstock.protocol import reasons
from penstock.protocol.packets import Packet, Suback, Subscription, Unsuback
from penstock.protocol.properties import Properties
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

_AT_ONCE_MAX: Final = 50  # most filters in a SUBSCRIBE that asks again
_UNANSWERED_MAX: Final = 5


@final
class _Ask:
    """One SUBSCRIBE or UNSUBSCRIBE, and the future of its answer."""

    def __init__(
        self,
        subscriptions: list[Subscription],
        ended: list[str],
        properties: Properties | None,
        answer: asyncio.Future[list[int]] | None,
    ) -> None:
        self.subscriptions = subscriptions
        self.ended = ended  # filters to unsubscribe from
        self.properties = properties
        self.answer = answer
        self.unanswered = 0  # connections that ended before its answer

    @property
    def is_given_up(self) -> bool:
        """True if no one waits for the answer any more."""
        return self.answer is not None and self.answer.done()


@final
class Subscriptions:
    """The subscriptions of one client."""

    def __init__(self) -> None:
        self.granted: dict[str, tuple[Subscription, Properties | None]] = {}
        self._waiting: deque[_Ask] = deque()
        self._sent: dict[int, _Ask] = {}  # by packet identifier
        self._connection: ClientConnection | None = None
        self._closed = False

    def ask(
        self,
        subscriptions: list[Subscription],
        ended: list[str],
        properties: Properties | None,
    ) -> asyncio.Future[list[int]]:
        """Subscribe to all of ``subscriptions``, or unsubscribe from all of ``ended``.

        Returns:
            The server's reason codes, in their order, once it has answered.
        """
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        if self._closed:
            answer.set_exception(NotConnected("the client is closed"))
            return answer
        self._waiting.append(_Ask(subscriptions, ended, properties, answer))
        self._send_waiting()
        return answer

    def connected(self, connection: ClientConnection, session_present: bool) -> None:
        """Use a new connection: send unanswered requests, and subscriptions that the server has
        forgotten."""
        self._connection = connection
        if not session_present:
            self._ask_again()
        self._send_waiting()

    def disconnected(self) -> None:
        """Queue unanswered requests again, in their order: the connection is gone."""
        self._connection = None
        for ask in reversed(self._sent.values()):
            ask.unanswered += 1
            if ask.answer is None or ask.unanswered < _UNANSWERED_MAX:
                self._waiting.appendleft(ask)
            elif not ask.answer.done():
                ask.answer.set_exception(
                    SubscribeFailed(
                        f"{_UNANSWERED_MAX} connections ended before the server answered: it may"
                        " not accept this request"
                    )
                )
        self._sent.clear()

    def answered(self, packet: Packet) -> None:
        """Take a SUBACK or UNSUBACK.

        Raises:
            RemoteProtocolError: it has not one reason code for each filter [MQTT-3.8.4-6]
                [MQTT-3.11.3-1].
        """
        if not isinstance(packet, Suback | Unsuback):
            return
        ask = self._sent.get(packet.packet_id)
        if ask is None:
            return
        codes = list(packet.reason_codes)
        if ask.ended and not codes:  # before MQTT 5 UNSUBACK has none
            codes = [reasons.SUCCESS] * len(ask.ended)
        asked = len(ask.ended or ask.subscriptions)
        if isinstance(packet, Suback) == bool(ask.ended) or len(codes) != asked:
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, f"{packet!r} is no answer for {asked} topic filters"
            )
        del self._sent[packet.packet_id]
        for subscription, code in zip(ask.subscriptions, codes, strict=False):
            if code < reasons.UNSPECIFIED_ERROR:
                self.granted[subscription.topic_filter] = (subscription, ask.properties)
            else:
                self.granted.pop(subscription.topic_filter, None)
                if ask.answer is None:
                    logger.error(
                        "the server lost the session and now refuses '%s': %s",
                        subscription.topic_filter,
                        reasons.name_of(code),
                    )
        if ask.ended:
            for topic_filter, code in zip(ask.ended, codes, strict=False):
                if code < reasons.UNSPECIFIED_ERROR:
                    self.granted.pop(topic_filter, None)
        if ask.answer is not None and not ask.answer.done():
            ask.answer.set_result(codes)
        self._send_waiting()

    @property
    def is_asking(self) -> bool:
        """True while an answer is awaited."""
        return bool(self._sent or self._waiting)

    def close(self, why: str) -> None:
        """Fail all waiting requests; nothing is sent any more."""
        self._closed = True
        for ask in (*self._sent.values(), *self._waiting):
            if ask.answer is not None and not ask.answer.done():
                ask.answer.set_exception(NotConnected(why))
        self._sent.clear()
        self._waiting.clear()

    # -- inside ----------------------------------------------------------------------------

    def _ask_again(self) -> None:
        """Queue a request for all granted subscriptions, each once."""
        self._waiting = deque(ask for ask in self._waiting if ask.answer is not None)
        by_properties: dict[int, _Ask] = {}
        asks: list[_Ask] = []
        for subscription, properties in self.granted.values():
            ask = by_properties.get(id(properties))
            if ask is None or len(ask.subscriptions) >= _AT_ONCE_MAX:
                ask = _Ask([], [], properties, None)
                by_properties[id(properties)] = ask
                asks.append(ask)
            ask.subscriptions.append(subscription)
        self._waiting.extendleft(reversed(asks))

    def _send_waiting(self) -> None:
        connection = self._connection
        while connection is not None and self._waiting:
            ask = self._waiting.popleft()
            if ask.is_given_up:
                continue
            try:
                if ask.ended:
                    packet_id = connection.unsubscribe(ask.ended, ask.properties)
                else:
                    packet_id = connection.subscribe(ask.subscriptions, ask.properties)
            except LocalProtocolError as error:
                if ask.answer is None and len(ask.subscriptions) > 1:  # too large together
                    for subscription in reversed(ask.subscriptions):
                        self._waiting.appendleft(_Ask([subscription], [], ask.properties, None))
                elif ask.answer is None:
                    logger.error("not subscribed again: %s", error)
                else:
                    ask.answer.set_exception(SubscribeFailed(error.message, error.reason))
                continue
            if packet_id == 0:  # all identifiers are in use: try again with the next answer
                self._waiting.appendleft(ask)
                return
            assert packet_id not in self._sent, "a packet identifier is of one request"
            self._sent[packet_id] = ask
