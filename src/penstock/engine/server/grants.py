"""The answer of a server to a CONNECT: the granted limits, or the reason for a refusal.

These are pure functions of the packet and the limits. This file has all differences between the
versions of the protocol in the opening of a session.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.limits import NEVER_EXPIRES_S, EngineLimits
from penstock.engine.values.message import Message, is_utf8
from penstock.engine.values.options import BRIDGE_SESSIONS, ServerOptions
from penstock.engine.values.producer_properties import SEQUENCE
from penstock.engine.values.refusals import REASON_CHARACTERS_MAX
from penstock.engine.values.topics import is_bridge_state, is_system_topic, is_topic_name
from penstock.protocol import reasons
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Connect, Will
from penstock.protocol.properties import Properties, encode_properties

ACKNOWLEDGED_WHEN: Final = "penstock-acknowledged"  # user property of CONNACK
ACKNOWLEDGED_IN_MEMORY: Final = "penstock-acknowledged-in-memory"  # the same; a topic filter


@final
class Refusal:
    """The reason why a CONNECT is refused.

    Args:
        code: the MQTT 5 reason code, which the client gets.
        detail: an explanation for the log, one of few texts; empty for none.
        quoted: further text for the log that another program wrote, such as an HTTP service.
    """

    def __init__(self, code: int, detail: str = "", quoted: str = "") -> None:
        self.code = code
        self.detail = detail
        self.quoted_text = quoted

    def log_text(self) -> str:
        """Return the text for the log behind the name of the code, with ``quoted_text`` in
        parentheses."""
        detail = f": {self.detail}" if self.detail else ""
        return (
            f"{detail} ({self.quoted_text[:REASON_CHARACTERS_MAX]})" if self.quoted_text else detail
        )


def find_refusal(connect: Connect, limits: EngineLimits, options: ServerOptions) -> Refusal | None:
    """Return the reason to refuse ``connect`` that does not depend on the user; None if there is
    none."""
    client_id = connect.client_id
    if client_id.startswith(BRIDGE_SESSIONS):
        return Refusal(reasons.CLIENT_IDENTIFIER_NOT_VALID, "$bridge/ is for this broker's own")
    if connect.version == V31 and not 1 <= len(client_id) <= limits.v31_client_id_len_max:
        detail = "in MQTT 3.1 it is neither empty nor longer than limits.v31_client_id_len_max"
        return Refusal(reasons.CLIENT_IDENTIFIER_NOT_VALID, detail)  # v3.1 §3.1
    if connect.version == V311 and not client_id and not connect.clean_start:
        detail = "an empty one needs a clean session"
        return Refusal(reasons.CLIENT_IDENTIFIER_NOT_VALID, detail)  # [MQTT-3.1.3-8]
    if _user_properties(connect) > limits.connect_user_properties_max:
        detail = "more user properties than limits.connect_user_properties_max"
        return Refusal(reasons.QUOTA_EXCEEDED, detail)
    if connect.version not in limits.offers.versions:
        detail = "accept_protocol_versions of the listener"
        return Refusal(reasons.UNSUPPORTED_PROTOCOL_VERSION, detail)
    refused = None if connect.will is None else _refusal_of_will(connect.will, limits, options)
    if refused is None and options.redirect != reasons.SUCCESS:  # v5 §4.11
        return Refusal(options.redirect, "mqtt5.redirect")
    return refused


def no_room_refusal(connect: Connect) -> Refusal:
    """Return the refusal of a CONNECT whose session or will would exceed a limit."""
    code = reasons.QUOTA_EXCEEDED if connect.version == V5 else reasons.SERVER_UNAVAILABLE
    return Refusal(
        code,
        "no room for its session or will: limits.sessions_max, limits.sessions_per_user_max,"
        " memory.sessions_bytes_max or memory.share_max",
    )


def _refusal_of_will(will: Will, limits: EngineLimits, options: ServerOptions) -> Refusal | None:
    unavailable = limits.offers.refusal(will.qos, will.retain)
    if unavailable != reasons.SUCCESS:
        return Refusal(unavailable, "its will; maximum_qos or retain_available of the listener")
    accepts_controls = limits.control_characters_in_topics
    if not is_topic_name(will.topic, limits.topic_levels_max, accepts_controls):
        return Refusal(reasons.TOPIC_NAME_INVALID, "that of its will")
    if is_system_topic(will.topic) and not is_bridge_state(will.topic):
        return Refusal(reasons.NOT_AUTHORIZED, "its will is for a topic of the broker's own")
    if will.properties is not None and options.check_payload_format:
        says_utf8 = will.properties.payload_format_indicator == 1
        if says_utf8 and not is_utf8(will.payload):
            return Refusal(reasons.PAYLOAD_FORMAT_INVALID, "that of its will")  # v5 §3.1.3.2.3
    return None


def _user_properties(connect: Connect) -> int:
    """Return the number of user properties of ``connect``, those of its will included."""
    count = 0
    if connect.properties is not None:
        count = len(connect.properties.user_properties or ())
    will = connect.will
    if will is not None and will.properties is not None:
        count += len(will.properties.user_properties or ())
    return count


def requested_session_expiry_s(connect: Connect) -> int:
    """Return the session expiry interval that the client asks for, in seconds.

    Before MQTT 5 a session that is not clean never expires.
    """
    if connect.version != V5:
        return 0 if connect.clean_start else NEVER_EXPIRES_S
    properties = connect.properties
    return 0 if properties is None else properties.session_expiry_interval or 0


def granted_session_expiry_s(connect: Connect, limits: EngineLimits) -> int:
    """Return the session expiry interval that the server grants, in seconds, at most
    ``session_expiry_s_max``."""
    return min(requested_session_expiry_s(connect), limits.session_expiry_s_max)


def granted_keep_alive_s(connect: Connect, limits: EngineLimits) -> int:
    """Return the keep alive that the server grants, in seconds; 0 = none.

    It differs from the requested one only for MQTT 5 clients, which get it in CONNACK.
    """
    longest_s = limits.keep_alive_s_max
    wanted_s = connect.keep_alive_s
    if connect.version == V5 and longest_s > 0 and not 0 < wanted_s <= longest_s:
        return longest_s  # [MQTT-3.1.2-21]
    return wanted_s


def accepted_properties(
    connect: Connect,
    limits: EngineLimits,
    assigned_client_id: str,
    expiry_s: int,
    keep_alive_s: int,
    acknowledged_when: str,
    sharing: bool,
    options: ServerOptions,
    latest: int | None,
) -> Properties:
    """Return the properties of a successful MQTT 5 CONNACK that differ from the defaults.

    Args:
        connect: the CONNECT.
        limits: the limits of the listener.
        assigned_client_id: the client identifier that the server assigned; empty if it did not.
        expiry_s: the granted session expiry interval, seconds.
        keep_alive_s: the granted keep alive, seconds.
        acknowledged_when: the promise of an acknowledgement: "fsync", "quorum" or "memory".
        sharing: whether shared subscriptions are available.
        options: settings of MQTT 5 features.
        latest: the latest number of the producer that CONNECT names; None if it names none.
    """
    properties = Properties()
    properties.receive_maximum = limits.receive_maximum
    properties.maximum_packet_size = limits.max_packet_size_bytes
    properties.topic_alias_maximum = limits.topic_alias_maximum
    if limits.offers.qos_max < 2:
        properties.maximum_qos = limits.offers.qos_max
    if not limits.offers.retain_available:
        properties.retain_available = 0
    if not sharing:
        properties.shared_subscription_available = 0
    properties.user_properties = [(ACKNOWLEDGED_WHEN, acknowledged_when)]
    for topic_filter in options.acknowledge_in_memory:
        properties.user_properties.append((ACKNOWLEDGED_IN_MEMORY, topic_filter))
    if latest is not None:
        properties.user_properties.append((SEQUENCE, str(latest)))
    wanted = connect.properties
    if expiry_s != requested_session_expiry_s(connect):
        properties.session_expiry_interval = expiry_s
    if keep_alive_s != connect.keep_alive_s:
        properties.server_keep_alive = keep_alive_s
    if assigned_client_id:
        properties.assigned_client_identifier = assigned_client_id
    if wanted is not None and wanted.request_response_information == 1:  # [MQTT-3.1.2-28]
        properties.response_information = options.response_information_for(
            assigned_client_id or connect.client_id, connect.username or ""
        )
    return properties


def will_message(will: Will, client_id: str) -> tuple[Message, int]:
    """Return the message of a will, and its delay in seconds."""
    delay_s = 0
    encoded = b""
    if will.properties is not None:
        delay_s = will.properties.will_delay_interval or 0
        will.properties.will_delay_interval = None
        encoded = encode_properties(will.properties)
    message = Message(will.topic, will.payload, will.qos, will.retain, client_id, 0, encoded)
    return message, delay_s
