"""Every bound of the engine, by name. ``config`` validates them and documents them to users."""

from __future__ import annotations

from typing import Final, final

from penstock.engine.options import Offers
from penstock.engine.priorities import TopicPriorities

NEVER_EXPIRES_S: Final = 0xFFFFFFFF  # [MQTT 5 §3.1.2.11.2] a session that does not expire
FETCHED_BYTES_MAX: Final = 262_144  # bodies asked from the log for one session, if several
SMALL_BYTES: Final = 512  # a body that is larger counts by itself, see ``accounts``
LARGE_BYTES: Final = 4096  # bodies below it ask no leave of what all links may buffer
FREE_BYTES: Final = 65_536  # that each connection may hold in any buffer, whoever else holds what
PACKET_IDENTIFIERS: Final = 65535
V31_CLIENT_ID_LEN: Final = 23  # v3.1 §3.1: characters, at most
OUT_OF_DATE_MAX: Final = 64  # entries of a heap, beside as many as there are in use

# What a full message queue does: see ``queue``.
DROP_OLDEST: Final = "drop_oldest"
DROP_NEWEST: Final = "drop_newest"
REJECT: Final = "reject"
SPILL: Final = "spill"


@final
class EngineLimits:
    """Bounds that hold for each connection, session, or for the whole engine.

    Args:
        max_inflight: in-flight window, messages, 0..65535; 0 = no limit but the packet ids.
        max_mqueue_len: message queue, messages; 0 = no limit.
        max_mqueue_bytes: message queue, bytes of its messages; 0 = no limit.
        mqueue_overflow: what a full queue does, ``DROP_OLDEST`` … ``SPILL``.
        mqueue_priorities: topic filter to priority, 1..255; the first that matches counts.
        mqueue_default_priority: of topics that match none, 0..255.
        mqueue_store_qos0: keep QoS 0 messages for an offline session.
        receive_maximum: unacknowledged QoS 1 and 2 messages accepted from a client, 1..65535.
        max_packet_size_bytes: largest packet accepted.
        connect_packet_size_bytes_max: largest CONNECT accepted.
        connect_user_properties_max: user properties of a CONNECT, those of its will included.
        topic_alias_maximum: topic aliases a client may define, 0..65535.
        topic_alias_outbound_max: topic aliases defined for a client that takes any, 0..65535.
        session_expiry_s_max: longest session expiry granted; 0xFFFFFFFF = never.
        keep_alive_s_max: longest keep alive granted, seconds, 0 = any (also none).
        retained_messages_max: retained messages kept.
        sessions_max: sessions kept.
        subscriptions_per_session_max: subscriptions of one session.
        topic_levels_max: levels of a topic name or filter.
        retry_interval_s: MQTT 3.1: what is not acknowledged is sent again after this; 0 = never.
        max_awaiting_rel: QoS 2 messages of a session not released by their publisher; 0 = no limit.
        max_awaiting_rel_bytes: MQTT 3.1: bytes of such messages in memory; the log has the others.
        await_rel_timeout_s: after so long such a message is forgotten, see ``inbound``; 0 = never.
        v31_client_id_len_max: characters of a client identifier in MQTT 3.1.
        connect_timeout_s: time a new connection has to send CONNECT.
        write_buffer_bytes_max: bytes for one connection that wait for a commit or its socket
            before its messages stay in the queue and its own packets are not read.
        slow_peer_timeout_s: a peer with a full buffer may read nothing for this long; 0 = ever.
        messages_per_s_max: messages a client may publish a second, 0 = no limit.
        bytes_per_s_max: bytes a client may send a second, 0 = no limit.
        qos0_bytes_max: QoS 0 messages in the queues of all sessions, 0 = no limit.
        spilled_bytes_max: packed deliveries of all queues that spill, 0 = no limit.
        sessions_bytes_max: all sessions with subscriptions and wills, 0 = no limit.
        retained_bytes_max: retained messages, 0 = no limit.
        half_received_bytes_max: large packets that have not arrived whole, 0 = no limit.
        unreleased_bytes_max: QoS 2 messages of MQTT 3.1 that wait for PUBREL, 0 = no limit.
        share_max: part of these bounds that one user may take, above 0; 1 = all.
        sessions_per_user_max: sessions of one user; 0 = its share of ``sessions_max``.
        producers_max: producers whose numbers are remembered, 0 = no limit.
        producers_per_user_max: those of one user, all anonymous clients being one; 0 = no limit.
        producer_expiry_s: how long one that is silent is remembered; 0 = for ever.
        sent_packet_bytes_max: largest packet sent by a bridge; 0 = as the remote broker says.
        waiting_bytes_max: QoS 1 and 2 in queues and windows, 0 = no limit.
        unsent_bytes_max: what was written for clients and is not taken yet, 0 = no limit.
        zone: name of the listener whose clients they are for.
    """

    def __init__(
        self,
        max_inflight: int = 32,
        max_mqueue_len: int = 1000,
        mqueue_store_qos0: bool = True,
        max_mqueue_bytes: int = 0,
        mqueue_overflow: str = DROP_OLDEST,
        mqueue_priorities: dict[str, int] | None = None,
        mqueue_default_priority: int = 0,
        receive_maximum: int = 1000,
        max_packet_size_bytes: int = 1_048_576,
        topic_alias_maximum: int = 16,
        topic_alias_outbound_max: int = 16,
        session_expiry_s_max: int = NEVER_EXPIRES_S,
        keep_alive_s_max: int = 0,
        retained_messages_max: int = 1_000_000,
        sessions_max: int = 1_000_000,
        subscriptions_per_session_max: int = 10_000,
        topic_levels_max: int = 128,
        connect_timeout_s: float = 10.0,
        retry_interval_s: float = 20.0,
        max_awaiting_rel: int = 0,
        max_awaiting_rel_bytes: int = 1_048_576,
        await_rel_timeout_s: float = 300.0,
        write_buffer_bytes_max: int = 1_048_576,
        slow_peer_timeout_s: float = 60.0,
        messages_per_s_max: int = 0,
        bytes_per_s_max: int = 0,
        v31_client_id_len_max: int = V31_CLIENT_ID_LEN,
        zone: str = "",
        qos0_bytes_max: int = 0,
        spilled_bytes_max: int = 0,
        sessions_bytes_max: int = 0,
        retained_bytes_max: int = 0,
        producers_max: int = 100_000,
        producers_per_user_max: int = 10_000,
        producer_expiry_s: float = 604_800.0,
        connect_packet_size_bytes_max: int = 65_536,
        half_received_bytes_max: int = 0,
        connect_user_properties_max: int = 64,
        share_max: float = 1.0,
        unreleased_bytes_max: int = 0,
        sessions_per_user_max: int = 0,
        sent_packet_bytes_max: int = 0,
        waiting_bytes_max: int = 0,
        unsent_bytes_max: int = 0,
    ) -> None:
        self.offers = Offers()  # of the listener
        self.max_inflight = max_inflight
        self.max_mqueue_len = max_mqueue_len
        self.mqueue_store_qos0 = mqueue_store_qos0
        self.max_mqueue_bytes = max_mqueue_bytes
        self.mqueue_overflow = mqueue_overflow
        self.rejects = mqueue_overflow == REJECT
        self.mqueue_default_priority = mqueue_default_priority
        self.mqueue_priorities = mqueue_priorities or {}
        self.priorities = TopicPriorities(mqueue_priorities) if mqueue_priorities else None
        self.receive_maximum = receive_maximum
        self.max_packet_size_bytes = max_packet_size_bytes
        self.connect_packet_size_bytes_max = connect_packet_size_bytes_max
        self.connect_user_properties_max = connect_user_properties_max
        self.topic_alias_maximum = topic_alias_maximum
        self.topic_alias_outbound_max = topic_alias_outbound_max
        self.session_expiry_s_max = session_expiry_s_max
        self.keep_alive_s_max = keep_alive_s_max
        self.retained_messages_max = retained_messages_max
        self.sessions_max = sessions_max
        self.subscriptions_per_session_max = subscriptions_per_session_max
        self.topic_levels_max = topic_levels_max
        self.connect_timeout_s = connect_timeout_s
        self.retry_interval_s = retry_interval_s
        self.max_awaiting_rel = max_awaiting_rel
        self.max_awaiting_rel_bytes = max_awaiting_rel_bytes
        self.await_rel_timeout_s = await_rel_timeout_s
        self.write_buffer_bytes_max = write_buffer_bytes_max
        self.slow_peer_timeout_s = slow_peer_timeout_s
        self.messages_per_s_max = messages_per_s_max
        self.bytes_per_s_max = bytes_per_s_max
        self.v31_client_id_len_max = v31_client_id_len_max
        self.zone = zone
        self.qos0_bytes_max = qos0_bytes_max
        self.spilled_bytes_max = spilled_bytes_max
        self.sessions_bytes_max = sessions_bytes_max
        self.retained_bytes_max = retained_bytes_max
        self.half_received_bytes_max = half_received_bytes_max
        self.producers_max = producers_max
        self.producers_per_user_max = producers_per_user_max
        self.producer_expiry_s = producer_expiry_s
        self.sent_packet_bytes_max = sent_packet_bytes_max
        self.share_max = share_max
        self.unreleased_bytes_max = unreleased_bytes_max
        self.sessions_per_user_max = sessions_per_user_max
        self.waiting_bytes_max = waiting_bytes_max
        self.unsent_bytes_max = unsent_bytes_max

    def sessions_of_one_max(self) -> int:
        """Sessions that one user may have; 0 = as many as all together."""
        if self.sessions_per_user_max > 0 or self.share_max >= 1.0:
            return self.sessions_per_user_max
        return max(1, int(self.sessions_max * self.share_max))

    def window(self, receive_maximum: int) -> int:
        """The in-flight window for a peer that accepts ``receive_maximum`` messages (1..65535)."""
        own = self.max_inflight if self.max_inflight > 0 else PACKET_IDENTIFIERS
        return min(own, receive_maximum)
