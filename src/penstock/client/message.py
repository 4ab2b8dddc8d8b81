"""A received message, and its acknowledgement.

::

      received ─▶ queued ─▶ handed over ─┬─ the iterator's next message ──────▶ acknowledged
                     ▲                   ├─ ``async with processing()`` ──────▶ acknowledged
                     │                   │      failed ─╮
                     ╰── after a pause ──┼──────────────┴─ refuse: negative acknowledgement
                                         ╰─ ``defer``: by ``acknowledge`` or ``refuse``

The server keeps a message until it is acknowledged, and sends it again if the program fails before.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.api import ReceivedMessage
from penstock.engine.values.producer_properties import PRODUCER, SEQUENCE
from penstock.errors import LocalProtocolError
from penstock.protocol import reasons
from penstock.protocol.kinds import PUBACK
from penstock.protocol.properties import Properties

_MESSAGE_IDS: Final = ("message-id", "id")  # user properties with an identifier of the message


class Settler:
    """Receives the outcomes of messages: acknowledged, refused, or to be handed over again."""

    def settle(self, message: Message, code: int) -> None:
        """Settle ``message`` with a reason code, or hand it over again with ``AGAIN``."""


@mypyc_attr(acyclic=True)
@final
class Message:
    """A received message.

    The message and its settler refer to each other only while the program has the message, so that
    there is no cycle for the garbage collector.

    Attributes:
        topic: topic name.
        payload: the payload.
        qos: QoS of the delivery, 0 to 2.
        retain: whether it is a retained message, or with the subscription option Retain As
            Published, whether it was published with RETAIN.
        duplicate: whether the server sent it before, or it was handed over before, so that it may
            have been processed already.
        attempt: number of times that this client handed it over, from 1.
        properties: properties of MQTT 5; None for none.
    """

    __slots__ = (
        "_arrival",
        "_settler",
        "attempt",
        "duplicate",
        "is_deferred",
        "is_queued",
        "payload",
        "properties",
        "qos",
        "retain",
        "topic",
    )

    def __init__(self, arrival: ReceivedMessage) -> None:
        publish = arrival.publish
        self.topic = arrival.topic
        self.payload = publish.payload
        self.qos = publish.qos
        self.retain = publish.retain
        self.duplicate = publish.dup
        self.properties: Properties | None = publish.properties
        self.attempt = 0
        self.is_queued = True  # in the inbox
        self.is_deferred = False  # the iterator does not acknowledge it
        self._arrival: ReceivedMessage | None = arrival
        self._settler: Settler | None = None

    def __repr__(self) -> str:
        return (
            f"Message({self.topic!r}, {len(self.payload)} bytes, qos={self.qos}"
            f"{', retain' if self.retain else ''}{', duplicate' if self.duplicate else ''})"
        )

    @property
    def text(self) -> str:
        """The payload as text, decoded as UTF-8.

        Raises:
            UnicodeDecodeError: the payload is not UTF-8.
        """
        return self.payload.decode()

    def json(self) -> Any:
        """Parse the payload as JSON, and return the value.

        Raises:
            ValueError: the payload is not JSON.
        """
        return json.loads(self.payload)

    @property
    def id(self) -> str | None:
        """The publisher's identifier of this message, by which duplicates are detected.

        It is PRODUCER:SEQUENCE from the user properties of Penstock's producers, or else the user
        property ``message-id`` or ``id``; None if the message has neither.
        """
        if self.properties is None or not self.properties.user_properties:
            return None
        given = dict(reversed(self.properties.user_properties))
        if PRODUCER in given and SEQUENCE in given:
            return f"{given[PRODUCER]}:{given[SEQUENCE]}"
        return next((given[name] for name in _MESSAGE_IDS if name in given), None)

    # -- acknowledging ---------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """Length of the topic in characters plus that of the payload in bytes."""
        return len(self.topic) + len(self.payload)

    @property
    def is_settled(self) -> bool:
        """True if the message was acknowledged or refused."""
        return self._arrival is None

    @property
    def arrival(self) -> ReceivedMessage | None:
        """The engine's record of this message; None once it is settled."""
        return self._arrival

    def hand_over(self, settler: Settler | None) -> bool:
        """Mark the message as handed over; return False if it is already settled or deferred.

        Args:
            settler: receives the outcome of the message; None to ignore the outcome.
        """
        self.is_queued = False
        if self._arrival is None or self.is_deferred:
            return False
        self._settler = settler
        self.attempt += 1
        if self.attempt > 1:
            self.duplicate = True
        return True

    def detach(self) -> None:
        """Detach the settler: the outcome of the message is ignored from now on."""
        self._settler = None

    def settled(self) -> ReceivedMessage | None:
        """Mark the message as settled; return the engine's record of it, None if it was settled
        before."""
        arrival = self._arrival
        self._arrival = None
        return arrival

    def defer(self) -> None:
        """Exempt the message from acknowledgement by the iterator; call ``acknowledge`` later."""
        self.is_deferred = True

    def acknowledge(self) -> None:
        """Acknowledge the message: the server need not send it again. Later calls do nothing."""
        self.settle(reasons.SUCCESS)

    def refuse(self, reason_code: int = reasons.UNSPECIFIED_ERROR) -> None:
        """Refuse the message with a negative acknowledgement: the server does not send it again.

        Before MQTT 5 there are no negative acknowledgements, and the message is acknowledged.

        Args:
            reason_code: 0x80, 0x83, 0x87, 0x90, 0x91, 0x97 or 0x99 (MQTT 5 §3.4.2.1).

        Raises:
            LocalProtocolError: the reason code is another one.
        """
        if not is_refusal(reason_code):
            raise LocalProtocolError(
                reason_code, f"no reason code to refuse a message with: {reason_code}"
            )
        self.settle(reason_code)

    def settle(self, code: int) -> None:
        """Settle the message with a reason code, or have it handed over again with ``AGAIN``."""
        if self._settler is not None:
            self._settler.settle(self, code)
        elif code != AGAIN:
            self.settled()

    def processing(self, *, refuse: int = 0) -> Processing:
        """Return a block that acknowledges at its end: ``async with message.processing():``.

        If the block raises, the message is handed over again after a pause, with ``duplicate`` set
        and the next ``attempt``; QoS 0 messages are not. The exception is propagated.

        Args:
            refuse: reason code of 0x80 or more with which to refuse the message instead, if the
                block raises; 0 to hand it over again.

        Raises:
            LocalProtocolError: a message cannot be refused with the code ``refuse``.
        """
        if refuse and not is_refusal(refuse):
            raise LocalProtocolError(refuse, f"no reason code to refuse a message with: {refuse}")
        self.is_deferred = True
        return Processing(self, refuse)


def is_refusal(reason_code: int) -> bool:
    """Return whether a message can be refused with this code (MQTT 5 §3.4.2.1)."""
    return reason_code >= reasons.UNSPECIFIED_ERROR and reasons.is_allowed(reason_code, PUBACK)


AGAIN: Final = -1
"""Used in place of a reason code: hand the message over again."""


@mypyc_attr(acyclic=True)
@final
class Processing:
    """A block that processes one message; for ``with`` and ``async with``."""

    __slots__ = ("_message", "_refuse")

    def __init__(self, message: Message, refuse: int) -> None:
        self._message = message
        self._refuse = refuse

    def __enter__(self) -> Message:
        return self._message

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        message = self._message
        if kind is None:
            message.acknowledge()
        elif self._refuse and issubclass(kind, Exception):
            message.refuse(self._refuse)
        else:
            message.settle(AGAIN)

    async def __aenter__(self) -> Message:
        return self._message

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, traceback)
