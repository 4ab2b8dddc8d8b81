"""The state that all connections of one broker share.

It is pure like the rest of the engine: a test can run a whole broker with a virtual
clock and without sockets. The shell (``penstock.runtime.driver``) owns the event loop::

      bytes ─▶ ServerConnection.receive ─▶ Server's parts ─▶ EngineContext
                                            tick(now) ─────▶ EngineContext ─▶ seal ─▶ Commit
"""

from __future__ import annotations

from typing import final

from penstock.engine.access.authenticate import Authenticate
from penstock.engine.access.refused_filters import RefusedFilters
from penstock.engine.connection.connection import Connection
from penstock.engine.connection.partial_packets import PartialPacketBudget
from penstock.engine.publishing.connection_names import ConnectionNames
from penstock.engine.publishing.producers import Producers
from penstock.engine.publishing.sink_positions import SinkPositions
from penstock.engine.reporting.events import Events
from penstock.engine.reporting.flight_recorder import FlightRecorder
from penstock.engine.routing.dead_letters import DeadLetters
from penstock.engine.routing.event_log import EventLog
from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.engine.routing.session_registry import Registry
from penstock.engine.routing.wills import Wills
from penstock.engine.server.draining import Draining
from penstock.engine.values.access import Authorize
from penstock.engine.values.bans import Bans
from penstock.engine.values.client_groups import ClientGroups
from penstock.engine.values.clock import Now
from penstock.engine.values.event_kinds import CLOCK_JUMPED, STARTED, STOPPED
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import EventOptions, ServerOptions, SharingOptions
from penstock.engine.values.priorities import TopicPriorities
from penstock.engine.values.records import RecoveredState
from penstock.engine.waiting import Resumable
from penstock.protocol import reasons


