"""Every limit of the engine, declared once: name, type, range, default and explanation.

The declarations are used in two ways::

    ClientLimits ─────┬──▶ penstock.config   a group of settings inherits its limits, and pydantic
    BrokerLimits      │                      checks the ranges; docs/configuration.md is made of it
    ConnectionLimits  │
    MemoryLimits      ╰──▶ ``EngineLimits``  the values as native attributes, which compiled
    ProducerLimits                           code reads

This module is never compiled, because a compiled class has neither annotations nor the text behind
its attributes. A limit that is added here gets a line in ``EngineLimits`` as well: compiled, no
``EngineLimits`` can be made without it, and a test compares the two.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeVar, dataclass_transform

from annotated_types import Ge, Gt, Le, Len

from penstock.engine.values.change_effects import AT_ONCE, NEW_CONNECTIONS, takes_effect

NEVER_EXPIRES_S: Final = 0xFFFFFFFF  # [MQTT 5 §3.1.2.11.2] a session that does not expire
V31_CLIENT_ID_LEN: Final = 23  # v3.1 §3.1: characters, at most
TOPIC_LEVELS_MAX: Final = 1000  # the highest value of ``topic_levels_max``

QueuePriority = Annotated[int, Ge(1), Le(255)]

Kind = TypeVar("Kind", bound=type)


@dataclass_transform(kw_only_default=True)
def declares_limits(kind: Kind) -> Kind:
    """Return ``kind`` unchanged; type checkers take its attributes for keyword arguments."""
    return kind


@takes_effect(NEW_CONNECTIONS)
@declares_limits
class ClientLimits:
    """Limits of one client and its session; each listener may have its own."""

    max_inflight: Annotated[int, Ge(0), Le(65535)] = 32
    """In-flight window: QoS 1 and 2 messages sent to a client and not yet acknowledged.
    0 to 65535; 0 leaves the limit to the client's receive maximum."""

    max_mqueue_len: Annotated[int, Ge(0), Le(100_000_000)] = 1000
    """Message queue: messages waiting for the window or for an offline client.
    0 to 100000000; 0 is no limit."""

    max_mqueue_bytes: Annotated[int, Ge(0), Le(2**40)] = 0
    """Message queue: bytes of the messages in it, with topics and properties.
    0 to 1099511627776; 0 is no limit."""

    mqueue_overflow: Literal["drop_oldest", "drop_newest", "reject", "spill"] = "drop_oldest"
    """Behaviour of a full message queue. "drop_oldest": a QoS 0 message is dropped, or else the
    oldest message of the lowest priority. "drop_newest": the new message is dropped. "reject":
    the publisher is refused (0x97; before MQTT 5 it gets no acknowledgement until there is room),
    and no subscriber gets the message. "spill": the queue of a session that outlives its connection
    has no limit, because the log holds the messages."""

    mqueue_priorities: Annotated[dict[str, QueuePriority], Len(0, 1000)] = {}  # noqa: RUF012 - a default
    """Priority in the message queue by topic filter, 1 to 255, higher first; the first filter
    that matches a topic counts. At most 1000."""

    mqueue_default_priority: Annotated[int, Ge(0), Le(255)] = 0
    """Priority of topics that no filter of mqueue_priorities matches. 0 to 255."""

    mqueue_store_qos0: bool = True
    """Queue QoS 0 messages too while their client is offline."""

    retry_interval_s: Annotated[float, Ge(0), Le(86_400)] = 20.0
    """Time in seconds after which an unacknowledged message is sent again to an MQTT 3.1 client,
    marked as a duplicate, 0 to 86400; 0 never sends it again. Later versions forbid this: there a
    message is sent again when the client reconnects."""

    max_awaiting_rel: Annotated[int, Ge(0), Le(65535)] = 0
    """QoS 2 messages of one client that it has not released (PUBREL) yet, also from earlier
    connections. Above it MQTT 5 clients get 0x97, others no acknowledgement until they release one.
    0 to 65535; 0 leaves the limit to receive_maximum."""

    max_awaiting_rel_bytes: Annotated[int, Ge(0), Le(2**40)] = 1_048_576
    """QoS 2 messages of an MQTT 3.1 client that it has not released, and subscribers do not get
    yet: bytes of them in memory. Further ones are read from the log when they are released. 0 to
    1099511627776."""

    await_rel_timeout_s: Annotated[float, Ge(0), Le(10**7)] = 300.0
    """Time in seconds after which a QoS 2 message that its connected client has not released is
    taken for finished: if the client sends it once more, it counts as a new one. A message of an
    MQTT 3.1 client, which no subscriber has got, is dropped, and its time also runs while the
    client is disconnected. 0 to 10000000; 0 waits for ever."""

    receive_maximum: Annotated[int, Ge(1), Le(65535)] = 1000
    """QoS 1 and 2 messages a client may send before they are acknowledged. 1 to 65535."""

    max_packet_size_bytes: Annotated[int, Ge(256), Le(268_435_460)] = 1_048_576
    """Largest packet accepted, in bytes. 256 to 268435460."""

    connect_packet_size_bytes_max: Annotated[int, Ge(256), Le(268_435_460)] = 65_536
    """Largest CONNECT accepted, in bytes, its will included; its sender is not authenticated yet. A
    larger one is refused by its length, before the rest of it is read (0x95; before MQTT 5 the
    connection is closed). 256 to 268435460; limits.max_packet_size_bytes applies as well."""

    connect_user_properties_max: Annotated[int, Ge(0), Le(1_000_000)] = 64
    """User properties of a CONNECT, those of its will included; a CONNECT with more is refused
    (0x97). 0 to 1000000."""

    topic_alias_maximum: Annotated[int, Ge(0), Le(65535)] = 16
    """Topic aliases an MQTT 5 client may define. 0 to 65535; 0 turns them off."""

    topic_alias_outbound_max: Annotated[int, Ge(0), Le(65535)] = 16
    """Topic aliases that the broker defines for an MQTT 5 client; at most as many as the client
    accepts. 0 to 65535; 0 turns them off."""

    session_expiry_s_max: Annotated[int, Ge(0), Le(NEVER_EXPIRES_S)] = NEVER_EXPIRES_S
    """Longest time that a session is kept after its client has disconnected, in seconds. 0 to
    4294967295; 4294967295 keeps it for ever."""

    keep_alive_s_max: Annotated[int, Ge(0), Le(65535)] = 0
    """Longest keep alive granted, in seconds; MQTT 5 clients that ask for more get this one in
    CONNACK. 0 to 65535; 0 grants any."""

    subscriptions_per_session_max: Annotated[int, Ge(1), Le(1_000_000)] = 10_000
    """Subscriptions of one session. 1 to 1000000."""

    messages_per_s_max: Annotated[int, Ge(0), Le(10_000_000)] = 0
    """Messages that a client may publish per second, and in one burst; reading from a client that
    sends more pauses, and nothing is dropped. 0 to 10000000; 0 is no limit."""

    bytes_per_s_max: Annotated[int, Ge(0), Le(2**40)] = 0
    """Bytes that a client may send per second, and in one burst; reading from a client that sends
    more pauses, and nothing is dropped. 0 to 1099511627776; 0 is no limit."""

    v31_client_id_len_max: Annotated[int, Ge(V31_CLIENT_ID_LEN), Le(65535)] = V31_CLIENT_ID_LEN
    """Longest client identifier of an MQTT 3.1 client, in characters. That version allows 23; a
    higher value accepts clients that violate this rule. 23 to 65535."""

    control_characters_in_topics: bool = True
    """Accept topic names and filters with control characters, U+0001 to U+001F and U+007F to
    U+009F, which the standard advises against (MQTT 5 §1.5.4) and Mosquitto refuses. If false, a
    client that publishes to one is disconnected (0x90), and a subscription is refused (0x8F)."""


