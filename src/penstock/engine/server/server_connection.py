"""The accepting side of a connection: the server's handling of each packet.

``engine/values/states.py`` has the packets that a client may send in each state. This module
handles the packets of a connected client, decides when they must wait, and ends the connection.
``opening`` handles the packets before CONNACK, ``publish_handler`` PUBLISH and PUBREL,
``subscribe_handler`` SUBSCRIBE and UNSUBSCRIBE.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.connection.connection import DISCONNECTED_ITSELF
from penstock.engine.reporting.events import Events
from penstock.engine.server.opening import OpeningConnection
from penstock.engine.server.publish_handler import PublishHandler
from penstock.engine.server.server import Server
from penstock.engine.server.subscribe_handler import Request, SubscribeHandler, UnsubscribeHandler
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.event_kinds import Event
from penstock.engine.values.limit_usage import INBOUND, LimitUsage
from penstock.engine.values.limits import FREE_BYTES, EngineLimits
from penstock.engine.values.mount_point import mount
from penstock.engine.values.rate_limit import TokenBucket
from penstock.engine.values.states import AWAIT_AUTH, CLOSED, CONNECTED
from penstock.errors import RemoteProtocolError
from penstock.protocol import reasons
from penstock.protocol.encode import encode
from penstock.protocol.kinds import PUBREL, V5, V311
from penstock.protocol.packets import (
    Ack,
    Auth,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    Unsubscribe,
)

_PINGRESP: Final = encode(Pingresp(), V311)


@final
class ServerConnection(OpeningConnection):
    """One accepted connection.

    Args:
        server: the broker of the connection.
        limits: the limits of its listener.
        now: when it was accepted.
    """

    def __init__(self, server: Server, limits: EngineLimits, now: Now) -> None:
        super().__init__(server, limits, now)
        self.inbound_limit: LimitUsage | None = None  # created when it is first reached
        self._request: Request | None = None  # an unfinished SUBSCRIBE or UNSUBSCRIBE
        self._publishing = PublishHandler(server, self.link, limits)
        self._pending = self._publishing.pending
        self._lacks_memory = False  # whether a large packet waits for memory (``partial_packets``)
        self._message_rate: TokenBucket | None = None
        self._byte_rate: TokenBucket | None = None
        if limits.messages_per_s_max > 0:
            self._message_rate = TokenBucket(limits.messages_per_s_max, now.monotonic_s)
        if limits.bytes_per_s_max > 0:
            self._byte_rate = TokenBucket(limits.bytes_per_s_max, now.monotonic_s)

    # -- packets -----------------------------------------------------------------------

    def handle(self, packet: Packet, now: Now) -> None:
        """Handle one packet that the state accepts."""
        session = self._session
        if self.link.mount_point:
            mount(packet, self.link.mount_point)
        if session is None:
            self._before_connack(packet, now)
        elif isinstance(packet, Publish):
            if self._message_rate is not None:
                self._pause(self._message_rate.take(1, now.monotonic_s), now)
            properties = packet.properties
            if properties is not None and properties.user_properties is not None:
                self._work_budget.work_done += len(properties.user_properties)
            self._publishing.publish(packet, session, now)
        elif isinstance(packet, Ack):
            self.handle_acknowledgement(packet.type, packet.packet_id, packet.reason_code, now)
        elif isinstance(packet, Subscribe):
            self._request = SubscribeHandler(packet, session, self._server, self.limits, self.link)
            self._continue_request(now)
        elif isinstance(packet, Unsubscribe):
            self._request = UnsubscribeHandler(packet, session, self._server, self.link)
            self._continue_request(now)
        elif isinstance(packet, Disconnect):
            self._disconnect(packet, session, now)
        elif isinstance(packet, Auth):
            self._authenticate(packet, now)
        else:
            assert isinstance(packet, Pingreq), packet
            self.link.send(_PINGRESP)

    def handle_acknowledgement(
        self, packet_type: int, packet_id: int, reason_code: int, now: Now
    ) -> None:
        """Handle a PUBACK, PUBREC, PUBREL or PUBCOMP of the client."""
        session = self._session
        assert session is not None
        if packet_type == PUBREL:
            self._publishing.release(packet_id, session, now)
        elif session.transmission.acknowledge(packet_type, packet_id, reason_code, now):
            self.is_refill_due = True

    def refill(self, now: Now) -> None:
        """Send queued messages of the session and its groups: acknowledgements made room."""
        session = self._session
        if session is None or session.link is not self.link:
            return
        session.outbound.refill(now)

    def _continue_request(self, now: Now) -> None:
        """Take steps of the SUBSCRIBE or UNSUBSCRIBE, up to the share of this turn."""
        request = self._request
        assert request is not None
        while not request.is_finished:
            request.step(now)
            answer = request.take_answer()
            if answer is not None:
                self._answer(answer, now)
            if self.state == CLOSED:
                return
            if self.work >= self._work_budget.remaining_units():
                break
        if not request.is_finished:
            return  # ``must_wait`` has the next packets wait
        self._request = None
        joined = (
            isinstance(request, SubscribeHandler)
            and len(self._server.context.groups_with_backlog) > 0
        )
        if joined and self._session is not None:
            self._session.outbound.refill(now)  # the queues of joined groups may have messages

    # -- when packets must wait ----------------------------------------------------------

    @property
    def is_saturated(self) -> bool:
        """Return whether as many acknowledgements wait for a commit as Receive Maximum allows.

        An MQTT 5 client knows the limit, and to exceed it is an error; the packets of older clients
        wait until there is room. QoS 2 messages without a PUBREL do not count, because their PUBREL
        could never be read then.
        """
        return self.version != V5 and self.link.uncommitted_acks >= self.limits.receive_maximum

    @property
    def inbound_unacknowledged(self) -> int:
        """Return how many messages of the client count against the server's Receive Maximum."""
        if self.version != V5 or self._session is None:
            return self.link.uncommitted_acks
        return self._publishing.unacknowledged_count(self._session)

    @property
    def pending_publish_count(self) -> int:
        """Return how many published messages of the client wait for room."""
        return self._pending.count

    @property
    def pending_publish_bytes(self) -> int:
        """Return about how many bytes of memory the pending messages take."""
        return self._pending.size_bytes

    def _watch_inbound(self, now: Now) -> None:
        """Note whether the client is at the server's Receive Maximum."""
        if self.inbound_unacknowledged >= self.limits.receive_maximum and self.state == CONNECTED:
            if self.inbound_limit is None:
                self.inbound_limit = LimitUsage(self.client_id, INBOUND)
            self._server.context.reach(self.inbound_limit, now)
            self.link.resume_when_room()
        elif self.inbound_limit is not None:
            self.inbound_limit.mark_left(now.monotonic_s)

    def packet_incomplete(self, size_bytes: int, now: Now) -> None:
        """Reserve memory for a large packet that arrives, or pause reading: ``partial_packets``.

        Raises:
            RemoteProtocolError: 0x95, the packet is too large before CONNACK.
        """
        budget = self._server.partial_packets
        if size_bytes == 0 or self.has_peer_closed:
            budget.release(self)
            self.expects_more = False
            return
        if self.state == AWAIT_AUTH and size_bytes > self.limits.connect_packet_size_bytes_max:
            raise RemoteProtocolError(
                reasons.PACKET_TOO_LARGE, f"{size_bytes} bytes are too large before CONNACK"
            )
        if self.state != CONNECTED or size_bytes <= FREE_BYTES:
            return
        timeout_s = self.limits.slow_peer_timeout_s
        deadline_s = now.monotonic_s + timeout_s if timeout_s > 0.0 else 0.0
        if deadline_s > 0.0 and self.limits.bytes_per_s_max > 0:  # the rate limit takes time too
            deadline_s += size_bytes / self.limits.bytes_per_s_max
        self.expects_more = True
        self._lacks_memory = not budget.reserve(self, size_bytes, deadline_s)
        if self._lacks_memory:
            self.is_reading_paused = True

    def must_wait(self) -> bool:
        """Return whether this client's next packets must wait; if so, arrange for ``resume``."""
        link = self.link
        context = self._server.context
        if (  # the common case, after nearly every packet: checked without a call
            link.pending_bytes + link.congested_bytes < link.pending_bytes_max
            and context.batch.size_bytes + context.turn.unsent_bytes
            < context.store_health.waiting_bytes_max
            and context.batch.size_bytes < context.store_health.batch_bytes_max
            and link.uncommitted_acks < self.limits.receive_maximum
            and link.is_open
            and self.state == CONNECTED
            and self.resume_at_s == 0.0
            and self._pending.count == 0
            and self._request is None
        ):
            return False
        return self._is_at_limit()

    def broker_is_saturated(self) -> bool:
        """Return whether no packets may be decoded because too much waits for commits and sockets;
        if so, arrange for ``resume``."""
        if self._awaits_connack():
            return True
        context = self._server.context
        if (
            context.batch.size_bytes + context.turn.unsent_bytes
            >= context.store_health.waiting_bytes_max
        ):
            context.turn.waiting.until_sealed(self)
            return True
        return self.must_yield_batch(context)

    def _awaits_connack(self) -> bool:
        """Return whether packets behind CONNECT must wait until CONNACK is sent; if so, arrange for
        ``resume``.

        What the session did on earlier connections, last of all its will, is in the commit of the
        CONNACK or in one before. A QoS 0 message, which waits for no commit, must not overtake it:
        in Sparkplug a device that is back would be taken for dead.
        """
        if self.link.is_open or self.state != CONNECTED:
            return False
        self.link.resume_when_room()
        return True

    def _is_at_limit(self) -> bool:
        """Return whether a limit is reached; if so, arrange for ``resume`` when there is room."""
        link = self.link
        context = self._server.context
        if self.resume_at_s > 0.0:
            return True
        if self._decoder.has_packet() and self._awaits_connack():
            return True
        if self._request is not None:
            self._work_budget.exhausted_shares += 1
            self.wait_for_turn()
            return True
        if self.is_saturated or link.is_full():
            link.resume_when_room()
            return True
        if self._pending.above_soft_limit() and not self._may_make_room():
            link.resume_when_room()  # then messages are sent, which the client may acknowledge
            if self._pending.at_hard_limit() or context.store_health.is_failing:
                # its queue may be full then: ``_may_make_room``
                context.turn.waiting.until_tick(self)
            return True
        if context.store_health.is_full():
            context.turn.waiting.until_sealed(self)
            return True
        return self.must_yield_batch(context)

    def _may_make_room(self) -> bool:
        """Return whether the client's next packets may make room for its pending messages.

        The client's acknowledgements are behind its messages: if they were not read, the client
        would wait for ever. At the hard limit they are read only if its own queue has no room.
        """
        session = self._session
        if session is None or self._server.context.store_health.is_failing:
            return False
        if session.awaits_pubrel and not session.has_room_to_receive():
            return True
        if session.window_length == 0:
            return False
        return not (
            self._pending.at_hard_limit()
            and session.transmission.room.has_room_for_one_more(self.link, 0)
        )

    def wait_for_turn(self) -> None:
        """Arrange for ``resume`` in the next turn."""
        self._server.context.turn.waiting.until_turn(self)

    def resume(self, now: Now) -> None:
        """Handle waiting messages and packets: there may be room, or a new turn began."""
        if self.state == CLOSED:
            return
        if 0.0 < self.resume_at_s <= now.monotonic_s:
            self.resume_at_s = 0.0
        self._began_at = self._work_budget.work_done
        self._logged_before = self._work_budget.logged_bytes
        try:
            self._continue(now)
        except RemoteProtocolError as error:  # of a pending message
            self.protocol_error(error, now)

    def _continue(self, now: Now) -> None:
        """Send queued messages, then handle pending messages, then undecoded bytes."""
        if self._session is not None:
            self._session.outbound.refill(now)
            if self._pending.count > 0 or self._session.released_count > 0:
                self._publishing.try_again(self._session, now)
                if self.work >= self._work_budget.remaining_units():
                    self._work_budget.exhausted_shares += 1
                    self.wait_for_turn()
                    return
            if self._request is not None:
                self._continue_request(now)
        lacked_memory = self._lacks_memory
        self._lacks_memory = False
        self._decode_rest(now)
        if lacked_memory and self.is_reading_paused and not self._lacks_memory:
            self._server.partial_packets.release(self)  # another limit stops it now
        self._watch_inbound(now)

    def receive(self, data: bytes, now: Now) -> None:
        """Handle bytes from the client, and pause reading above its rate limit."""
        if self._byte_rate is not None:
            self._pause(self._byte_rate.take(len(data), now.monotonic_s), now)
        super().receive(data, now)
        if self.resume_at_s > 0.0 and self.state != CLOSED:
            self.is_reading_paused = True
        self._watch_inbound(now)

    def _pause(self, seconds: float, now: Now) -> None:
        """Pause reading for ``seconds``, above 0: the client is above a rate limit."""
        if seconds > 0.0:
            if self.resume_at_s == 0.0:
                self.link.counters.rate_pauses += 1
            self.resume_at_s = max(self.resume_at_s, now.monotonic_s + seconds)

    def writable(self, now: Now) -> None:
        """Continue sending: the socket's write buffer has room again."""
        self.link.mark_socket_writable()
        self.resume(now)

    # -- the end -----------------------------------------------------------------------

    def awaits_release(self) -> bool:
        """Return whether a QoS 2 message of the client waits for its PUBREL, or to be routed."""
        session = self._session
        return self.state == CONNECTED and session is not None and session.has_unfinished_qos2

    def _disconnect(self, packet: Disconnect, session: Session, now: Now) -> None:
        properties = packet.properties
        if properties is not None and properties.session_expiry_interval is not None:
            wanted_s = properties.session_expiry_interval
            if wanted_s > 0 and not self._asked_to_persist:
                raise RemoteProtocolError(  # MQTT 5 §3.14.2.2.2
                    reasons.PROTOCOL_ERROR, "session expiry was 0 in CONNECT"
                )
            session.expiry_interval_s = min(wanted_s, self.limits.session_expiry_s_max)
        self.closing_code = packet.reason_code
        with_will = packet.reason_code != reasons.SUCCESS  # [MQTT-3.14.4-3] [MQTT-3.1.2-10]
        self._end(with_will, DISCONNECTED_ITSELF, now, drains=True)

    def on_end(self, with_will: bool, now: Now) -> None:
        """Close the session, and publish or delete the will; in a shutdown the will stays
        stored."""
        server = self._server
        session = self._session
        self._request = None
        if session is None:
            return
        if server.connections.get(self.client_id) is self:
            del server.connections[self.client_id]
        if self.inbound_limit is not None:
            self.inbound_limit.mark_left(now.monotonic_s)
        session.disconnected_because = self.close_reason
        if server.context.events is not None:
            self._note_disconnected(server.context.events, session)
        server.partial_packets.release(self)
        self._publishing.discard_pending(self.client_id)
        server.registry.close(session, now)  # first, so that its own will finds it disconnected
        if not with_will:
            server.wills.disarm(self.client_id)
        elif not server.shutting_down:
            server.wills.connection_lost(self.client_id, session.expiry_interval_s, now)

    def _note_disconnected(self, events: Events, session: Session) -> None:
        by = "broker" if self.is_closed_locally else "network"
        if self.close_reason == DISCONNECTED_ITSELF:
            by = "client"
        dropped = self._server.drops.count_of(self.client_id)
        event: Event = {
            "by": by,
            "reason": self.close_reason,
            "code": self.closing_code,
            "queue": session.queue_length,
            "window": session.window_length,
        }
        events.note_disconnected(self.client_id, dropped, event)