@final
class Server:
    """One broker without its sockets and its store.

    Args:
        limits: the limits of the broker, and of clients whose listener is not known.
        recovered: the state that the store holds.
        stream_filters: topic filters of the configured streams.
        acknowledged_when: "fsync", "quorum" or "memory": what an acknowledgement promises; sent to
            MQTT 5 clients in CONNACK.
        now: the time of the start.
        sharing: the options of shared subscriptions.
        authenticate: checks credentials; None = all clients are accepted.
        authorize: returns the permissions of clients; None = everything is allowed.
        options: settings of MQTT 5 features.
        dead_letter_topic: the topic of dead letters; empty = dropped messages are not published.
        dead_letters_of_qos0: whether dropped messages of QoS 0 are published too.
        limits_by_name: the limits of each listener and bridge, by ``Session.limits_name``, for
            sessions found in the store.
        events: the events to write; None = no events.
        groups: the client groups, which are counted separately; None = there are none.
        recorded_clients: the number of clients in the flight recorder; 0 = it is off.
        prepared: the sessions with their subscriptions, built before with the same ``limits``,
            ``stream_filters``, ``sharing`` and ``limits_by_name``; None = all are in ``recovered``.
    """

    def __init__(
        self,
        limits: EngineLimits,
        recovered: RecoveredState,
        stream_filters: tuple[str, ...],
        acknowledged_when: str,
        now: Now,
        sharing: SharingOptions | None = None,
        authenticate: Authenticate | None = None,
        authorize: Authorize | None = None,
        options: ServerOptions | None = None,
        dead_letter_topic: str = "",
        dead_letters_of_qos0: bool = False,
        limits_by_name: dict[str, EngineLimits] | None = None,
        events: EventOptions | None = None,
        groups: ClientGroups | None = None,
        recorded_clients: int = 0,
        prepared: PreparedSessions | None = None,
    ) -> None:
        self.limits = limits
        self.options = options or ServerOptions()
        self.acknowledged_in_memory = TopicPriorities(
            dict.fromkeys(self.options.acknowledge_in_memory, 1)
        )
        self.epoch = recovered.epoch
        self.acknowledged_when = acknowledged_when
        prepared = prepared or PreparedSessions(limits, stream_filters, sharing, limits_by_name)
        self.drops = prepared.drops
        self.context = prepared.context
        self.context.begin_at(recovered.next_offset)
        self.context.batch.lead_us = now.lead_us
        if groups is not None:
            self.context.turn.counters.apply_settings(groups)
        if recorded_clients > 0:
            recorder = FlightRecorder(recorded_clients, now)
            self.context.recorder = recorder
            self.drops.recorder = recorder
            self.context.store_health.commits = recorder.commits
        self.router = prepared.router
        self._dead_letters: DeadLetters | None = None
        if dead_letter_topic:
            self._dead_letters = DeadLetters(
                dead_letter_topic, dead_letters_of_qos0, self.router, self.context, self.drops
            )
        self.producers = Producers(self.context, limits, self.drops)
        self.connection_names = ConnectionNames(self.context)
        self.sink_positions = SinkPositions(self.context, self.router, self.producers)
        self.authenticate = authenticate or Authenticate()
        self.authorize = authorize or Authorize()
        self.wills = Wills(self.context, self.router, self.drops, self.authorize)
        self.registry = Registry(
            self.context, self.router, self.wills, limits, self.drops, limits_by_name
        )
        self.registry.session_ends = self.connection_names
        for named in (limits_by_name or {}).values():
            self.router.note_limits(named)
        self.bans = Bans()
        self.partial_packets = PartialPacketBudget(
            self.context.turn, limits.half_received_bytes_max
        )
        self.refused_filters = RefusedFilters()
        self.connections: dict[str, Connection] = {}  # by client identifier
        self.clients_max = 0  # the most clients that were connected at the same time
        self.shutting_down = False
        self.draining: Draining | None = None  # None: new clients are accepted
        self.event_log: EventLog | None = None
        if events is not None:
            self.event_log = self._start_events(events, recovered, now)
        self._recover(recovered, now, prepared)

    def tick(self, now: Now) -> None:
        """Handle everything that is due: delayed wills, expired sessions, producers and bans,
        timers, queued messages of groups, events. The shell calls it four times a second."""
        self.wills.publish_due(now)
        self.registry.expire(now)
        self.producers.expire(now)
        self.bans.expire(now.monotonic_s)
        self.router.sharing.tick(now)
        if self.draining is not None:
            self.draining.tick(self.connections, self.registry.index, now)
        self.context.timers.wake_due(now)
        for connection in self.partial_packets.overdue_connections(now.monotonic_s):
            connection.close(
                reasons.QUOTA_EXCEEDED,
                "its packet was not complete in time while others waited for memory",
                now,
            )
        if self._dead_letters is not None:
            self._dead_letters.tick(now)
        if self.event_log is not None:
            self.event_log.tick(now)
        self.context.tick()

    def clock_jumped(self, now: Now) -> None:
        """Apply a jump of dates, if there is one: from ``now`` on they have another lead over the
        steady clock."""
        context = self.context
        by_us = now.lead_us - context.batch.lead_us
        if by_us == 0:
            return
        context.batch.lead_us = now.lead_us
        context.now_of_turn = None  # the rest of this turn reads the clocks again
        if context.recorder is not None:
            context.recorder.clock.set(now)
        events = context.events
        if events is not None:
            events.now_us = now.wall_us
            events.lead_us = now.lead_us
            events.note(CLOCK_JUMPED, {"by_us": by_us})

    def resume(self, now: Now) -> list[Resumable]:
        """Begin a turn; see ``Waiting.resume``."""
        self.context.turn.work_budget.begin_turn()
        return self.context.turn.waiting.resume(now)

    def lowest_needed_offset(self, end: int) -> int:
        """Return the lowest log offset that a session or group still needs; ``end`` if none is
        needed."""
        search = self.registry.search_lowest_offset(end)
        while not search.step():
            pass
        return search.lowest

    @property
    def server_reference(self) -> str:
        """Return the name of the other server to which clients are sent; empty if there is none."""
        if self.draining is not None and self.draining.server_reference:
            return self.draining.server_reference
        return self.options.server_reference

    def shut_down(
        self,
        reason_code: int,
        because: str,
        now: Now,
        references: dict[str, str] | None = None,
    ) -> None:
        """Disconnect all clients. Their wills stay stored for the restart [MQTT 5 §3.1.2.5].

        MQTT 5 clients get the name of the other server, if one is configured or given (v5 §4.11).

        Args:
            reason_code: the reason code of DISCONNECT.
            because: one sentence, for clients and the log.
            now: the time of the turn.
            references: the other server's name for the clients of each listener, by the listener's
                name, with ``USE_ANOTHER_SERVER``; None = the configured server.
        """
        self.shutting_down = True
        self.router.sharing.shutting_down = True
        reference = ""
        if reason_code == reasons.SERVER_SHUTTING_DOWN:
            reason_code = self.options.shutdown_code
            reference = self.options.server_reference
        for connection in list(self.connections.values()):
            if references is not None:
                reference = references.get(connection.listener, "")
            connection.close(reason_code, because, now, reference)
        for session in self.registry.sessions.values():
            session.backlog.count_qos0_dropped()
        self.router.sharing.count_qos0_dropped()
        if self.context.events is not None:
            self.context.events.note(STOPPED, {"reason": because})
            self.write_events(now)

    def write_events(self, now: Now) -> bool:
        """Write the waiting events now, before the next tick; return whether all were written."""
        events = self.context.events
        if self.event_log is None or events is None or events.waiting_count == 0:
            return False
        self.event_log.write(now)
        return events.waiting_count == 0

    def set_authorize(self, authorize: Authorize, revoked: set[str], now: Now) -> None:
        """Apply changed permissions to all clients; the port of a client's own login stays.

        Subscriptions stay, but deliver only permitted messages. The connections of users in
        ``revoked``, who were removed or have another password, are closed.
        """
        self.authorize = authorize
        self.wills.authorize = authorize
        for session in list(self.registry.sessions.values()):
            if not session.has_permissions_set or session.is_of_settings:
                continue  # a bridge has the permissions of its settings
            of_login = session.authorize or authorize
            session.set_user(
                session.username,
                of_login.permissions(session.username, session.client_id),
                session.authorize,
                session.mount_point,
            )
            connection = self.connections.get(session.client_id)
            if connection is not None and session.username in revoked:
                connection.close(reasons.NOT_AUTHORIZED, "the user was changed or removed", now)
        self.router.sharing.permissions_changed()

    def apply_settings(
        self,
        limits: EngineLimits,
        options: ServerOptions,
        events: EventOptions | None,
        groups: ClientGroups,
    ) -> None:
        """Apply new values of the limits and options that may change while the broker runs.

        Limits of all clients together and MQTT 5 options take effect. Connections keep the limits
        that their CONNACK announced, and their client group. State that exceeds a lower limit is
        not removed.
        """
        assert options.acknowledge_in_memory == self.options.acknowledge_in_memory, (
            "clients rely on what CONNACK promised"
        )
        self.limits = limits
        self.options = options
        self.context.turn.counters.apply_settings(groups)
        self.registry.apply_settings(limits)
        self.producers.apply_settings(limits)
        self.router.retained.limit = limits.retained_messages_max
        self.context.accounts.limit_sessions(limits.effective_sessions_per_user_max())
        if events is not None and self.event_log is not None and self.context.events is not None:
            self.context.events.apply_settings(events)
            self.event_log.flow_interval_s = events.flow_interval_s

    def _start_events(self, options: EventOptions, recovered: RecoveredState, now: Now) -> EventLog:
        """Create the events of this broker and note ``STARTED``; return the writer of events."""
        events = Events(options)
        events.now_us = now.wall_us
        events.lead_us = now.lead_us
        events.note(
            STARTED,
            {
                "epoch": recovered.epoch,
                "next_offset": recovered.next_offset,
                "sessions": recovered.session_count,
            },
        )
        self.context.events = events
        self.drops.events = events
        sessions = self.registry.sessions
        return EventLog(events, self.router, self.context, sessions, options.flow_interval_s)

    def _recover(self, recovered: RecoveredState, now: Now, prepared: PreparedSessions) -> None:
        producers = self.connection_names.recover(recovered.producers)
        self.registry.recover(recovered, now, prepared)
        self.connection_names.forget_others(self.registry.sessions)
        for message in recovered.retained:
            if message.is_expired(now.steady_us):
                self.context.batch.put_retained(message.topic, None)
            else:
                owner = self.registry.sessions.get(message.client_id)
                account = None if owner is None else owner.account
                self.router.retained.restore(message, account)
        self.producers.recover(producers)
        for client_id, record in recovered.wills.items():
            session = self.registry.sessions.get(client_id)
            expiry_s = 0 if session is None else session.expiry_interval_s
            account = None if session is None else session.account
            self.wills.recover(client_id, record, expiry_s, now, account)
