"""The sessions of one broker by client identifier: opened, closed, expired and recovered.

::

      (none) ── CONNECT ─▶ attached ── connection ended ─▶ offline ── expiry passed ─▶ (none)
                              │  ▲                            │
                              │  ╰──────── CONNECT, clean start 0 ──╯
                              ╰─ connection ended, expiry interval 0 ─▶ (none)

CONNECT with clean start ends an existing session first [MQTT-3.1.2-4]. A session with an
expiry interval of 0 ends with its connection and is never stored. A session belongs to the user
who created it (MQTT 5 §5.4.2): callers check ``may_open`` before ``open``.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.pool import Pool
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.group_queue import GroupQueue
from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.engine.routing.router import Router
from penstock.engine.routing.wills import Wills
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.session.session_index import SessionIndex
from penstock.engine.values.clock import MICROSECONDS, Now
from penstock.engine.values.event_kinds import SESSION_EXPIRED
from penstock.engine.values.limits import NEVER_EXPIRES_S, OUT_OF_DATE_MAX, EngineLimits
from penstock.engine.values.records import RecoveredState, SessionRecord, SessionState

_VISITS_PER_STEP: Final = 100


@final
class LowestOffsetSearch:
    """A search for the lowest log offset that a queue or window still needs, some of them at a
    time.

    Args:
        asked: the sessions and groups' queues when the search begins; later ones need no offset
            below ``end``.
        end: the end of the log when the search begins.
        context: its batch notes messages that move to a session that was visited before.
    """

    def __init__(self, asked: list[Session | GroupQueue], end: int, context: EngineContext) -> None:
        self._lowest = end
        self._to_visit = asked
        self._context = context

    @property
    def lowest(self) -> int:
        """Return the lowest needed offset; valid once ``step`` returned True."""
        return min(self._lowest, self._context.batch.lowest_moved_offset)

    def step(self, count: int = _VISITS_PER_STEP) -> bool:
        """Visit the next ``count`` sessions and queues; return whether all were visited."""
        for _ in range(count):
            if not self._to_visit:
                return True
            offset = self._to_visit.pop().lowest_offset()
            if 0 <= offset < self._lowest:
                self._lowest = offset
        return not self._to_visit


class SessionEnds:
    """Is told of each stored session that ends; ``connection_names`` overrides it."""

    def on_session_end(self, session: Session) -> None:
        """Forget what is stored about ``session``, in the open batch."""


@final
class Registry:
    """The sessions of one broker.

    Args:
        context: the parts of the broker that it acts on.
        router: has the subscriptions of the sessions.
        wills: the wills, which are published at the latest when their session ends.
        limits: the limits of the broker, and of sessions whose limits are not known by name.
        drops: the counts of dropped messages.
        limits_by_name: the limits of the sessions of each listener and bridge, by
            ``Session.limits_name``.
    """

    def __init__(
        self,
        context: EngineContext,
        router: Router,
        wills: Wills,
        limits: EngineLimits,
        drops: Drops,
        limits_by_name: dict[str, EngineLimits] | None = None,
    ) -> None:
        self.sessions: dict[str, Session] = {}
        self.session_ends = SessionEnds()
        self.index = SessionIndex()
        drops.fallback = context.turn.counters.fallback
        self._context = context
        self._router = router
        self._wills = wills
        self._limits = limits
        self._limits_by_name = limits_by_name or {}
        self._drops = drops
        self._scheduled: dict[
            int, int
        ] = {}  # expiry of disconnected sessions by number, microseconds of the steady clock
        self._expiring: list[tuple[int, int, str]] = []  # a heap; entries may be out of date

    def apply_settings(self, limits: EngineLimits) -> None:
        """Apply other limits to later sessions; existing sessions stay."""
        self._limits = limits

    def has_room(self, client_id: str, account: Pool | None = None) -> bool:
        """Return whether a session for ``client_id`` exists or may be created, within the limits of
        ``account`` too if it is given."""
        if client_id in self.sessions:
            return True
        if len(self.sessions) >= self._limits.sessions_max:
            return False
        if account is not None:
            return account.has_room_for_another_session()
        return self._context.budget.has_room_for_sessions()

    def may_open(self, client_id: str, username: str | None) -> bool:
        """Return whether ``username`` (None: anonymous) may open the session of ``client_id``.

        If there is no such session, or its owner is not known (it was imported), any user may.
        """
        session = self.sessions.get(client_id)
        return session is None or not session.is_owner_known or session.username == username

    def unused_client_id(self, epoch: str, prefix: str = "auto-") -> str:
        """Return a client identifier for a client that sent none [MQTT-3.1.3-6]."""
        number = self._context.batch.next_number
        while f"{prefix}{epoch}-{number}" in self.sessions:
            number += 1
        self._context.batch.next_number = (
            number  # the identifiers before are in use: they need not be tried again
        )
        return f"{prefix}{epoch}-{number}"

    def open(
        self,
        client_id: str,
        clean_start: bool,
        expiry_interval_s: int,
        limits: EngineLimits | None = None,
        username: str | None = None,
        account: Pool | None = None,
    ) -> Session:
        """Return the session for an accepted CONNECT: the existing session, or a new one.

        Args:
            client_id: the client identifier; an existing session must not have a connection.
            clean_start: whether an existing session ends first.
            expiry_interval_s: session expiry interval in seconds; 0 = it ends with its connection.
            limits: the limits of the client's listener; None = those of the broker.
            username: the user, who becomes the owner; None = anonymous.
            account: the memory account of a new session; None = the common account.
        """
        limits = limits or self._limits
        session = self.sessions.get(client_id)
        if session is not None and not clean_start:
            session.expiry_interval_s = expiry_interval_s
        else:
            if session is not None:
                self._remove(session)
            session = Session(
                client_id,
                self._context.batch.take_number(),
                expiry_interval_s,
                self._context,
                limits,
                self._drops,
                account,
            )
            self.sessions[client_id] = session
            self.index.add(session)
            session.account.count_session(client_id, 1)
        session.limits_name = limits.name
        session.username = username
        session.is_owner_known = True
        self._set_drop_counters(session, limits.name)
        self._store(session, 0)
        return session

    def close(self, session: Session, now: Now) -> None:
        """Detach the connection of ``session``, which ended; end the session if it has no expiry
        interval."""
        if session.expiry_interval_s == 0:
            session.detach(now)
            self._remove(session)
            return
        session.detach(now)
        self._store(session, now.steady_us)
        self._schedule(session)

    def end(self, session: Session, now: Now) -> None:
        """End ``session`` now, and publish its delayed will [MQTT-3.1.3-9]."""
        self._remove(session)
        self._wills.publish(session.client_id, now)

    def expire(self, now: Now) -> None:
        """End the sessions whose expiry interval has passed [MQTT-3.1.2-23]."""
        while self._expiring and self._expiring[0][0] <= now.steady_us:
            when_us, number, client_id = heappop(self._expiring)
            if self._scheduled.get(number) != when_us:
                continue
            del self._scheduled[number]
            session = self.sessions.get(client_id)
            if session is None or session.number != number or session.link is not None:
                continue
            if _expires_at_us(session) <= now.steady_us:
                self._context.turn.counters.sessions_expired += 1
                if self._context.events is not None:
                    self._context.events.note(
                        SESSION_EXPIRED,
                        {
                            "client": client_id,
                            "expiry_interval_s": session.expiry_interval_s,
                            "queue": session.queue_length,
                            "window": session.window_length,
                        },
                    )
                self.end(session, now)

    def search_lowest_offset(self, end: int) -> LowestOffsetSearch:
        """Begin a search for the lowest log offset that is still needed, which is ``end`` if none
        is."""
        self._context.batch.lowest_moved_offset = end
        asked: list[Session | GroupQueue] = list(self.sessions.values())
        asked.extend([group.queue for group in self._router.sharing.groups.values()])
        return LowestOffsetSearch(asked, end, self._context)

    def recover(
        self, recovered: RecoveredState, now: Now, prepared: PreparedSessions | None = None
    ) -> None:
        """Restore the sessions of the store; clients that were connected are offline now.

        A session gets the limits of the listener that its client used last, or those of the broker
        if that listener is not known or does not exist. Sessions in ``prepared`` have their
        subscriptions already; then ``recovered`` has no subscriptions.
        """
        groups: list[SessionRecord] = []
        records: list[SessionRecord] = []
        context = self._context
        for record in sorted(recovered.sessions, key=_number):
            context.batch.next_number = max(context.batch.next_number, record.number + 1)
            if record.is_group_queue:
                groups.append(record)
                continue
            records.append(record)
            session = None if prepared is None else prepared.take(record)
            if session is None:
                session = Session(
                    record.client_id,
                    record.number,
                    record.expiry_interval_s,
                    self._context,
                    self._limits_by_name.get(record.limits_name, self._limits),
                    self._drops,
                    self._context.accounts.account_with_key(record.account),
                )
                session.account.count_session(record.client_id, 1)
            session.expiry_interval_s = record.expiry_interval_s
            session.backlog.is_stored = True
            session.limits_name = record.limits_name
            session.username = record.username
            session.is_owner_known = record.is_owner_known
            session.disconnected_at_us = record.disconnected_at_us or now.steady_us
            if context.recorder is not None:
                context.recorder.add_disconnected(record.client_id, context.batch.next_offset)
            self.sessions[record.client_id] = session
            self.index.add(session)
            self._set_drop_counters(session, session.limits.name)
            progress = recovered.progress.get(record.number)
            session.restore(
                progress or SessionState(record.number, 1, 1, [], [], [], [], [], []),
                recovered.queues.get(record.number, []),
                recovered.segments.get(record.number, []),
            )
        by_number = {session.number: session for session in self.sessions.values()}
        sharing = self._router.sharing
        sharing.begin_to_recover(recovered, groups)
        subscriptions = recovered.subscriptions
        if prepared is not None:
            subscriptions = subscriptions + prepared.take_shared()
            prepared.discard_rest()
        for kept in subscriptions:
            owner = by_number.get(kept.number)
            if owner is not None and kept.subscription is not None:
                entry = SessionSubscription(kept.subscription, kept.identifier)
                self._router.subscribe(owner, entry)
        sharing.end_recovery()
        for record in records:
            session = self.sessions[record.client_id]
            sharing.member_disconnected(session, now)
            if record.expiry_interval_s == 0:
                self._remove(session)
                continue
            session.watch_release_timeout(now)
            if record.disconnected_at_us == 0:
                self._store(session, now.steady_us)
            self._schedule(session)

    def _set_drop_counters(self, session: Session, listener: str) -> None:
        """Count the drops of ``session`` under ``listener`` and its client group, until its next
        CONNECT."""
        self._drops.clients[session.client_id] = self._context.turn.counters.counters_of_client(
            listener, session.client_id, session.username
        )

    def _store(self, session: Session, disconnected_at_us: int) -> None:
        if session.is_stored:
            self._context.batch.put_session(
                SessionRecord(
                    session.client_id,
                    session.number,
                    session.expiry_interval_s,
                    disconnected_at_us,
                    session.limits_name,
                    session.username,
                    session.is_owner_known,
                    session.account.key,
                )
            )

    def _schedule(self, session: Session) -> None:
        if session.expiry_interval_s == NEVER_EXPIRES_S:
            return
        when_us = _expires_at_us(session)
        self._scheduled[session.number] = when_us
        heappush(self._expiring, (when_us, session.number, session.client_id))
        if len(self._expiring) > 2 * len(self._scheduled) + OUT_OF_DATE_MAX:
            self._expiring = [
                entry for entry in self._expiring if self._scheduled.get(entry[1]) == entry[0]
            ]
            heapify(self._expiring)

    def _remove(self, session: Session) -> None:
        for topic_filter in list(session.subscriptions):
            self._router.unsubscribe(session, topic_filter)
        del self.sessions[session.client_id]
        self.index.remove(session)
        session.account.count_session(session.client_id, -1)
        self._scheduled.pop(session.number, None)
        session.end()
        self._drops.forget(session.client_id)
        if session.is_stored:
            self._context.batch.end_session(session.client_id, session.number)
            self.session_ends.on_session_end(session)


def _number(record: SessionRecord) -> int:
    return record.number


def _expires_at_us(session: Session) -> int:
    return session.disconnected_at_us + session.expiry_interval_s * MICROSECONDS
