"""The limits as native attributes, for compiled code; ``declared_limits`` explains each of them."""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.declared_limits import NEVER_EXPIRES_S as NEVER_EXPIRES_S
from penstock.engine.values.declared_limits import V31_CLIENT_ID_LEN as V31_CLIENT_ID_LEN
from penstock.engine.values.declared_limits import default_limits
from penstock.engine.values.options import Offers
from penstock.engine.values.priorities import TopicPriorities

FETCHED_BYTES_MAX: Final = 262_144  # bodies that one session reads from the log at a time, or one
SMALL_BYTES: Final = 512  # a larger body counts once in an account, for all its deliveries
LARGE_BYTES: Final = 4096  # smaller bodies are not checked against the buffers of all links
FREE_BYTES: Final = 65_536  # bytes that each connection may buffer, whatever the others buffer
PACKET_IDENTIFIERS: Final = 65535
OUT_OF_DATE_MAX: Final = 64  # out-of-date entries of a heap, beyond the number of valid ones

# The behaviour of a full message queue: see ``queue``.
DROP_OLDEST: Final = "drop_oldest"
DROP_NEWEST: Final = "drop_newest"
REJECT: Final = "reject"
SPILL: Final = "spill"


@final
class EngineLimits:
    """The limits of the clients of a listener, or of a bridge, and of the whole engine.

    ``declared_limits`` explains each limit, with its unit, range and default. Here they are native
    attributes, because compiled code reads them for each packet.

    Args:
        name: name of the listener to whose clients the limits apply; "bridge NAME" for a bridge.
        given: limits that differ from their defaults, by name.

    Raises:
        TypeError: a name in ``given`` is not the name of a limit.
    """

    max_inflight: int
    max_mqueue_len: int
    max_mqueue_bytes: int
    mqueue_overflow: str
    mqueue_priorities: dict[str, int]
    mqueue_default_priority: int
    mqueue_store_qos0: bool
    retry_interval_s: float
    max_awaiting_rel: int
    max_awaiting_rel_bytes: int
    await_rel_timeout_s: float
    receive_maximum: int
    max_packet_size_bytes: int
    connect_packet_size_bytes_max: int
    connect_user_properties_max: int
    topic_alias_maximum: int
    topic_alias_outbound_max: int
    session_expiry_s_max: int
    keep_alive_s_max: int
    subscriptions_per_session_max: int
    messages_per_s_max: int
    bytes_per_s_max: int
    v31_client_id_len_max: int
    control_characters_in_topics: bool
    retained_messages_max: int
    sessions_max: int
    sessions_per_user_max: int
    topic_levels_max: int
    connect_timeout_s: float
    write_buffer_bytes_max: int
    slow_peer_timeout_s: float
    share_max: float
    qos0_bytes_max: int
    half_received_bytes_max: int
    waiting_bytes_max: int
    unsent_bytes_max: int
    spilled_bytes_max: int
    sessions_bytes_max: int
    unreleased_bytes_max: int
    retained_bytes_max: int
    producers_max: int
    producers_per_user_max: int
    producer_expiry_s: float

    def __init__(self, name: str = "", **given: object) -> None:
        self.name = name
        self.sent_packet_bytes_max = 0  # a bridge's limit; 0 = only that of the remote broker
        values = default_limits()
        for limit in given:
            if limit not in values:
                raise TypeError(f"EngineLimits has no limit {limit!r}")
        for limit, value in (values | given).items():
            setattr(self, limit, value)
        self.offers = Offers()  # features that the listener offers
        self.rejects = self.mqueue_overflow == REJECT
        self.priorities = (
            TopicPriorities(self.mqueue_priorities) if self.mqueue_priorities else None
        )

    def effective_sessions_per_user_max(self) -> int:
        """Return how many sessions one user may have; 0 = no limit but that of all users."""
        if self.sessions_per_user_max > 0 or self.share_max >= 1.0:
            return self.sessions_per_user_max
        return max(1, int(self.sessions_max * self.share_max))

    def window(self, receive_maximum: int) -> int:
        """Return the number of messages in flight for a peer with this Receive Maximum
        (1..65535)."""
        own = self.max_inflight if self.max_inflight > 0 else PACKET_IDENTIFIERS
        return min(own, receive_maximum)
