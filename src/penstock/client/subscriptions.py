"""The subscriptions of a client, and its SUBSCRIBE and UNSUBSCRIBE requests.

::

      subscribe ─▶ WAITING ── connected ─▶ SENT ── SUBACK ─▶ answered
                      ▲                      │
                      ╰── connection lost ◀──╯

If the server has lost the session, the client subscribes to all granted subscriptions again. A
refusal is then logged as an error, because no caller waits for the answer.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, final

from penstock.engine.api import ClientConnection
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

_FILTERS_PER_SUBSCRIBE_MAX: Final = 50  # most filters in a SUBSCRIBE that requests again
_UNANSWERED_MAX: Final = 5


@final
class _Request:
    """One SUBSCRIBE or UNSUBSCRIBE request, and the future of its answer."""

    def __init__(
        self,
        subscriptions: list[Subscription],
        unsubscribe_filters: list[str],
        properties: Properties | None,
        answer: asyncio.Future[list[int]] | None,
    ) -> None:
        self.subscriptions = subscriptions
        self.unsubscribe_filters = unsubscribe_filters
        self.properties = properties
        self.answer = answer
        self.unanswered = 0  # connections that ended before the answer

    @property
    def is_abandoned(self) -> bool:
        """True if the caller has stopped waiting for the answer."""
        return self.answer is not None and self.answer.done()


@final
class Subscriptions:
    """The subscriptions of one client."""

    def __init__(self) -> None:
        self.granted: dict[str, tuple[Subscription, Properties | None]] = {}
        self._unsent: deque[_Request] = deque()
        self._sent: dict[int, _Request] = {}  # by packet identifier
        self._connection: ClientConnection | None = None
        self._closed = False

    def send_request(
        self,
        subscriptions: list[Subscription],
        unsubscribe_filters: list[str],
        properties: Properties | None,
    ) -> asyncio.Future[list[int]]:
        """Send a SUBSCRIBE with ``subscriptions``, or an UNSUBSCRIBE of ``unsubscribe_filters``.

        Returns:
            The future of the server's reason codes, one for each filter in their order.
        """
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        if self._closed:
            answer.set_exception(NotConnected("the client is closed"))
            return answer
        self._unsent.append(_Request(subscriptions, unsubscribe_filters, properties, answer))
        self._send_waiting()
        return answer

    def connected(self, connection: ClientConnection, session_present: bool) -> None:
        """Send unanswered requests on a new connection; without a session, subscribe again."""
        self._connection = connection
        if not session_present:
            self._resubscribe()
        self._send_waiting()

    def disconnected(self) -> None:
        """Queue the unanswered requests of the lost connection again, in their order.

        A request that stayed unanswered on ``_UNANSWERED_MAX`` connections fails.
        """
        self._connection = None
        for request in reversed(self._sent.values()):
            request.unanswered += 1
            if request.answer is None or request.unanswered < _UNANSWERED_MAX:
                self._unsent.appendleft(request)
            elif not request.answer.done():
                request.answer.set_exception(
                    SubscribeFailed(
                        f"{_UNANSWERED_MAX} connections ended before the server answered: it may"
                        " not accept this request"
                    )
                )
        self._sent.clear()

    def answered(self, packet: Packet) -> None:
        """Resolve the request that a SUBACK or UNSUBACK answers.

        Raises:
            RemoteProtocolError: the packet is of the wrong kind, or does not have one reason code
                for each filter [MQTT-3.8.4-6] [MQTT-3.11.3-1].
        """
        if not isinstance(packet, Suback | Unsuback):
            return
        request = self._sent.get(packet.packet_id)
        if request is None:
            return
        codes = list(packet.reason_codes)
        if request.unsubscribe_filters and not codes:  # UNSUBACK has codes only in MQTT 5
            codes = [reasons.SUCCESS] * len(request.unsubscribe_filters)
        filter_count = len(request.unsubscribe_filters or request.subscriptions)
        if (
            isinstance(packet, Suback) == bool(request.unsubscribe_filters)
            or len(codes) != filter_count
        ):
            raise RemoteProtocolError(
                reasons.PROTOCOL_ERROR, f"{packet!r} does not answer {filter_count} topic filters"
            )
        del self._sent[packet.packet_id]
        for subscription, code in zip(request.subscriptions, codes, strict=False):
            if code < reasons.UNSPECIFIED_ERROR:
                self.granted[subscription.topic_filter] = (subscription, request.properties)
            else:
                self.granted.pop(subscription.topic_filter, None)
                if request.answer is None:
                    logger.error(
                        "the server lost the session and now refuses '%s': %s",
                        subscription.topic_filter,
                        reasons.name_of(code),
                    )
        if request.unsubscribe_filters:
            for topic_filter, code in zip(request.unsubscribe_filters, codes, strict=False):
                if code < reasons.UNSPECIFIED_ERROR:
                    self.granted.pop(topic_filter, None)
        if request.answer is not None and not request.answer.done():
            request.answer.set_result(codes)
        self._send_waiting()

    @property
    def awaits_answer(self) -> bool:
        """True while a request has no answer."""
        return bool(self._sent or self._unsent)

    def close(self, why: str) -> None:
        """Fail all unanswered requests with ``NotConnected``, and all later ones."""
        self._closed = True
        for request in (*self._sent.values(), *self._unsent):
            if request.answer is not None and not request.answer.done():
                request.answer.set_exception(NotConnected(why))
        self._sent.clear()
        self._unsent.clear()

    # -- internal --------------------------------------------------------------------------

    def _resubscribe(self) -> None:
        """Queue SUBSCRIBE requests for all granted subscriptions, each once, before all others."""
        self._unsent = deque(request for request in self._unsent if request.answer is not None)
        by_properties: dict[int, _Request] = {}
        requests: list[_Request] = []
        for subscription, properties in self.granted.values():
            request = by_properties.get(id(properties))
            if request is None or len(request.subscriptions) >= _FILTERS_PER_SUBSCRIBE_MAX:
                request = _Request([], [], properties, None)
                by_properties[id(properties)] = request
                requests.append(request)
            request.subscriptions.append(subscription)
        self._unsent.extendleft(reversed(requests))

    def _send_waiting(self) -> None:
        connection = self._connection
        while connection is not None and self._unsent:
            request = self._unsent.popleft()
            if request.is_abandoned:
                continue
            try:
                if request.unsubscribe_filters:
                    packet_id = connection.unsubscribe(
                        request.unsubscribe_filters, request.properties
                    )
                else:
                    packet_id = connection.subscribe(request.subscriptions, request.properties)
            except LocalProtocolError as error:
                if request.answer is None and len(request.subscriptions) > 1:  # too large together
                    for subscription in reversed(request.subscriptions):
                        self._unsent.appendleft(
                            _Request([subscription], [], request.properties, None)
                        )
                elif request.answer is None:
                    logger.error("could not subscribe again: %s", error)
                else:
                    request.answer.set_exception(SubscribeFailed(error.message, error.reason))
                continue
            if packet_id == 0:  # all identifiers are in use: try again after the next answer
                self._unsent.appendleft(request)
                return
            assert packet_id not in self._sent, "each request has a packet identifier of its own"
            self._sent[packet_id] = request
