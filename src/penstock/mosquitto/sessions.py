"""Replay a database of Mosquitto's through the engine, which writes it into a new store.

::

      messages ─▶ log, once each, in the order of their ids; in no stream, because they were
                  not published to this broker
      client   ─▶ session ─┬─ subscriptions
                           ├─ in flight ─▶ window, with its packet identifiers
                           ├─ queued ────▶ queue, in its order; behind a later message: a copy
                           ╰─ QoS 2 from the client, not released ─▶ packet identifier, and routed
      retained ─▶ retained messages

The engine makes the records of the store, as it does for a connected client. Meanwhile no limit
applies: a client keeps all that it had at Mosquitto, and limits apply from the next message on.

Mosquitto routes a QoS 2 message at its PUBREL, Penstock at its PUBLISH. So a message that was not
released is routed by the import, after all queues are filled, and is in the streams; its publisher
gets PUBREC and PUBCOMP for it later, and no subscriber gets the message twice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, final

from penstock.app.composing import bridge_limits, engine_limits, make_engine
from penstock.bridge.plan import session_of
from penstock.config.settings import Settings
from penstock.engine.api import Authenticate, Session, SessionSubscription
from penstock.engine.values.access import Authorize
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.declared_limits import NEVER_EXPIRES_S, TOPIC_LEVELS_MAX, MemoryLimits
from penstock.engine.values.message import Message
from penstock.engine.values.options import BRIDGE_SESSIONS
from penstock.engine.values.records import SubscriptionRecord
from penstock.engine.values.topics import (
    is_events_filter,
    is_share_name,
    is_shared,
    is_topic_filter,
    is_topic_name,
    share_name,
    without_share_prefix,
)
from penstock.mosquitto.database import (
    RESEND_PUBCOMP,
    RESEND_PUBREL,
    WAIT_FOR_PUBACK,
    WAIT_FOR_PUBCOMP,
    WAIT_FOR_PUBREC,
    WAIT_FOR_PUBREL,
    ClientMessage,
    Snapshot,
    StoredClient,
    StoredMessage,
)
from penstock.protocol.packets import Publish, Subscription
from penstock.protocol.properties import Properties, encode_properties
from penstock.runtime.dialler import with_established_mark
from penstock.store.rocks import RocksStore

WITHOUT_SUBSCRIPTIONS: Final = "sessions without subscriptions in the database"
"""A reason of ``ImportedSessions.omitted``; the sessions themselves are imported."""

_COMMIT_BYTES: Final = 4 * 1024 * 1024
_COMMIT_CLIENTS: Final = 1000
_COPIES_BYTES_MIN: Final = 64 * 1024 * 1024
"""Copies of messages may take so much, or twice the size of all messages if that is more: a
database of one message that is in a queue a million times is not a million messages."""

_SENT_STATES: Final = (WAIT_FOR_PUBACK, WAIT_FOR_PUBREC, RESEND_PUBREL, WAIT_FOR_PUBCOMP)
_RECEIVED_STATES: Final = (RESEND_PUBREL, WAIT_FOR_PUBCOMP)


class ImportedSessions(NamedTuple):
    """The outcome of importing sessions.

    Attributes:
        imported: number of imported sessions, messages and so on, by kind in words.
        omitted: number of sessions, messages and so on that were not imported, by reason in words.
    """

    imported: Counter[str]
    omitted: Counter[str]


def import_sessions(
    snapshot: Snapshot,
    settings: Settings,
    data_dir: Path,
    listener_names: dict[int, str],
    bridges: dict[str, str],
    progress: Callable[[int, int], None],
) -> ImportedSessions:
    """Create a store in ``data_dir`` with the sessions and messages of ``snapshot``.

    Args:
        snapshot: the content of the database.
        settings: the settings of the broker that will use the store.
        data_dir: a directory that does not exist, or is empty.
        listener_names: the names of listeners by their ports.
        bridges: the name of a bridge by the client identifier that it had in Mosquitto; empty for
            a bridge that is left out.
        progress: called with the number of imported clients, and the number of all clients.

    Raises:
        StoreError: the disk is full, or fails.
    """
    store = RocksStore(data_dir, ())
    try:
        importer = _SessionImporter(
            snapshot, _without_limits(settings), store, listener_names, bridges
        )
        return importer.run(progress)
    finally:
        store.close()


def _without_limits(settings: Settings) -> Settings:
    """Return ``settings`` without limits and without events."""
    limits = settings.limits.model_copy(
        update={
            "max_mqueue_len": 0,
            "max_mqueue_bytes": 0,
            "mqueue_overflow": "spill",
            "retained_messages_max": 100_000_000,
            "sessions_max": 100_000_000,
            "sessions_per_user_max": 100_000_000,
        }
    )
    memory = settings.memory.model_copy(
        update=dict.fromkeys(MemoryLimits.__annotations__, 0) | {"share_max": 1.0}
    )
    return settings.model_copy(
        update={
            "limits": limits,
            "memory": memory,
            "events": settings.events.model_copy(update={"enabled": False}),
        }
    )


@final
class _SessionImporter:
    def __init__(
        self,
        snapshot: Snapshot,
        settings: Settings,
        store: RocksStore,
        listener_names: dict[int, str],
        bridges: dict[str, str],
    ) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._store = store
        self._server, self._clock = make_engine(settings, store, Authenticate(), Authorize())
        self._now = self._clock.now()
        self._bridges = bridges
        listeners = settings.listener.enabled_listeners()
        by_name = {listener.name: engine_limits(settings, listener) for listener in listeners}
        self._limits = {
            port: by_name[name] for port, name in listener_names.items() if name in by_name
        }
        self._expiry_s_max = settings.limits.session_expiry_s_max
        self._places: dict[int, list[Message]] = {}  # a message and its copies, by number
        sizes = [stored.size_bytes() for stored in snapshot.messages.values()]
        self._copies_bytes_left = max(_COPIES_BYTES_MIN, 2 * sum(sizes))
        self._unreleased: list[tuple[Session, ClientMessage]] = []
        self._imported: Counter[str] = Counter()
        self._omitted: Counter[str] = Counter()
        self._uncommitted_bytes = 0  # of retained messages, since the last commit

    def run(self, progress: Callable[[int, int], None]) -> ImportedSessions:
        self._append_messages()
        clients = self._snapshot.clients
        for number, client in enumerate(clients.values(), start=1):
            self._import_client(client)
            if number % _COMMIT_CLIENTS == 0:
                self._commit()
            self._commit_if_large()
            progress(number, len(clients))
        for session, entry in self._unreleased:
            self._route(session, entry)
        self._import_retained()
        self._server.context.put_clock(self._clock.record())
        self._commit()
        return ImportedSessions(self._imported, self._omitted)

    # -- messages --------------------------------------------------------------------------

    def _append_messages(self) -> None:
        """Append all messages that wait for clients to the log, in the order of their ids."""
        numbers = {
            entry.number
            for client in self._snapshot.clients.values()
            if self._is_imported(client)
            for entry in client.outgoing
            if entry.qos > 0
        }
        for number in sorted(numbers):
            stored = self._snapshot.messages.get(number)
            message = None if stored is None else self._message_of(stored)
            if message is not None:
                self._append(message)
                self._places[number] = [message]
                self._commit_if_large()

    def _append(self, message: Message) -> None:
        message.internal = True
        self._server.context.batch.append(message)

    def _message_of(self, stored: StoredMessage, retain: bool | None = None) -> Message | None:
        """Return the message as the engine has it; None if it has expired, or has no valid topic
        name."""
        now = self._now
        properties = stored.properties or Properties()
        properties.topic_alias = None
        properties.subscription_identifiers = None
        properties.message_expiry_interval = None
        if stored.expires_at_s > 0:
            remaining_s = stored.expires_at_s - now.wall_us // MICROSECONDS
            if remaining_s <= 0:
                return None
            properties.message_expiry_interval = min(remaining_s, 0xFFFFFFFF)
        if not is_topic_name(stored.topic, TOPIC_LEVELS_MAX):
            return None
        return Message(
            stored.topic,
            stored.payload,
            stored.qos,
            stored.retain if retain is None else retain,
            stored.client_id,
            now.wall_us,
            encode_properties(properties),
            lead_us=now.lead_us,
        )

    # -- clients ---------------------------------------------------------------------------

    def _is_imported(self, client: StoredClient) -> bool:
        """Return whether the client's session is imported: it has not expired, and is not that of a
        bridge that is left out."""
        bridge = self._bridges.get(client.client_id)
        if bridge is not None:  # its expiry does not count: Mosquitto gives bridges none
            return bridge != ""
        if client.expiry_interval_s == 0:
            return False
        return not 0 < client.expires_at_s <= self._now.wall_us // MICROSECONDS

    def _import_client(self, client: StoredClient) -> None:
        waiting = len(client.outgoing)
        if client.client_id.startswith(BRIDGE_SESSIONS):
            self._omitted["sessions, of client identifiers reserved for bridges"] += 1
            return
        if not self._is_imported(client):
            is_bridge = self._bridges.get(client.client_id) == ""
            reason = "of a bridge that is left out" if is_bridge else "expired"
            self._omitted[f"sessions, {reason}"] += 1
            self._omitted[f"messages for sessions, {reason}"] += waiting
            return
        server = self._server
        bridge = self._bridges.get(client.client_id, "")
        expiry_s, disconnected_at_s = self._expiry_of(client)
        if bridge:
            session = self._open_bridge(bridge)
        else:
            session = server.registry.open(
                client.client_id,
                False,
                expiry_s,
                self._limits.get(client.port),
                client.username,
                server.context.accounts.account_of(client.username, "")
                if client.username
                else None,
            )
            session.is_owner_known = client.username is not None
            self._subscribe(session, client)
        self._deliver(session, client.outgoing)
        for entry in client.incoming:
            self._receive(session, entry)
        now = self._now
        disconnected_at = Now(
            now.monotonic_s, disconnected_at_s * MICROSECONDS + now.lead_us, now.lead_us
        )
        server.registry.close(session, disconnected_at)
        self._imported["bridges' sessions" if bridge else "sessions"] += 1

    def _open_bridge(self, name: str) -> Session:
        """Return the session of a bridge; the bridge subscribes by itself when the broker starts.

        The session records that the remote broker has a session of the bridge: otherwise the bridge
        would begin a new one there, and the messages that wait at the remote broker would be lost.
        """
        (remote,) = [remote for remote in self._settings.bridge.remotes if remote.name == name]
        limits = bridge_limits(self._settings, remote)
        session = self._server.registry.open(session_of(name), False, NEVER_EXPIRES_S, limits)
        if not remote.clean_start:
            session.limits_name = with_established_mark(limits.name)
        return session

    def _expiry_of(self, client: StoredClient) -> tuple[int, int]:
        """Return the session's expiry interval, and when its client disconnected, both in
        seconds."""
        now_s = self._now.steady_us // MICROSECONDS
        interval_s = min(client.expiry_interval_s, self._expiry_s_max)
        if client.expires_at_s == 0 or interval_s == NEVER_EXPIRES_S:
            return interval_s, now_s
        return interval_s, max(1, min(now_s, client.expires_at_s - interval_s))

    def _subscribe(self, session: Session, client: StoredClient) -> None:
        batch = self._server.context.batch
        if not client.subscriptions:  # Mosquitto's database has none with $share
            self._omitted[WITHOUT_SUBSCRIPTIONS] += 1
        for stored in client.subscriptions:
            name = stored.topic_filter
            is_valid = is_topic_filter(
                without_share_prefix(name), TOPIC_LEVELS_MAX
            ) and not is_events_filter(name)
            if not is_valid or (is_shared(name) and not is_share_name(share_name(name))):
                self._omitted["subscriptions, with an invalid topic filter"] += 1
                continue
            subscription = Subscription(
                name,
                stored.qos,
                stored.no_local and not is_shared(name),
                stored.retain_as_published,
                stored.retain_handling,
            )
            entry = SessionSubscription(subscription, stored.identifier)
            self._server.router.subscribe(session, entry)
            batch.put_subscription(
                SubscriptionRecord(session.number, name, subscription, stored.identifier)
            )
            self._imported["subscriptions"] += 1

    def _deliver(self, session: Session, entries: list[ClientMessage]) -> None:
        """Put the messages for the client into its window and queue, in their order."""
        in_flight = 0  # number of entries up to the last one that was sent
        for number, entry in enumerate(entries, start=1):
            if (
                entry.qos > 0
                and (entry.state in _SENT_STATES or entry.is_repeat)
                and entry.packet_id
            ):
                in_flight = number
        latest = -1
        for number, entry in enumerate(entries, start=1):
            if entry.qos == 0:
                self._omitted["QoS 0 messages in queues, which Penstock keeps in memory only"] += 1
                continue
            if entry.number not in self._places:
                self._omitted["messages in queues, expired"] += 1
                continue
            self._commit_if_large()
            message = self._after(entry.number, latest)
            if message is None:
                self._omitted["messages in queues, repeated without end"] += 1
                continue
            latest = message.offset
            ids = (entry.subscription_id,) if entry.subscription_id else ()
            if number <= in_flight and session.adopt_in_flight(
                message,
                entry.qos,
                entry.retain,
                ids,
                entry.packet_id,
                entry.state in _RECEIVED_STATES,
            ):
                self._imported["messages in flight"] += 1
                continue
            session.outbound.deliver(message, entry.qos, entry.retain, ids, False, self._now)
            self._imported["messages in queues"] += 1

    def _after(self, number: int, offset: int) -> Message | None:
        """Return a message of this number that is behind ``offset`` in the log, because a queue has
        the order of the log.

        A message that is behind a later one, such as a retained message that a client got when it
        subscribed, is there once more, for all clients; None if all copies together would be too
        large.
        """
        places = self._places[number]
        at = bisect_right(places, offset, key=_offset_of)
        if at < len(places):
            return places[at]
        message = places[0].copy_for_session()
        if message.size_bytes() > self._copies_bytes_left:
            return None
        self._copies_bytes_left -= message.size_bytes()
        self._append(message)
        places.append(message)
        return message

    def _receive(self, session: Session, entry: ClientMessage) -> None:
        """Store the packet identifier of a QoS 2 message that the client has not released."""
        is_answered = entry.state in (WAIT_FOR_PUBREL, RESEND_PUBCOMP)
        if entry.qos != 2 or entry.packet_id == 0 or not is_answered:
            self._omitted["messages without PUBREC, which their clients send again"] += 1
            return
        packet = Publish("", b"", 2, packet_id=entry.packet_id)
        if session.receive(packet, self._now) and entry.state == WAIT_FOR_PUBREL:
            self._unreleased.append((session, entry))
        self._imported["unfinished QoS 2 messages from clients"] += 1

    def _route(self, session: Session, entry: ClientMessage) -> None:
        stored = self._snapshot.messages.get(entry.number)
        message = None if stored is None else self._message_of(stored)
        if message is not None:
            self._server.router.publish(message, session, self._now)
            self._commit_if_large()

    # -- retained messages -------------------------------------------------------------------

    def _import_retained(self) -> None:
        server = self._server
        for number in self._snapshot.retained:
            stored = self._snapshot.messages.get(number)
            message = None if stored is None else self._message_of(stored, retain=True)
            if message is None:
                self._omitted["retained messages, expired"] += 1
                continue
            if server.router.retained.get(message.topic) is not None:
                continue  # a QoS 2 message that was just routed replaces it
            owner = server.registry.sessions.get(message.client_id)
            server.router.retained.restore(message, None if owner is None else owner.account)
            server.context.batch.put_retained(message.topic, message)
            self._imported["retained messages"] += 1
            self._commit_if_large(len(message.payload))

    # -- commits -----------------------------------------------------------------------------

    def _commit_if_large(self, added_bytes: int = 0) -> None:
        self._uncommitted_bytes += added_bytes
        if self._server.context.batch_bytes + self._uncommitted_bytes > _COMMIT_BYTES:
            self._commit()

    def _commit(self) -> None:
        self._uncommitted_bytes = 0
        commit = self._server.context.seal()
        if commit.has_writes:
            self._store.commit(commit)
        self._server.context.committed(commit)


def _offset_of(message: Message) -> int:
    return message.offset