@takes_effect(AT_ONCE)
@declares_limits
class BrokerLimits:
    """Limits of the whole broker, the same for all listeners."""

    retained_messages_max: Annotated[int, Ge(0), Le(100_000_000)] = 1_000_000
    """Retained messages kept. 0 to 100000000."""

    sessions_max: Annotated[int, Ge(1), Le(100_000_000)] = 1_000_000
    """Sessions kept, of connected and disconnected clients. 1 to 100000000."""

    sessions_per_user_max: Annotated[int, Ge(0), Le(100_000_000)] = 0
    """Sessions of one user, or of the anonymous clients of one address (a /64 of IPv6), whether
    connected or not; further ones are refused (0x97; before MQTT 5 return code 3). 0 to 100000000;
    0 is memory.share_max of limits.sessions_max."""

    topic_levels_max: Annotated[int, Ge(1), Le(TOPIC_LEVELS_MAX), NEW_CONNECTIONS] = 128
    """Levels of a topic name or filter, counted between slashes. 1 to 1000."""


@takes_effect(NEW_CONNECTIONS)
@declares_limits
class ConnectionLimits:
    """Limits of one connection."""

    connect_timeout_s: Annotated[float, Gt(0), Le(3600)] = 10.0
    """Time a new connection has for each of its first steps (PROXY header and TLS handshake
    together, WebSocket upgrade, CONNECT), in seconds, above 0 up to 3600."""

    write_buffer_bytes_max: Annotated[int, Ge(4096), Le(1_073_741_824)] = 1_048_576
    """Bytes waiting to be sent to one connection before its messages stay in the session's
    queue instead, QoS 0 is dropped for it, and, at as many again, its own packets are no longer
    read. 4096 to 1073741824."""

    slow_peer_timeout_s: Annotated[float, Ge(0), Le(86_400)] = 60.0
    """A client whose write buffer is full and that reads nothing for this long is disconnected,
    in seconds, 0 to 86400; 0 waits for ever."""


