"""What clients may ask for, and what is kept for them.

The bounds are the engine's own (`penstock.engine.limits`), validated and explained here. A
listener may have others than the broker: those of its zone.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from penstock.config.group import Group
from penstock.config.values import TOPIC_LEVELS_MAX, TopicFilter
from penstock.engine.limits import NEVER_EXPIRES_S, V31_CLIENT_ID_LEN

BROKER_LIMITS: Final = frozenset(
    {"retained_messages_max", "sessions_max", "sessions_per_user_max", "topic_levels_max"}
)
"""Those of `Limits` that hold for the whole broker and cannot differ by listener."""


class Limits(Group):
    """Bounds on what clients may ask for and on what is kept for them."""

    max_inflight: int = Field(default=32, ge=0, le=65535)
    """In-flight window: QoS 1 and 2 messages sent to a client and not yet acknowledged.
    0 to 65535; 0 leaves the limit to the client's receive maximum."""

    max_mqueue_len: int = Field(default=1000, ge=0, le=100_000_000)
    """Message queue: messages waiting for the window or for an offline client.
    0 to 100000000; 0 is no limit."""

    max_mqueue_bytes: int = Field(default=0, ge=0, le=2**40)
    """Message queue: bytes of the messages in it, with topics and properties.
    0 to 1099511627776; 0 is no limit."""

    mqueue_overflow: Literal["drop_oldest", "drop_newest", "reject", "spill"] = "drop_oldest"
    """What a full message queue does. "drop_oldest": QoS 0 goes first, then the oldest message.
    "drop_newest": the new message goes. "reject": the publisher is refused (0x97; before MQTT 5
    it gets no acknowledgement until there is room), and nobody gets the message. "spill": the
    queue of a session that outlives its connection has no limit, for the log holds it."""

    mqueue_priorities: dict[TopicFilter, Annotated[int, Field(ge=1, le=255)]] = Field(
        default={}, max_length=1000
    )
    """Priority in the message queue by topic filter, 1 to 255, higher first; the first filter
    that matches a topic counts. At most 1000."""

    mqueue_default_priority: int = Field(default=0, ge=0, le=255)
    """Priority of topics that no filter of mqueue_priorities matches. 0 to 255."""

    mqueue_store_qos0: bool = True
    """Queue QoS 0 messages too while their client is offline."""

    retry_interval_s: float = Field(default=20.0, ge=0, le=86_400)
    """MQTT 3.1 clients get again, marked as a duplicate, what they have not acknowledged for this
    long, in seconds, 0 to 86400; 0 never. Later versions forbid it: they get it again when they
    reconnect."""

    max_awaiting_rel: int = Field(default=0, ge=0, le=65535)
    """QoS 2 messages of one client that it has not released (PUBREL) yet, also from earlier
    connections. Above it MQTT 5 clients get 0x97, others no acknowledgement until they release
    one. 0 to 65535; 0 is no limit but receive_maximum."""

    max_awaiting_rel_bytes: int = Field(default=1_048_576, ge=0, le=2**40)
    """QoS 2 messages of an MQTT 3.1 client, which nobody gets before it releases them: bytes of
    them in memory. Those beyond are read from the log when they are released.
    0 to 1099511627776."""

    await_rel_timeout_s: float = Field(default=300.0, ge=0, le=10**7)
    """A QoS 2 message whose client is connected and has not released it for this long is taken
    for finished, in seconds: if the client sends it once more after that, it counts as a new one.
    One of an MQTT 3.1 client is dropped, for nobody has got it, and the time goes on while that
    client is away. 0 to 10000000; 0 waits for ever."""

    receive_maximum: int = Field(default=1000, ge=1, le=65535)
    """QoS 1 and 2 messages a client may send before they are acknowledged. 1 to 65535."""

    max_packet_size_bytes: int = Field(default=1_048_576, ge=256, le=268_435_460)
    """Largest packet accepted, in bytes. 256 to 268435460."""

    connect_packet_size_bytes_max: int = Field(default=65_536, ge=256, le=268_435_460)
    """Largest CONNECT accepted, in bytes, its will included: who sends it is not known yet. A
    larger one is refused by its length, before the rest of it is read (0x95; before MQTT 5 the
    connection is closed). 256 to 268435460; limits.max_packet_size_bytes holds beside it."""

    connect_user_properties_max: int = Field(default=64, ge=0, le=1_000_000)
    """User properties of a CONNECT, those of its will included; one with more is refused (0x97).
    0 to 1000000."""

    topic_alias_maximum: int = Field(default=16, ge=0, le=65535)
    """Topic aliases an MQTT 5 client may define. 0 to 65535; 0 turns them off."""

    topic_alias_outbound_max: int = Field(default=16, ge=0, le=65535)
    """Topic aliases the broker defines for an MQTT 5 client that takes any, as far as it does.
    0 to 65535; 0 turns them off."""

    session_expiry_s_max: int = Field(default=NEVER_EXPIRES_S, ge=0, le=NEVER_EXPIRES_S)
    """Longest time a session is kept after its client left, in seconds. 0 to 4294967295;
    4294967295 keeps it for ever."""

    keep_alive_s_max: int = Field(default=0, ge=0, le=65535)
    """Longest keep alive granted, in seconds; MQTT 5 clients that ask for more are told.
    0 to 65535; 0 grants any."""

    retained_messages_max: int = Field(default=1_000_000, ge=0, le=100_000_000)
    """Retained messages kept. 0 to 100000000."""

    sessions_max: int = Field(default=1_000_000, ge=1, le=100_000_000)
    """Sessions kept, of clients connected or away. 1 to 100000000."""

    sessions_per_user_max: int = Field(default=0, ge=0, le=100_000_000)
    """Sessions of one user, or of the anonymous clients of one address (a /64 of IPv6), connected
    or away; further ones are refused (0x97; before MQTT 5 return code 3). 0 to 100000000; 0 is
    memory.share_max of limits.sessions_max."""

    subscriptions_per_session_max: int = Field(default=10_000, ge=1, le=1_000_000)
    """Subscriptions of one session. 1 to 1000000."""

    messages_per_s_max: int = Field(default=0, ge=0, le=10_000_000)
    """Messages a client may publish a second, after as many at once; reading from one that
    sends more pauses, nothing is dropped. 0 to 10000000; 0 is no limit."""

    bytes_per_s_max: int = Field(default=0, ge=0, le=2**40)
    """Bytes a client may send a second, after as many at once; reading from one that sends more
    pauses, nothing is dropped. 0 to 1099511627776; 0 is no limit."""

    v31_client_id_len_max: int = Field(default=V31_CLIENT_ID_LEN, ge=V31_CLIENT_ID_LEN, le=65535)
    """Characters of an MQTT 3.1 client identifier. That version allows 23; more may be taken from
    clients that do not keep to it. 23 to 65535."""

    topic_levels_max: int = Field(default=128, ge=1, le=TOPIC_LEVELS_MAX)
    """Levels of a topic name or filter, counted between slashes. 1 to 1000."""


