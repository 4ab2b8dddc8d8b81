"""The closed list of reasons for which a message does not reach a session that it was meant for.

A new reason is a number, its words and its name in the two lists, and one call of ``Drops.drop``
where the message is dropped; counters, ``$SYS`` topic, metric, event and dead letter follow. By
hand remain a line in docs/sys_topics.md (a test asks for it), a remedy in ``control.diagnosis``
and, if such drops are wanted, an exception in packaging/prometheus/penstock_alerts.yml.
"""

from __future__ import annotations

from typing import Final

QUEUE_FULL: Final = 0
QOS0_OFFLINE: Final = 1
EXPIRED: Final = 2
PACKET_TOO_LARGE: Final = 3
NO_PERMISSION: Final = 4
RETENTION: Final = 5
SESSION_ENDED: Final = 6
STORE_FAILED: Final = 7
REJECTED: Final = 8  # the receiver answered PUBACK or PUBREC with a reason code >= 0x80
SLOW_CONSUMER: Final = 9  # QoS 0 for a client whose write buffer is full
RETAINED_FULL: Final = 10  # no room to retain the message; it was delivered to subscribers
NOT_RELEASED: Final = 11  # the publisher sent no PUBREL; only of MQTT 3.1 the message is dropped
PAYLOAD_FORMAT: Final = 12  # the payload is not UTF-8, as its payload format indicator says
DEAD_LETTER_LOST: Final = 13  # the dead letter of a message that was counted before is lost too
MEMORY_FULL: Final = 14  # the memory for queued messages, of all or of one user, is used up
OUT_OF_SEQUENCE: Final = 15  # refused: its producer's number is not the next (``producers``)
CONNECTION_ENDED: Final = (
    16  # a bridge's remote broker ended several connections at the message (``poison_message``)
)

REASONS: Final = (
    "queue full",
    "QoS 0 while offline",
    "expired",
    "packet too large for the receiver",
    "no permission",
    "retention",
    "session ended",
    "store failed",
    "rejected by the receiver",
    "QoS 0 for a slow consumer",
    "too many retained messages",
    "not released by its publisher",
    "payload format invalid",
    "dead letter lost",
    "memory full",
    "out of sequence",
    "connection ended at it",
)
"""The words of each reason in the log, by its number."""

SLUGS: Final = (
    "queue_full",
    "qos_0_while_offline",
    "expired",
    "packet_too_large_for_the_receiver",
    "no_permission",
    "retention",
    "session_ended",
    "store_failed",
    "rejected_by_the_receiver",
    "qos_0_for_a_slow_consumer",
    "too_many_retained_messages",
    "not_released_by_its_publisher",
    "payload_format_invalid",
    "dead_letter_lost",
    "memory_full",
    "out_of_sequence",
    "connection_ended_at_it",
)
"""The name of each reason in topics, metrics, events and dead letters."""


def slug_of(reason: int) -> str:
    """Return the name of ``reason`` in a topic or a metric, for example "queue_full"."""
    return SLUGS[reason]
