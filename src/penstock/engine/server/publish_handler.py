"""The handling of a client's PUBLISH, until its acknowledgement.

::

      PUBLISH ─▶ topic (alias), QoS quota ─▶ permitted? ──────▶ routed ─▶ PUBACK, PUBREC  after
                     │ invalid: the              │ no: refused    │        the commit
                     ▼ connection ends           ▼ and counted    │ a queue is full (``reject``),
                                                                  │ or the store cannot write
                                                                  ├── MQTT 5: refused, 0x97
                                                                  ╰── older: pending, in order
      PUBREL ──▶ released ─▶ PUBCOMP                                  ─ room ─▶ routed
                    ╰ MQTT 3.1: routed before PUBCOMP, see ``awaiting_release``

Before MQTT 5 there is no answer that refuses a message, so the message becomes pending, and so do
the messages behind it, until there is room. The client's packets are still handled while its
acknowledgements or PUBRELs may make that room (``must_wait``), within the limits of
``pending_publishes``.

For the topics of ``acknowledge_in_memory`` PUBACK does not wait for the commit, unless an earlier
acknowledgement does: acknowledgements are sent in the order of the messages [MQTT-4.6.0-2]. PUBREC
always waits: without the packet identifier on disk, a repeated message would be taken for a new
one. The acknowledgement of a producer's message always waits too.

The server's Receive Maximum counts acknowledgements that wait for a commit, and QoS 2 messages
until their PUBREL [MQTT 5 §4.9].
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from penstock.engine.batch.blocked_publishers import BlockedPublisher, Blocker
from penstock.engine.connection.reason_strings import encode_acknowledgement
from penstock.engine.publishing.pending_publishes import PendingPublishes
from penstock.engine.publishing.producers import NEXT, NO_ROOM, REPEATED
from penstock.engine.routing.router import Plan
from penstock.engine.server.admission import NO_ROOM_NOW, REFUSE, WAIT, Admission
from penstock.engine.server.server import Server
from penstock.engine.session.session import Session
from penstock.engine.values import drop_reasons
from penstock.engine.values.client_record import REFUSED
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import FREE_BYTES, EngineLimits
from penstock.engine.values.message import Message, is_utf8
from penstock.engine.values.priorities import TopicPriorities
from penstock.engine.values.producer_properties import ProducerSequence, sequence_of
from penstock.engine.values.refusals import quote
from penstock.engine.values.topic_cache import LONG_TOPIC_CHARACTERS
from penstock.engine.values.topics import is_system_topic, is_topic_name
from penstock.engine.wire.aliases import InboundAliases
from penstock.engine.wire.link import Link
from penstock.engine.work_budget import WORK_PER_PACKET
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBREC, V5, V31
from penstock.protocol.packets import Publish
from penstock.protocol.properties import encode_properties


@final
class PublishHandler(BlockedPublisher):
    """The messages that one connection's client publishes.

    Args:
        server: the broker.
        link: the connection's link; the connection is resumed when pending messages may be routed.
        limits: the limits of the connection.
    """

    def __init__(self, server: Server, link: Link, limits: EngineLimits) -> None:
        super().__init__(link)
        self.pending = PendingPublishes(limits)  # messages that wait for room to be routed
        self._aliases: InboundAliases | None = None  # set when the client first uses a topic alias
        self._quota_raised = 0  # additions to the quota by PUBCOMPs for earlier connections
        self._topic: str | None = None  # topic of the latest message, which is valid
        self._topic_bytes = b""  # encoded topic of the latest message
        self._is_system = False  # whether only the server may publish to ``_topic``
        self._limits = limits
        self._offers = limits.offers
        self._router = server.router
        self._admission = Admission(server)
        self._context = server.context
        self._blocked_publishers = self._context.blocked_publishers
        self._blocked_message: Message | None = (
            None  # the message that a full queue blocks; None if the store blocks it, or nothing
        )
        self._publisher: Session | None = None  # of the blocked message
        self._is_still_blocked = False  # whether ``try_again`` was refused again
        self._drops = server.drops
        self._options = server.options
        self._producers = server.producers
        self._acknowledged_in_memory: TopicPriorities | None = (
            None  # topics whose PUBACK waits for no commit
        )
        if server.options.acknowledge_in_memory:
            self._acknowledged_in_memory = server.acknowledged_in_memory

    def publish(self, packet: Publish, session: Session, now: Now) -> None:
        """Handle a PUBLISH: route the message, refuse it, or make it pending.

        Raises:
            RemoteProtocolError: the packet ends the connection.
        """
        topic = packet.topic
        payload = packet.payload
        counters = self.link.counters
        counters.messages_received.count(packet.qos)
        counters.publish_bytes_received += len(payload)
        properties = packet.properties
        encoded = b""
        if properties is not None:
            if properties.topic_alias is not None:
                if self._aliases is None:
                    self._aliases = InboundAliases(self._limits.topic_alias_maximum)
                topic = self._aliases.topic_of(topic, properties.topic_alias)
                properties = packet.take_alias()
            if properties is not None:
                encoded = encode_properties(properties)
        if self._offers.restricts_features:
            self._check_offers(packet)
        if topic is not self._topic:
            self._check_topic(topic)
        if packet.qos > 0 or self.pending.count > 0 or session.has_unfinished_qos2:
            self._publish_in_order(packet, topic, encoded, session, now)
            return
        if properties is not None and self._is_invalid_payload(packet):  # ends the connection
            self._refuse_payload(packet, topic, session)
        permissions = session.permissions
        if self._is_system or (permissions is not None and not permissions.may_publish(topic)):
            self._refuse_topic(packet, topic, session, now)
            return
        message = Message(
            topic,
            payload,
            0,
            packet.retain,
            session.client_id,
            now.wall_us,
            encoded,
            topic_bytes=self._topic_bytes,
            lead_us=now.lead_us,
        )
        self._router.publish(message, session, now)

    def _publish_in_order(
        self, packet: Publish, topic: str, encoded: bytes, session: Session, now: Now
    ) -> None:
        """Handle a PUBLISH of QoS 1 or 2, or one that may have to wait behind earlier messages."""
        qos = packet.qos
        if qos == 2 and session.inbound.awaits_release(packet.packet_id):
            session.receive(packet, now)
            self._acknowledge(packet, reasons.SUCCESS)
            return
        if qos > 0 and self.link.version == V5:
            self._check_receive_maximum(session)
        elif qos == 0 and self._is_invalid_payload(packet):
            self._refuse_payload(packet, topic, session)
        if self.pending.count > 0 or session.released_count > 0:
            self._defer(packet, topic, session)  # it must not overtake earlier messages
            return
        if self._admission.must_wait_for_pubrel(packet.qos, session, self.link.version):
            self._defer(packet, topic, session)
            return
        if not self._may_publish(packet, topic, self._is_system, session, now):
            return
        if not self._route(packet, topic, encoded, session, now):
            self._defer(packet, topic, session)

    def _check_offers(self, packet: Publish) -> None:
        """Raise the error that ends the connection if its listener does not offer this QoS, or
        RETAIN."""
        code = self._offers.refusal(packet.qos, packet.retain)
        if code != reasons.SUCCESS:
            raise RemoteProtocolError(code, f"this listener: {reasons.name_of(code)}")

    def _check_topic(self, topic: str) -> None:
        """Check that ``topic`` is a valid topic name; cache that for the next message.

        Raises:
            RemoteProtocolError: 0x90, the topic name is invalid.
        """
        limits = self._limits
        if not is_topic_name(topic, limits.topic_levels_max, limits.control_characters_in_topics):
            raise RemoteProtocolError(
                reasons.TOPIC_NAME_INVALID, f"not a topic name: {quote(topic)}"
            )
        self._is_system = is_system_topic(topic)
        self._topic_bytes = topic.encode()
        self._topic = topic if len(topic) < LONG_TOPIC_CHARACTERS else None

    def release(self, packet_id: int, session: Session, now: Now) -> None:
        """Handle a PUBREL: send PUBCOMP, or route the message first (MQTT 3.1)."""
        if not session.awaits_routing(packet_id):
            self._complete(packet_id, session)
        elif session.release_in_order(packet_id):
            self._route_released(session, now)

    def _route_released(self, session: Session, now: Now) -> None:
        """Route the messages that were released, in the order of their PUBRELs (v3.1 §3.6).

        Stop at a message without a body or room, and after the share of this turn; ``try_again``
        continues. The messages are published now: they get the time of this turn, and permission is
        checked again.
        """
        work_budget = self._context.turn.work_budget
        before: i64 = work_budget.work_done
        while session.released_count > 0:
            if self._must_stop(work_budget.work_done - before):
                break
            released = session.next_released()
            if released is None:
                break
            message = released.message
            if message is not None:
                permissions = session.permissions
                if permissions is not None and not permissions.may_publish(message.topic):
                    self._drops.count(drop_reasons.NO_PERMISSION, session.client_id, message.topic)
                else:
                    again = message.copy_received_at(now)
                    blocker = self._router.publish_if_room(again, session, now)
                    if blocker is not None:
                        self._wait(blocker, again, session)
                        break
            work_budget.work_done += WORK_PER_PACKET
            self._complete(session.first_released(), session)

    def _complete(self, packet_id: int, session: Session) -> None:
        """Forget a QoS 2 message, and send its PUBCOMP."""
        link = self.link
        counted = session.inbound.count_on_this_connection
        code = session.release(packet_id)
        if self.pending.count > 0:
            self._context.turn.waiting.until_turn(link.resumable)
        is_ours = session.inbound.count_on_this_connection < counted or link.version != V5
        if code == reasons.SUCCESS and is_ours:
            link.ack_plain_after_commit(PUBCOMP, packet_id)
            return
        why = "no message with this packet identifier waits for PUBREL"
        frame = encode_acknowledgement(PUBCOMP, packet_id, code, why, link)
        if is_ours:
            link.ack_after_commit(frame)
            return
        link.send_after_commit(frame)
        if session.inbound.was_resumed and self._quota_raised < self._limits.receive_maximum:
            self._quota_raised += 1  # this PUBCOMP also raises the quota of the sender

    def _wait(self, blocker: Blocker, message: Message, session: Session) -> None:
        """Join the line of ``blocker``, which has no room for ``message``."""
        is_store = self._admission.is_store(blocker)
        self._blocked_message = None if is_store else message
        self._publisher = session
        self._is_still_blocked = True
        self._blocked_publishers.block(self, blocker, 0 if is_store else message.size_bytes())

    def _stop_waiting(self) -> None:
        self._blocked_message = None
        self._publisher = None
        self._blocked_publishers.remove(self)

    def find_blocker(self) -> Blocker | None:
        """Return the store or the queue that still refuses the blocked message; None if nothing
        does."""
        return self._admission.blocker_of(self._blocked_message, self._publisher)

    def try_again(self, session: Session, now: Now) -> None:
        """Route released messages, then pending ones, in order, while there is room.

        Stop after the share of this turn. Permission is checked again for each message.
        """
        work_budget = self._context.turn.work_budget
        before: i64 = work_budget.work_done
        self._is_still_blocked = False
        self._route_released(session, now)
        pending = self.pending
        packet = pending.first()
        while packet is not None:
            if session.released_count > 0 or self._must_stop(work_budget.work_done - before):
                break
            if self._admission.must_wait_for_pubrel(packet.qos, session, self.link.version):
                break
            topic = packet.topic
            if self._may_publish(packet, topic, is_system_topic(topic), session, now):
                properties = packet.properties
                encoded = b"" if properties is None else encode_properties(properties)
                if not self._route(packet, topic, encoded, session, now):
                    break
            work_budget.work_done += WORK_PER_PACKET
            pending.pop()
            packet = pending.first()
        if not self._is_still_blocked:
            self._stop_waiting()

    def _must_stop(self, work: i64) -> bool:
        """Return whether further messages must wait after this much work; if so, arrange for the
        connection to be resumed."""
        connection = self.link.resumable
        if work >= self._context.turn.work_budget.remaining_units():
            self._context.turn.waiting.until_turn(connection)
            return True
        if work > 0 and connection is not None and self._context.store_health.is_full():
            self._context.turn.waiting.until_sealed(connection)
            return True
        return False

    def discard_pending(self, client_id: str) -> None:
        """Discard the pending messages: the connection ended.

        QoS 1 and 2 messages were not acknowledged, so the client sends them again; QoS 0 messages
        count as dropped.
        """
        self._stop_waiting()
        packet = self.pending.first()
        while packet is not None:
            if packet.qos == 0:
                self._drops.count(drop_reasons.QUEUE_FULL, client_id, packet.topic)
            self.pending.pop()
            packet = self.pending.first()

    def unacknowledged_count(self, session: Session) -> int:
        """Return how many messages count against the server's Receive Maximum [MQTT 5 §4.9]."""
        waiting = self.pending.unacknowledged_count
        return self.link.uncommitted_acks + session.inbound.count_on_this_connection + waiting

    # -- routing, refusals, acknowledgements -------------------------------------------

    def _route(
        self, packet: Publish, topic: str, encoded: bytes, session: Session, now: Now
    ) -> bool:
        """Route a message and acknowledge it, or refuse it; return False if it must wait.

        It waits in the line of what has no room for it, or for a PUBREL of this client.
        """
        qos = packet.qos
        message = Message(
            topic,
            packet.payload,
            qos,
            packet.retain,
            session.client_id,
            now.wall_us,
            encoded,
            topic_bytes=self._topic_bytes if topic is self._topic else None,
            lead_us=now.lead_us,
        )
        plan: Plan | None = None
        number = sequence_of(packet.properties) if qos > 0 else None
        if number is not None and not self._is_next(number, packet, topic, session, now):
            return True
        if qos > 0:
            room = self._admission.room_for(message, session, self.link.version)
            if room.kind == WAIT:
                if room.on is not None:
                    self._wait(room.on, message, session)
                return False
            if room.kind == REFUSE:
                self._acknowledge(packet, reasons.QUOTA_EXCEEDED, room.why)
                return True
            plan = room.plan
            if not session.receive(packet, now):
                self._acknowledge(packet, reasons.SUCCESS)
                return True
            if qos == 2 and self.link.version == V31:  # v3.1 §3.3: nobody may get it yet
                session.keep_until_pubrel(packet.packet_id, message)
                self._acknowledge(packet, reasons.SUCCESS)
                return True
        if number is not None:
            self._producers.record_published(session.username, number, now)
        reached = self._router.publish(message, session, now, None, plan)
        if qos > 0:
            is_unmatched = reached == 0 and message.offset < 0 and self.link.version == V5
            code = reasons.NO_MATCHING_SUBSCRIBERS if is_unmatched else 0
            if qos == 1 and number is None and self._may_acknowledge_in_memory(topic):
                self.link.send(
                    encode_acknowledgement(PUBACK, packet.packet_id, code, "", self.link)
                )
            else:
                self._acknowledge(packet, code)
        return True

    def _may_acknowledge_in_memory(self, topic: str) -> bool:
        """Return whether PUBACK may be sent before the commit: ``acknowledge_in_memory`` matches
        the topic, and no packet on the link waits for a commit."""
        if (
            self._acknowledged_in_memory is None
            or self.link.has_waiting_packets
            or not self.link.is_open
        ):
            return False
        return self._acknowledged_in_memory.priority_of(topic) > 0

    def _is_next(
        self, number: ProducerSequence, packet: Publish, topic: str, session: Session, now: Now
    ) -> bool:
        """Return whether this is the next message of its producer; else acknowledge or refuse
        it."""
        username = session.username
        verdict = self._producers.judge(username, number, session.client_id, topic)
        if verdict == NEXT:
            return True
        has_place = packet.qos == 1 or session.has_room_to_receive()
        if verdict == REPEATED and has_place:  # at QoS 2 PUBREL follows, as for a new message
            session.receive(packet, now)
            self._acknowledge(packet, reasons.SUCCESS)
        elif verdict == REPEATED:
            self._acknowledge(packet, reasons.QUOTA_EXCEEDED, NO_ROOM_NOW)
        elif verdict == NO_ROOM:
            why = "there is no room for more producers"
            self._acknowledge(packet, reasons.QUOTA_EXCEEDED, why)
        else:
            why = self._producers.refusal_text(username, number)
            self._acknowledge(packet, reasons.IMPLEMENTATION_SPECIFIC_ERROR, why)
        return False

    def _defer(self, packet: Publish, topic: str, session: Session) -> None:
        """Append a message to the pending ones, unless it repeats one of them.

        A QoS 0 message is dropped above the soft limit.

        Raises:
            RemoteProtocolError: 0x97, there is no room for more pending messages.
        """
        pending = self.pending
        if packet.qos > 0:
            if pending.is_repeat(packet):
                return
        elif pending.above_soft_limit():
            self._drops.count(drop_reasons.QUEUE_FULL, session.client_id, topic)
            return
        if pending.lacks_memory() and pending.size_bytes >= FREE_BYTES:
            raise RemoteProtocolError(
                reasons.QUOTA_EXCEEDED, "there is no memory for more of its messages to wait in"
            )
        if pending.at_hard_limit():
            raise RemoteProtocolError(
                reasons.QUOTA_EXCEEDED,
                f"{pending.size_bytes} bytes of its messages wait for room, all that limits"
                ".receive_maximum and limits.max_packet_size_bytes allow",
            )
        packet.topic = topic  # the alias may stand for another topic when the message is routed
        pending.put(packet, session.account)

    def _may_publish(
        self, packet: Publish, topic: str, is_system: bool, session: Session, now: Now
    ) -> bool:
        """Return whether the client may publish this message; refuse and count it if not."""
        if packet.qos > 0 and self._is_invalid_payload(packet):
            self._refuse_payload(packet, topic, session)
            return False
        permissions = session.permissions
        if is_system or (permissions is not None and not permissions.may_publish(topic)):
            self._refuse_topic(packet, topic, session, now)
            return False
        return True

    def _refuse_topic(self, packet: Publish, topic: str, session: Session, now: Now) -> None:
        """Refuse a message to a topic that the client may not publish to.

        An MQTT 5 client gets 0x87. Older versions have no such answer: the message is acknowledged
        and dropped, and at QoS 2 its packet identifier waits for PUBREL. The connection state of a
        foreign bridge is not refused: it is published as a ``$SYS`` topic.
        """
        permissions = session.permissions
        is_permitted = permissions is None or permissions.may_publish(topic)
        if is_permitted and self._router.is_foreign_bridge_state(topic):
            session.receive(packet, now)
            self._router.publish_bridge_state(topic, packet.payload, now)
            self._acknowledge(packet, reasons.SUCCESS)
            return
        self._drops.count(drop_reasons.NO_PERMISSION, session.client_id, topic)
        code = reasons.NOT_AUTHORIZED if self.link.version == V5 else 0
        if code == 0:
            session.receive(packet, now)
        why = "topics below $SYS are the server's own"
        self._acknowledge(packet, code, why if is_system_topic(topic) else "not authorized")

    def _is_invalid_payload(self, packet: Publish) -> bool:
        properties = packet.properties
        if properties is None or properties.payload_format_indicator != 1:
            return False
        return self._options.check_payload_format and not is_utf8(packet.payload)

    def _refuse_payload(self, packet: Publish, topic: str, session: Session) -> None:
        """Refuse a message whose payload is not UTF-8 although its format indicator says so (v5
        §3.3.2.3.2)."""
        code = reasons.PAYLOAD_FORMAT_INVALID
        why = "the payload is not UTF-8, as its format indicator says"
        self._drops.count(drop_reasons.PAYLOAD_FORMAT, session.client_id, topic)
        if packet.qos == 0:
            raise RemoteProtocolError(code, why)
        self._acknowledge(packet, code, why)

    def _acknowledge(self, packet: Publish, code: int, why: str = "") -> None:
        link = self.link
        is_refusal = code >= reasons.UNSPECIFIED_ERROR
        if is_refusal and link.record is not None:
            link.record.note_reason(REFUSED, code, -1, packet.topic)
        if (
            is_refusal
            and packet.qos > 0
            and self._context.store_health.is_failing
            and not link.has_waiting_packets
        ):
            kind = PUBACK if packet.qos == 1 else PUBREC  # before the commit: it promises nothing
            link.send(encode_acknowledgement(kind, packet.packet_id, code, why, link))
        elif packet.qos == 1:
            if code == reasons.SUCCESS:
                link.ack_plain_after_commit(PUBACK, packet.packet_id)
            else:
                link.ack_after_commit(
                    encode_acknowledgement(PUBACK, packet.packet_id, code, why, link)
                )
        elif packet.qos == 2 and code == reasons.SUCCESS:
            if link.version == V5:  # counts until PUBREL: ``unacknowledged_count``
                link.send_plain_after_commit(PUBREC, packet.packet_id)
            else:
                link.ack_plain_after_commit(PUBREC, packet.packet_id)
        elif packet.qos == 2:
            frame = encode_acknowledgement(PUBREC, packet.packet_id, code, why, link)
            if link.version == V5 and not is_refusal:
                link.send_after_commit(frame)
            else:
                link.ack_after_commit(frame)

    def _check_receive_maximum(self, session: Session) -> None:
        """Raise the error that ends the connection if the client exceeds the server's Receive
        Maximum [MQTT-3.3.4-7].

        The quota begins anew with each connection. A message of an earlier connection that is
        released on this one does not count, but its PUBCOMP adds to the sender's quota [MQTT 5
        §4.9].
        """
        allowed = self._limits.receive_maximum
        if self.unacknowledged_count(session) >= allowed + self._quota_raised:
            raise RemoteProtocolError(
                reasons.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {allowed} QoS 1 and 2 messages unacknowledged",
            )
