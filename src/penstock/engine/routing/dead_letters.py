"""Dead letters: messages that a session dropped are published to one topic.

::

      a session drops a message ─▶ pending ── body in the log only ─▶ body read ─╮
                                      ╰─────── at the next tick ─────────────────┴▶ published

A dead letter has the payload, the QoS and the properties of the message, without its expiry,
and three user properties: the reason of the drop, the client identifier, and the message's topic.
It is routed like any message, so a stream writes it to a table and a client may subscribe to it.

A message that is dropped to make room for a dead letter becomes no dead letter, nor does a dead
letter that is dropped, so that there is no loop. At most ``PENDING_MAX`` wait, with
``DEAD_LETTERS_BYTES_MAX`` of bodies in memory; further ones are counted (``DEAD_LETTER_LOST``).
At most ``PER_TICK_MAX``, or ``DEAD_LETTERS_OF_TICK_BYTES_MAX``, are published in a tick. Those that
wait are not stored: a crash within a tick of the drop loses them.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.commit import BodyRequester
from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import DropHandler, Drops
from penstock.engine.routing.router import Router
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import DEAD_LETTER_LOST, slug_of
from penstock.engine.values.memory_costs import (
    DEAD_LETTERS_BYTES_MAX,
    DEAD_LETTERS_OF_TICK_BYTES_MAX,
)
from penstock.engine.values.message import Delivery, Message
from penstock.protocol.kinds import PUBLISH
from penstock.protocol.properties import decode_properties, encode_properties

PENDING_MAX: Final = 10_000
PER_TICK_MAX: Final = 1000

REASON: Final = "penstock-dropped-because"
CLIENT_ID: Final = "penstock-dropped-for"
TOPIC: Final = "penstock-topic"


@final
class _Letter:
    """One dropped message that waits to be published."""

    def __init__(
        self,
        reason: int,
        client_id: str,
        message: Message | None,
        offset: int,
        size_bytes: int,
    ) -> None:
        self.reason = reason
        self.client_id = client_id
        self.message = message
        self.offset = offset
        self.size_bytes = size_bytes  # size of the message
        self.counted_bytes = 0  # its share of ``_Inbox.size_bytes``


@final
class _Inbox(DropHandler):
    """The dropped messages that wait for a tick to be published."""

    def __init__(self, topic: str, with_qos0: bool, drops: Drops) -> None:
        self.letters: list[_Letter] = []
        self.size_bytes = 0  # bytes of bodies in memory; a body of many letters counts once
        self.is_closed = False  # while a dead letter is published: drops become no dead letters
        self._topic = topic
        self._with_qos0 = with_qos0
        self._drops = drops

    def on_drop(self, reason: int, client_id: str, delivery: Delivery) -> None:
        """Add the dropped ``delivery``, if it may become a dead letter and there is room."""
        message = delivery.message
        if self.is_closed or (delivery.qos == 0 and not self._with_qos0):
            return
        if message is None and delivery.offset < 0:
            return
        if message is not None and message.topic == self._topic:
            return
        if len(self.letters) >= PENDING_MAX:
            self._drops.count(DEAD_LETTER_LOST, client_id, "")
            return
        size_bytes = delivery.size_bytes if message is None else message.size_bytes()
        letter = _Letter(reason, client_id, message, delivery.offset, size_bytes)
        if message is not None and not (self.letters and self.letters[-1].message is message):
            if self.size_bytes + size_bytes <= DEAD_LETTERS_BYTES_MAX:
                letter.counted_bytes = size_bytes
                self.size_bytes += size_bytes
            elif delivery.offset >= 0:
                letter.message = None  # the log has it
            else:
                self._drops.count(DEAD_LETTER_LOST, client_id, "")
                return
        self.letters.append(letter)

    def take(self) -> list[_Letter]:
        """Remove and return the letters to publish in this tick."""
        count = 0
        size_bytes = 0
        for letter in self.letters[:PER_TICK_MAX]:
            size_bytes += letter.size_bytes
            if count > 0 and size_bytes > DEAD_LETTERS_OF_TICK_BYTES_MAX:
                break
            count += 1
            self.size_bytes -= letter.counted_bytes
            letter.counted_bytes = 0
        taken = self.letters[:count]
        self.letters = self.letters[count:]
        return taken

    def on_unknown_drops(self, client_id: str, acknowledged: int, qos0: int) -> None:
        """Count dropped messages whose deliveries are not in memory as lost dead letters."""
        if not self.is_closed:
            lost = acknowledged + (qos0 if self._with_qos0 else 0)
            self._drops.count(DEAD_LETTER_LOST, client_id, "", lost)


@final
class DeadLetters(BodyRequester):
    """Publishes the dead letters of one broker.

    Args:
        topic: the topic to which dead letters are published.
        with_qos0: whether dropped messages of QoS 0 become dead letters too.
        router: publishes the dead letters.
        context: its batch requests bodies that are in the log only.
        drops: the drops of the broker; dead letters that are lost are counted here too.
    """

    def __init__(
        self, topic: str, with_qos0: bool, router: Router, context: EngineContext, drops: Drops
    ) -> None:
        self._topic = topic
        self._router = router
        self._context = context
        self._drops = drops
        self._inbox = _Inbox(topic, with_qos0, drops)
        self._requested_offsets: list[int] = []
        self._requested_letters: list[_Letter] = []
        drops.drop_handler = self._inbox

    def tick(self, now: Now) -> None:
        """Publish the next letters whose bodies are in memory; request the other bodies."""
        inbox = self._inbox
        if not inbox.letters:
            return
        letters = inbox.take()
        absent: list[_Letter] = []
        for letter in letters:
            if letter.message is None:
                absent.append(letter)
            else:
                self._publish(letter, letter.message, now)
        if absent and self._requested_letters:
            inbox.letters = absent + inbox.letters
        elif absent:
            self._requested_letters = absent
            self._requested_offsets = [letter.offset for letter in absent]
            self._context.batch.body_requests.append((self, self._requested_offsets))

    def purpose(self) -> str:
        """Return what the bodies are for, as words for a log line."""
        return "dead letters"

    def needs_bodies(self, offsets: list[int]) -> bool:
        """Return whether ``offsets`` is the latest request of this object."""
        return offsets is self._requested_offsets

    def supply(self, offsets: list[int], bodies: dict[int, Message], now: Now) -> None:
        """Publish the letters whose bodies were read; count letters whose body is missing."""
        if not self.needs_bodies(offsets):
            return
        letters = self._requested_letters
        self._requested_letters = []
        for letter in letters:
            message = bodies.get(letter.offset)
            if message is None:
                self._drops.count(DEAD_LETTER_LOST, letter.client_id, "")
            elif message.topic != self._topic:
                self._publish(letter, message, now)

    def _publish(self, letter: _Letter, message: Message, now: Now) -> None:
        encoded = message.properties
        properties = decode_properties(encoded, 0, len(encoded), PUBLISH)
        properties.message_expiry_interval = None  # the message may have expired
        properties.user_properties = [
            *(properties.user_properties or []),
            (REASON, slug_of(letter.reason)),
            (CLIENT_ID, letter.client_id),
            (TOPIC, message.topic),
        ]
        dead = Message(
            self._topic,
            message.payload,
            message.qos,
            False,
            message.client_id,
            now.wall_us,
            encode_properties(properties),
            lead_us=now.lead_us,
        )
        self._inbox.is_closed = True
        self._router.publish(dead, None, now)
        self._inbox.is_closed = False