@declares_limits
class MemoryLimits:
    """Memory that all clients together may take."""

    share_max: Annotated[float, Gt(0), Le(1)] = 0.25
    """Part of limits.sessions_max and of the limits below, except half_received_bytes_max, that one
    user may take, or the anonymous clients of one address (a /64 of IPv6). Beyond it, requests are
    refused and messages dropped as beyond the whole limit. Above 0 to 1; 1 lets one user take the
    whole."""

    qos0_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 256 * 1024**2
    """QoS 0 messages in the queues of all sessions; a message in many queues counts once, and a
    message in the log only for its place in the queue. Further ones are dropped and counted. 0 to
    1152921504606846976 bytes; 0 is no limit."""

    half_received_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 256 * 1024**2
    """Packets of more than 64 KiB of which a part has arrived, of all clients together: each counts
    with its whole length from its first bytes on. A client whose packet does not fit is not read
    until there is room; one that does not finish its packet within listener.slow_peer_timeout_s
    while others wait is disconnected (0x97). One packet always fits. 0 to 1152921504606846976
    bytes; 0 is no limit."""

    waiting_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 2 * 1024**3
    """QoS 1 and 2 messages that wait for clients in queues and in-flight windows, and packet
    identifiers of QoS 2 that wait for PUBREL, of all sessions together: 256 bytes for each, and the
    body where it is in memory; a large body counts once, however many sessions it waits for. Above
    half of the limit, bodies that are in the log are read from it only when they are sent; above
    all of it, further messages are dropped and counted, or refused where mqueue_overflow is
    "reject". Packet identifiers, and messages of publishers that wait for room, take at most half
    of it. 0 to 1152921504606846976 bytes; 0 is no limit."""

    unsent_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 2 * 1024**3
    """Bytes written for clients that the operating system has not taken yet, of all connections
    together, without the first 64 KiB of each. Above it, larger messages wait in the queue, QoS 0
    too, and a client with more than 64 KiB is neither sent to nor read until it has read them. 0 to
    1152921504606846976 bytes; 0 is no limit."""

    spilled_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 1024**3
    """Queues of disconnected clients, and queues beyond their first 1024 messages, all together: 13
    bytes for each message, whose body is in the log. Further ones are dropped and counted. 0 to
    1152921504606846976 bytes; 0 is no limit."""

    sessions_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 4 * 1024**3
    """All sessions with their subscriptions and wills, without their queues. Above it, new
    sessions, subscriptions and wills are refused (0x97; before MQTT 5 CONNACK 3 and SUBACK 0x80). 0
    to 1152921504606846976 bytes; 0 is no limit."""

    unreleased_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 256 * 1024**2
    """QoS 2 messages of MQTT 3.1 clients that wait for their PUBREL, all together, in memory or in
    the log. Above it, a client is not read until it releases one of its own messages; a client that
    has none is disconnected. 0 to 1152921504606846976 bytes; 0 is no limit."""

    retained_bytes_max: Annotated[int, Ge(0), Le(2**60)] = 1024**3
    """Retained messages with their topics, all together. Above it, MQTT 5 clients get 0x97 for QoS
    1 and 2; messages of other clients are delivered, not retained, and counted. 0 to
    1152921504606846976 bytes; 0 is no limit."""


@takes_effect(AT_ONCE)
@declares_limits
class ProducerLimits:
    """Limits of producers, whose messages are numbered."""

    producers_max: Annotated[int, Ge(0), Le(100_000_000)] = 100_000
    """Producers whose latest number is remembered (docs/producers.md). The first message of one
    more is refused with 0x97. If it is not set and memory.budget_bytes has no room for them, it is
    lowered. 0 to 100000000; 0 is no limit."""

    producers_per_user_max: Annotated[int, Ge(0), Le(100_000_000)] = 10_000
    """Producers of one user, so that no user alone reaches producers_max; all anonymous clients
    count as one user. 0 to 100000000; 0 is no limit."""

    producer_expiry_s: Annotated[float, Ge(0), Le(10**10)] = 604_800.0
    """Time in seconds after which a producer that publishes nothing is forgotten, and must begin
    anew. 0 to 10000000000; 0 is never."""


GROUPS: Final = (ClientLimits, BrokerLimits, ConnectionLimits, MemoryLimits, ProducerLimits)


def limits_in(group: object) -> dict[str, object]:
    """Return the limits that ``group`` declares or inherits, by name; ``group`` may have other
    attributes as well.

    Args:
        group: an instance or a subclass of any of ``GROUPS``.
    """
    kind = group if isinstance(group, type) else type(group)
    return {
        name: getattr(group, name)
        for declared in GROUPS
        if issubclass(kind, declared)
        for name in declared.__annotations__
    }


def default_limits() -> dict[str, object]:
    """Return the default of each limit by name; the limits of memory are off.

    The settings of a broker limit memory by default. A client program has a single session, and
    needs no such limit.
    """
    found: dict[str, object] = dict.fromkeys(MemoryLimits.__annotations__, 0) | {"share_max": 1.0}
    for declared in GROUPS:
        if declared is not MemoryLimits:
            found |= limits_in(declared)
    return found
