"""What a client publishes: from its PUBLISH to our acknowledgement.

::

      PUBLISH ─▶ topic (alias), QoS quota ─▶ may it? is it? ─▶ routed ─▶ PUBACK, PUBREC  held
                     │ no: the connection        │ no: refused    │        for the commit
                     ▼ ends                      ▼ and counted    │ no queue has room (``reject``),
                                                                  │ or the store cannot write
                                                                  ├── MQTT 5: refused, 0x97
                                                                  ╰── older: held back, in order
      PUBREL ──▶ released ─▶ PUBCOMP                                  ─ room ─▶ routed
                    ╰ MQTT 3.1: only now routed, see ``held``

An older client cannot be told that a message was refused, so it is held back whole, and
those behind it too, until there is room. The client is still read while what it has yet to
acknowledge or release may make that room (``must_wait``), up to ``_may_hold_back``; what it
sends again meanwhile is held back once. QoS 0 beyond what is held without that is dropped.

What counts against our Receive Maximum: acknowledgements that wait for a commit, and QoS 2
messages until their PUBREL [MQTT 5 §4.9].
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine import drop_counts as reasons_to_drop
from penstock.engine.answers import acknowledgement
from penstock.engine.clock import Now
from penstock.engine.connection import WORK_OF_A_PACKET, WORK_PER_TURN_MAX
from penstock.engine.limits import EngineLimits
from penstock.engine.link import Link
from penstock.engine.message import Message, is_utf8
from penstock.engine.server import Server
from penstock.engine.session import Session
from penstock.engine.topics import is_system_topic, is_topic_name
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC, V5, V31
from penstock.protocol.packets import Publish
from penstock.protocol.properties import Properties, encode_properties

_MUST_WAIT: Final = -1  # instead of the number of sessions reached
_HELD_BACK_OVERHEAD_BYTES: Final = 256  # of one message, beside its payload and topic
_RETAINED_FULL: Final = "there is no room for more retained messages"
_IN_FLIGHT_USUAL: Final = 32  # packets; clients before MQTT 5 leave 10 or 20 open


def _size_bytes(packet: Publish) -> int:
    """The memory of a message held back, about; a character has up to four bytes."""
    return len(packet.payload) + 4 * len(packet.topic) + _HELD_BACK_OVERHEAD_BYTES


@final
class Publishing:
    """The publishing half of one connection's client.

    Args:
        server: the broker.
        link: of the connection; its user is resumed when what is held back may go on.
        limits: bounds of the connection.
    """

    def __init__(self, server: Server, link: Link, limits: EngineLimits) -> None:
        self.held_back_count = 0  # messages not routed yet: there is no room
        self.held_back_bytes = 0
        self._held_back: list[Publish] = []
        self._held_back_ids: set[int] = set()
        self._aliases: dict[int, str] = {}
        self._quota_raised = 0  # by PUBCOMP for messages of earlier connections
        self._link = link
        self._limits = limits
        self._router = server.router
        self._effects = server.effects
        self._drops = server.drops
        self._options = server.options

    def publish(self, packet: Publish, session: Session, now: Now) -> int:
        """A PUBLISH; the number of sessions it went to."""
        link = self._link
        topic = packet.topic
        link.counters.publish_received += 1
        link.counters.publish_bytes_received += len(packet.payload)
        properties = packet.properties
        encoded = b""
        if properties is not None:
            topic = self._resolve_alias(topic, properties)
            properties.topic_alias = None
            encoded = encode_properties(properties)
        if not is_topic_name(topic, self._limits.topic_levels_max):
            raise RemoteProtocolError(reasons.TOPIC_NAME_INVALID, f"not a topic name: {topic!r}")
        qos = packet.qos
        again = qos == 2 and session.awaits_release(packet.packet_id)
        if qos > 0 and link.version == V5 and not again:
            self._check_receive_maximum(session)
        if properties is not None and self._is_false_text(packet, properties) and not again:
            self._refuse_payload(packet, topic, session)
            return 0
        if (self.held_back_count > 0 or session.releases) and not again:
            self._hold_back(packet, topic, session)  # what came later must not overtake
            return 0
        if not again and not self._may(packet, topic, session):
            return 0
        reached = self._route(packet, topic, encoded, session, now)
        if reached == _MUST_WAIT:
            self._hold_back(packet, topic, session)
            self._effects.hold_back(link.user)
            return 0
        return reached

    def release(self, packet_id: int, session: Session, now: Now) -> int:
        """A PUBREL; the work of what is published now."""
        if not session.holds(packet_id):
            self._complete(packet_id, session)
        elif session.line_up(packet_id):
            return self._route_released(session, now)
        return 0

    def _route_released(self, session: Session, now: Now) -> int:
        """Route held messages whose PUBREL came, in its order (v3.1 §3.6).

        As far as their bodies are here and queues have room, and no more than one turn's share;
        ``try_again`` goes on. It is now that they are published: the log dates them so, and what
        the client may do is asked again. The work it was.
        """
        reached = 0
        while session.releases:
            if self._is_enough(reached):
                break
            held = session.next_released()
            if held is None:
                break
            message = held.message
            if message is not None:
                permissions = session.permissions
                if permissions is not None and not permissions.may_publish(message.topic):
                    self._drops.count(
                        reasons_to_drop.NO_PERMISSION, session.client_id, message.topic
                    )
                else:
                    again = message.once_more(now.wall_us)
                    if self._router.rejecting and self._router.refuses(again, session):
                        self._effects.hold_back(self._link.user)
                        break
                    reached += self._router.publish(again, session, now)
            reached += WORK_OF_A_PACKET
            self._complete(session.releases[0], session)
        return reached

    def _complete(self, packet_id: int, session: Session) -> None:
        """Forget a QoS 2 message, and say so."""
        link = self._link
        counted = session.inbound_count
        code = session.release(packet_id)
        if self.held_back_count > 0:
            self._effects.resume_later(link.user)
        why = "no message with this packet identifier waits for PUBREL"
        frame = acknowledgement(PUBCOMP, packet_id, code, why, link)
        if session.inbound_count < counted or link.version != V5:
            link.hold_ack(frame)
        else:
            link.hold(frame)
            self._quota_raised += 1

    def try_again(self, session: Session, now: Now) -> int:
        """Route what is released and what is held back, in order, as far as there is room.

        No more than one turn's share; what the client may do is asked again. The work it was.
        """
        work = self._route_released(session, now)
        if session.releases:
            return work
        routed = 0
        for packet in self._held_back:
            if self._is_enough(work):
                break
            if self._may(packet, packet.topic, session):
                properties = packet.properties
                encoded = b"" if properties is None else encode_properties(properties)
                reached = self._route(packet, packet.topic, encoded, session, now)
                if reached == _MUST_WAIT:
                    self._effects.hold_back(self._link.user)
                    break
                work += reached
            work += WORK_OF_A_PACKET
            routed += 1
            self.held_back_count -= 1
            self.held_back_bytes -= _size_bytes(packet)
            self._held_back_ids.discard(packet.packet_id)
        if routed > 0:
            del self._held_back[:routed]
        return work

    def _is_enough(self, work: int) -> bool:
        """Whether what is left must wait for the next turn, or for a commit."""
        user = self._link.user
        if work >= WORK_PER_TURN_MAX:
            self._effects.resume_later(user)
            return True
        if work > 0 and user is not None and self._effects.is_full():
            self._effects.resume_when_sealed(user)
            return True
        return False

    def ended(self, client_id: str) -> None:
        """The connection ended. Above QoS 0 what is held back was not acknowledged: the client
        has it."""
        for packet in self._held_back:
            if packet.qos == 0:
                self._drops.count(reasons_to_drop.QUEUE_FULL, client_id, packet.topic)
        self._held_back = []
        self._held_back_ids.clear()
        self.held_back_count = 0
        self.held_back_bytes = 0

    def unacknowledged(self, session: Session) -> int:
        """Messages that count against our Receive Maximum, as MQTT 5 defines it."""
        return self._link.unreleased_acks + session.inbound_count

    # -- inside ------------------------------------------------------------------------

    def _route(
        self, packet: Publish, topic: str, encoded: bytes, session: Session, now: Now
    ) -> int:
        """Hand a message on and acknowledge it; the number of sessions it went to.

        ``_MUST_WAIT``: it must wait for room, and does so whole. A client that can be told,
        is: 0x97 means that nobody got the message.
        """
        qos = packet.qos
        held = qos == 2 and self._link.version == V31
        message = Message(
            topic, packet.payload, qos, packet.retain, session.client_id, now.wall_us, encoded
        )
        router = self._router
        if qos > 0:
            if qos == 2 and session.awaits_release(packet.packet_id):
                session.receive(packet, now)
                self._acknowledge(packet, reasons.SUCCESS)
                return 0
            refused = qos == 2 and not session.has_room_to_receive()
            effects = self._effects
            refused = refused or effects.store_fails
            full = router.rejecting and not held and router.refuses(message, session)
            if refused or full:
                if self._link.version != V5:
                    return _MUST_WAIT
                why = effects.store_failure or "there is no room for it now"
                self._acknowledge(packet, reasons.QUOTA_EXCEEDED, why)
                return 0
            if packet.retain and self._link.version == V5 and not self._is_retainable(message):
                self._acknowledge(packet, reasons.QUOTA_EXCEEDED, _RETAINED_FULL)
                return 0  # nobody got it, as above
            session.receive(packet, now)
            if held:  # v3.1 §3.3: not made available to interested parties yet
                session.hold(packet.packet_id, message)
                self._acknowledge(packet, reasons.SUCCESS)
                return 0
        reached = router.publish(message, session, now)
        if qos > 0:
            nobody = reached == 0 and message.offset < 0 and self._link.version == V5
            self._acknowledge(packet, reasons.NO_MATCHING_SUBSCRIBERS if nobody else 0)
        return reached

    def _is_retainable(self, message: Message) -> bool:
        """Whether a message with the RETAIN flag finds the room it needs; if not, it is counted."""
        if not message.payload or self._router.retained.has_room(message):
            return True
        self._drops.count(reasons_to_drop.RETAINED_FULL, message.client_id, message.topic)
        return False

    def holds_back_much(self) -> bool:
        """Whether the client is read on only for what may make room."""
        return (
            self.held_back_count >= self._limits.receive_maximum
            or self.held_back_bytes >= self._link.pending_bytes_max
        )

    def _hold_back(self, packet: Publish, topic: str, session: Session) -> None:
        """Keep a message until there is room for it, in its order.

        One with an identifier that is held back is the same, sent again (v3.1 §4.1): it is
        answered once, and not published after the PUBREL that answer brings.
        """
        if packet.qos > 0:
            if packet.packet_id in self._held_back_ids:
                return
        elif self.holds_back_much():
            self._drops.count(reasons_to_drop.QUEUE_FULL, session.client_id, topic)
            return
        size_bytes = self.held_back_bytes + _size_bytes(packet)
        if self.holds_back_much() and size_bytes > self._may_hold_back():
            raise RemoteProtocolError(
                reasons.QUOTA_EXCEEDED,
                f"{size_bytes} bytes of its messages wait for room, more than limits"
                ".receive_maximum and limits.max_packet_size_bytes allow",
            )
        if packet.qos > 0:
            self._held_back_ids.add(packet.packet_id)
        packet.topic = topic
        self._held_back.append(packet)
        self.held_back_count += 1
        self.held_back_bytes = size_bytes

    def _may_hold_back(self) -> int:
        """Bytes: what a client may have in flight, or a write buffer."""
        limits = self._limits
        packets = min(limits.receive_maximum, _IN_FLIGHT_USUAL)
        return max(packets * limits.max_packet_size_bytes, self._link.pending_bytes_max)

    def _may(self, packet: Publish, topic: str, session: Session) -> bool:
        """Whether the client may publish this now; if not, it is refused and counted."""
        permissions = session.permissions
        if is_system_topic(topic) or (
            permissions is not None and not permissions.may_publish(topic)
        ):
            self._refuse_topic(packet, topic, session)
            return False
        return True

    def _refuse_topic(self, packet: Publish, topic: str, session: Session) -> None:
        self._drops.count(reasons_to_drop.NO_PERMISSION, session.client_id, topic)
        code = reasons.NOT_AUTHORIZED if self._link.version == V5 else 0
        why = "topics below $SYS are the server's own"
        self._acknowledge(packet, code, why if is_system_topic(topic) else "not authorized")

    def _is_false_text(self, packet: Publish, properties: Properties) -> bool:
        if properties.payload_format_indicator != 1:
            return False
        return self._options.check_payload_format and not is_utf8(packet.payload)

    def _refuse_payload(self, packet: Publish, topic: str, session: Session) -> None:
        """Its format indicator says UTF-8, and it is not (v5 §3.3.2.3.2)."""
        code = reasons.PAYLOAD_FORMAT_INVALID
        why = "the payload is not UTF-8, as its format indicator says"
        self._drops.count(reasons_to_drop.PAYLOAD_FORMAT, session.client_id, topic)
        if packet.qos == 0:
            raise RemoteProtocolError(code, why)
        self._acknowledge(packet, code, why)

    def _acknowledge(self, packet: Publish, code: int, why: str = "") -> None:
        link = self._link
        is_refusal = code >= reasons.UNSPECIFIED_ERROR
        if is_refusal and packet.qos > 0 and self._effects.store_fails and not link.waits:
            kind = PUBACK if packet.qos == 1 else PUBREC  # at once: it promises nothing
            link.send(acknowledgement(kind, packet.packet_id, code, why, link))
        elif packet.qos == 1:
            link.hold_ack(acknowledgement(PUBACK, packet.packet_id, code, why, link))
        elif packet.qos == 2:
            frame = acknowledgement(PUBREC, packet.packet_id, code, why, link)
            if link.version == V5:  # counts until its PUBREL: see _check_receive_maximum
                link.hold(frame)
            else:
                link.hold_ack(frame)

    def _check_receive_maximum(self, session: Session) -> None:
        """Refuse what exceeds our Receive Maximum [MQTT-3.3.4-7].

        It counts anew with each connection: what came on an earlier one and is released on
        this takes nothing of it, and yet its PUBCOMP adds to the sender's quota [MQTT 5 §4.9].
        """
        allowed = self._limits.receive_maximum
        if self.unacknowledged(session) >= allowed + self._quota_raised:
            raise RemoteProtocolError(
                reasons.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {allowed} QoS 1 and 2 messages unacknowledged",
            )

    def _resolve_alias(self, topic: str, properties: Properties) -> str:
        alias = properties.topic_alias
        if alias is None:
            return topic
        if alias > self._limits.topic_alias_maximum:  # [MQTT-3.3.2-9]
            raise RemoteProtocolError(
                reasons.TOPIC_ALIAS_INVALID, f"topic alias {alias} is above the maximum"
            )
        if topic:
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise RemoteProtocolError(reasons.PROTOCOL_ERROR, f"topic alias {alias} is unknown")
        return known
