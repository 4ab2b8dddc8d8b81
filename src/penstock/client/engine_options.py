"""Converts the options of a client to the limits of its session and to its CONNECT packet."""

from __future__ import annotations

from typing import Final

from penstock.client.options import Options
from penstock.engine.values.limits import DROP_NEWEST, DROP_OLDEST, SPILL, EngineLimits
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connect
from penstock.protocol.properties import Properties

_LIMITS_NAME: Final = "client"
_TOPIC_ALIASES_MAX: Final = 16


def session_limits(options: Options) -> EngineLimits:
    """Return the limits of a client's session."""
    is_stored = options.outbox is not None
    overflow = {"drop_oldest": DROP_OLDEST, "drop_newest": DROP_NEWEST}.get(options.overflow)
    limits_queue = overflow is None
    return EngineLimits(
        max_inflight=options.max_inflight,
        max_mqueue_len=0 if limits_queue else options.queue_messages_max,
        max_mqueue_bytes=0 if limits_queue else options.queue_bytes_max,
        mqueue_overflow=overflow or (SPILL if is_stored else DROP_OLDEST),
        mqueue_store_qos0=False,
        receive_maximum=options.receive_maximum,
        max_packet_size_bytes=options.packet_bytes_max,
        topic_alias_maximum=_TOPIC_ALIASES_MAX,
        topic_alias_outbound_max=_TOPIC_ALIASES_MAX,
        connect_timeout_s=options.connect_timeout_s,
        retry_interval_s=options.retry_interval_s,
        await_rel_timeout_s=0.0,
        slow_peer_timeout_s=0.0,
        producer_expiry_s=0.0,  # a program may pause for any time
        name=_LIMITS_NAME,
    )


def connect_packet(
    options: Options, client_id: str, clean_start: bool, first: bytes | None
) -> Connect:
    """Return the CONNECT packet of a client.

    Args:
        options: the client's options.
        client_id: client identifier.
        clean_start: whether to begin a new session.
        first: the first data of the authentication method; None for none.
    """
    version = options.level
    properties = None
    if version == V5:
        properties = Properties(
            session_expiry_interval=options.while_connected_s or None,
            receive_maximum=options.receive_maximum,
            maximum_packet_size=options.packet_bytes_max,
            topic_alias_maximum=_TOPIC_ALIASES_MAX,
            user_properties=options.user_properties or None,
        )
        if options.authentication is not None:
            properties.authentication_method = options.authentication.method
            properties.authentication_data = first
    password = options.password
    return Connect(
        client_id,
        version,
        clean_start or (version != V5 and not options.keeps_session),
        options.keep_alive_s,
        options.will,
        options.username,
        password.encode() if isinstance(password, str) else password,
        properties,
    )
