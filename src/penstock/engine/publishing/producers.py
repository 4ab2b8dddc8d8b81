"""Producers: clients that number their messages, so that none is published twice.

A client that crashes has a new connection afterwards, and so new packet identifiers: MQTT
does not show the broker that a message was sent before. A producer numbers its messages, in two
user properties of each PUBLISH above QoS 0 (MQTT 5 §3.3.2.3.7): its name, and the number of the
message, which begins at 1 and grows by 1::

      PUBLISH ─▶ the next number ──▶ published; the same commit stores the number
              ─▶ a lower number ───▶ a repeat: acknowledged, and not published again
              ─▶ a higher number ──▶ refused, 0x83: a message between was not published

So when one of several unacknowledged messages is refused, those after it are refused as well, and
the order is kept. CONNECT may have the name too: CONNACK then has the latest published number, so
that a client that stores no number can continue.

The names of producers are separate for each user, so that no user affects another's producers.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.values import drop_reasons
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.producer_properties import ProducerSequence
from penstock.engine.values.records import ProducerRecord

USER_CHARACTERS_MAX: Final = 256  # characters in the name of a user with producers
MARKED_EXPIRY_FACTOR: Final = 52
"""A streaming query is refused once its sink is forgotten: a week's silence is no reason for that,
a year's is."""
_SEPARATOR: Final = "\0"  # separates user and producer; no MQTT string has it [MQTT-1.5.4-2]
_EXPIRED_AT_ONCE_MAX: Final = 1000

# The verdict on a numbered message.
NEXT: Final = 0
REPEATED: Final = 1
REFUSED: Final = 2  # 0x83
NO_ROOM: Final = 3  # 0x97


@final
class Producers:
    """The latest number of each producer.

    Args:
        context: the parts of the broker that it acts on; its batch stores the numbers.
        limits: the number of producers, and the time after which an unused one is forgotten.
        drops: counts refused messages.
    """

    def __init__(self, context: EngineContext, limits: EngineLimits, drops: Drops) -> None:
        self._latest: dict[str, ProducerRecord] = {}  # by key; the least recently used is first
        self._count_by_user: dict[str, int] = {}  # producers of each user
        self._context = context
        self._drops = drops
        self.apply_settings(limits)

    def apply_settings(self, limits: EngineLimits) -> None:
        """Apply other limits from now on; known producers stay."""
        self._count_max = limits.producers_max
        self._per_user_max = limits.producers_per_user_max
        self._silent_us_max = int(limits.producer_expiry_s * 1_000_000)

    def __len__(self) -> int:
        return len(self._latest)

    def recover(self, found: list[ProducerRecord]) -> None:
        """Restore the producers ``found`` in the store."""
        for record in sorted(found, key=_used_at_us):
            self._latest[record.key] = record
            self._count_producer(record.key, 1)

    def latest(self, username: str | None, name: str) -> int:
        """Return the number of the producer's latest message; 0 if the producer is not known."""
        record = self._latest.get(_key(username, name))
        return 0 if record is None else record.sequence

    def latest_mark(self, username: str | None, name: str) -> str:
        """Return the mark of the producer's latest message; empty if it has none."""
        record = self._latest.get(_key(username, name))
        return "" if record is None else record.mark

    def judge(
        self, username: str | None, message: ProducerSequence, client_id: str, topic: str
    ) -> int:
        """Return the verdict on a message: ``NEXT`` … ``NO_ROOM``; count a refusal."""
        record = self._latest.get(_key(username, message.name))
        latest = 0 if record is None else record.sequence
        if not message.mistake and 0 < message.sequence <= latest:
            return REPEATED
        if message.mistake or message.sequence != latest + 1 or _is_too_long(username):
            self._drops.count(drop_reasons.OUT_OF_SEQUENCE, client_id, topic)
            return REFUSED
        if record is None and not self._has_room_for(username or ""):
            self._drops.count(drop_reasons.OUT_OF_SEQUENCE, client_id, topic)
            return NO_ROOM
        return NEXT

    def has_room(self, username: str, name: str) -> bool:
        """Return whether this producer is known, or may be added within the limits."""
        return _key(username, name) in self._latest or self._has_room_for(username)

    def refusal_text(self, username: str | None, message: ProducerSequence) -> str:
        """Return why ``message`` was refused, one sentence for the client."""
        if message.mistake:
            return message.mistake
        if _is_too_long(username):
            return f"a user with producers has at most {USER_CHARACTERS_MAX} characters"
        latest = self.latest(username, message.name)
        if latest == 0:
            return "this producer is not known, or was forgotten: its next message is 1"
        return f"message {message.sequence} is out of sequence: {latest + 1} is next"

    def record_published(self, username: str | None, message: ProducerSequence, now: Now) -> None:
        """Record ``message``, which was judged ``NEXT`` and is published in the open batch, as the
        producer's latest."""
        key = _key(username, message.name)
        record = ProducerRecord(key, message.sequence, now.steady_us, message.mark)
        before = self._latest.pop(key, None)
        if before is None:
            self._count_producer(key, 1)
        else:
            assert before.sequence <= message.sequence, "the numbers of a producer never fall"
        self._latest[key] = record
        self._context.batch.put_producer(key, record)

    def expire(self, now: Now) -> None:
        """Forget producers that published nothing for ``producer_expiry_s``, those with a mark for
        ``MARKED_EXPIRY_FACTOR`` times as long; at most ``_EXPIRED_AT_ONCE_MAX`` in one call."""
        if self._silent_us_max == 0:
            return
        before_us = now.steady_us - self._silent_us_max
        marked_before_us = now.steady_us - self._silent_us_max * MARKED_EXPIRY_FACTOR
        expired: list[str] = []
        for key, record in self._latest.items():
            if record.used_at_us > before_us or len(expired) >= _EXPIRED_AT_ONCE_MAX:
                break
            if not record.mark or record.used_at_us <= marked_before_us:
                expired.append(key)
        for key in expired:
            del self._latest[key]
            self._count_producer(key, -1)
            self._context.batch.put_producer(key, None)

    def _has_room_for(self, username: str) -> bool:
        """Return whether the limits allow one more producer of this user."""
        if 0 < self._count_max <= len(self._latest):
            return False
        return not 0 < self._per_user_max <= self._count_by_user.get(username, 0)

    def _count_producer(self, key: str, more: int) -> None:
        username = key.partition(_SEPARATOR)[0]
        count = self._count_by_user.get(username, 0) + more
        if count > 0:
            self._count_by_user[username] = count
        else:
            del self._count_by_user[username]


def _is_too_long(username: str | None) -> bool:
    return username is not None and len(username) > USER_CHARACTERS_MAX


def _key(username: str | None, name: str) -> str:
    return f"{username or ''}{_SEPARATOR}{name}"


def _used_at_us(record: ProducerRecord) -> int:
    return record.used_at_us