class Memory(Group):
    """The memory that clients may make the broker hold: all of them together, what they leave
    behind included. What one may is in [limits] and its listener."""

    budget_bytes: int = Field(default=0, ge=0, le=2**60)
    """Memory that clients may make the broker hold. The bounds below, durability.producers_max and
    listener.max_connections are lowered to their part of it where they are not set. The broker does
    not start when clients may have more in the worst case, which it logs at every start; see
    docs/flow.md. 0 to 1152921504606846976 bytes; 0 is three quarters of the machine's memory, or of
    its cgroup's, of which it warns only."""

    share_max: float = Field(default=0.25, gt=0, le=1)
    """Part of limits.sessions_max and of the bounds below, but for half_received_bytes_max, that
    one user may take, or the anonymous clients of one address (a /64 of IPv6): what is beyond is
    refused or dropped as beyond the whole. Above 0 to 1; 1 gives one user all of it."""

    qos0_bytes_max: int = Field(default=256 * 1024**2, ge=0, le=2**60)
    """QoS 0 messages that wait in queues, of all sessions together; one that waits in many counts
    once, and one that is in the log only for its place. Further ones are dropped and counted.
    0 to 1152921504606846976 bytes; 0 is no limit."""

    half_received_bytes_max: int = Field(default=256 * 1024**2, ge=0, le=2**60)
    """Packets of more than 64 KiB that have not arrived whole, of all clients together: each counts
    with its whole length from its beginning on. A client whose packet does not fit is not read
    until it does; one that does not finish within listener.slow_peer_timeout_s while others wait is
    disconnected (0x97). One packet always fits. 0 to 1152921504606846976 bytes; 0 is no limit."""

    waiting_bytes_max: int = Field(default=2 * 1024**3, ge=0, le=2**60)
    """QoS 1 and 2 messages that wait for clients in queues and in-flight windows, and packet
    identifiers of QoS 2 that wait for PUBREL, of all sessions together: 256 bytes for each, and the
    body where it is in memory; a large one counts once, in however many it waits. From half of it
    on, bodies that the log has stay there until they are sent; beyond it further messages are
    dropped and counted, or refused where mqueue_overflow is "reject". Identifiers, and messages of
    publishers that wait for room themselves, take no more than half of it.
    0 to 1152921504606846976 bytes; 0 is no limit."""

    unsent_bytes_max: int = Field(default=2 * 1024**3, ge=0, le=2**60)
    """What is written for clients and not taken by the system yet, of all connections together,
    where it is more than 64 KiB of one. Beyond it larger messages wait in the queue, QoS 0 too, and
    a client that has more than 64 KiB is sent and read no more until it has taken that.
    0 to 1152921504606846976 bytes; 0 is no limit."""

    spilled_bytes_max: int = Field(default=1024**3, ge=0, le=2**60)
    """Queues of clients that are away, and of others beyond their first 1024 messages, all
    together: 13 bytes for each message, which is in the log. Further ones are dropped and counted.
    0 to 1152921504606846976 bytes; 0 is no limit."""

    sessions_bytes_max: int = Field(default=4 * 1024**3, ge=0, le=2**60)
    """Sessions with their subscriptions and wills, all together, without their queues. Above it
    new sessions, subscriptions and wills are refused (0x97; before MQTT 5 CONNACK 3 and SUBACK
    0x80). 0 to 1152921504606846976 bytes; 0 is no limit."""

    unreleased_bytes_max: int = Field(default=256 * 1024**2, ge=0, le=2**60)
    """QoS 2 messages of MQTT 3.1 clients that wait for their PUBREL, all together, in memory or in
    the log. Beyond it a client is not read until it releases one of its own; one that has none is
    disconnected. 0 to 1152921504606846976 bytes; 0 is no limit."""

    retained_bytes_max: int = Field(default=1024**3, ge=0, le=2**60)
    """Retained messages with their topics, all together. MQTT 5 clients get 0x97 for QoS 1 and 2
    beyond it; of others the message is delivered, not kept, and counted.
    0 to 1152921504606846976 bytes; 0 is no limit."""
