"""The sessions of a broker that does not run yet, with their subscriptions: a standby builds them
before a takeover.

::

      store or records ─▶ PreparedSessions: sessions ◀─▶ trie ── take ─▶ Registry.recover
                                                                          ▲
      store, at the start: windows, queues, wills, retained messages ─────╯

Why so. Nearly all of the time of a start is spent on the subscriptions, which change seldom: a
standby builds them when it begins to follow, and updates them with each record that changes them.
State that changes with each message (windows, queues) is read at the start, which is fast. A broker
that starts from its own store prepares nothing, and its registry builds all sessions.

The prepared sessions refer to a context, drops and a router, which the engine takes over with them.
Shared subscriptions are not built but collected as records, because a group restores its queue when
its first member joins.

The two tables change independently, as in the store: sessions by client identifier, subscriptions
by session number. In one commit a session comes before its subscriptions; subscriptions without a
session are ignored, as in a start.
"""

from __future__ import annotations

from typing import final

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.memory.accounts import Accounts
from penstock.engine.memory.pool import Pool, memory_limits
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.routing.router import Router
from penstock.engine.session.session import Session, SessionSubscription
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.options import SharingOptions
from penstock.engine.values.records import SessionRecord, SubscriptionRecord
from penstock.engine.values.topics import is_shared


@final
class PreparedSessions:
    """The sessions of one broker before its start. Only one thread at a time may use them.

    Args:
        limits: the limits of the broker, and of sessions whose limits are not known by name.
        stream_filters: topic filters of the configured streams.
        sharing: the options of shared subscriptions.
        limits_by_name: the limits of the sessions of each listener and bridge, by
            ``Session.limits_name``.
    """

    def __init__(
        self,
        limits: EngineLimits,
        stream_filters: tuple[str, ...] = (),
        sharing: SharingOptions | None = None,
        limits_by_name: dict[str, EngineLimits] | None = None,
    ) -> None:
        budget = Pool(None, memory_limits(limits))
        accounts = Accounts(budget, limits.share_max, limits.effective_sessions_per_user_max())
        self.drops = Drops()
        self.context = EngineContext(0, budget, accounts)
        self.router = Router(
            self.context, limits, stream_filters, self.drops, sharing or SharingOptions()
        )
        self.limits = limits
        self.limits_by_name = limits_by_name or {}
        self._sessions: dict[int, Session] = {}
        self._numbers: dict[str, int] = {}  # by client identifier
        self._shared_records: dict[int, dict[str, SubscriptionRecord]] = {}

    # -- changes, in the order of the store ------------------------------------------------

    def put_session(self, record: SessionRecord) -> None:
        """Add or replace a session or the queue of a group."""
        former = self._numbers.get(record.client_id)
        if former is not None and former != record.number:
            self.remove_session(record.client_id)
        self._numbers[record.client_id] = record.number
        if record.is_group_queue:
            return
        session = self._sessions.get(record.number)
        if session is None:
            self._sessions[record.number] = self._session(record)
        elif not self._fits(session, record):
            self._sessions[record.number] = self._session(record)
            self._move(session, self._sessions[record.number])

    def remove_session(self, client_id: str) -> None:
        """Remove the session of ``client_id``; its subscriptions stay."""
        number = self._numbers.pop(client_id, None)
        if number is not None:
            self._forget_if_unused(number)

    def put_subscription(self, record: SubscriptionRecord) -> None:
        """Add a subscription, or replace that of the same session with the same filter."""
        session = self._sessions.get(record.number)
        if session is None or record.subscription is None:
            return
        if is_shared(record.topic_filter):
            self._shared_records.setdefault(record.number, {})[record.topic_filter] = record
        else:
            entry = SessionSubscription(record.subscription, record.identifier)
            self.router.subscribe(session, entry)

    def remove_subscription(self, number: int, topic_filter: str) -> None:
        """Remove a subscription of the session with this number, if there is one."""
        session = self._sessions.get(number)
        if session is None:
            return
        if is_shared(topic_filter):
            self._shared_records.get(number, {}).pop(topic_filter, None)
        else:
            self.router.unsubscribe(session, topic_filter)
        self._forget_if_unused(number)

    def remove_subscriptions(self, begin: int, end: int) -> None:
        """Remove the subscriptions of all sessions with numbers from ``begin`` to below ``end``."""
        numbers = [begin] if end == begin + 1 else list(self._sessions)
        for number in numbers:
            session = self._sessions.get(number)
            if session is None or not begin <= number < end:
                continue
            for topic_filter in list(session.subscriptions):
                self.router.unsubscribe(session, topic_filter)
            self._shared_records.pop(number, None)
            self._forget_if_unused(number)

    # -- at the start ------------------------------------------------------------------------

    def take(self, record: SessionRecord) -> Session | None:
        """Remove and return the prepared session of ``record``; None if it is not prepared.

        The session counts in its account, and has no progress yet.
        """
        return self._sessions.pop(record.number, None)

    def covers(self, records: list[SessionRecord]) -> bool:
        """Return whether each session of ``records`` is prepared, and as its record says.

        If not, changes of the store were missed, so that subscriptions may be missing too.
        """
        for record in records:
            if not record.is_group_queue:
                session = self._sessions.get(record.number)
                if session is None or not self._fits(session, record):
                    return False
        return True

    def take_shared(self) -> list[SubscriptionRecord]:
        """Remove and return all shared subscriptions, in the order of the store."""
        shared, self._shared_records = self._shared_records, {}
        records = [record for number in sorted(shared) for record in shared[number].values()]
        records.sort(key=_store_order)
        return records

    def discard_rest(self) -> None:
        """Remove the sessions that were not taken."""
        for number in list(self._sessions):
            session = self._sessions[number]
            for topic_filter in list(session.subscriptions):
                self.router.unsubscribe(session, topic_filter)
            self._forget(number)
        self._numbers.clear()

    def subscriptions(self) -> list[SubscriptionRecord]:
        """Return all subscriptions in the order of the store. For tests and reports."""
        records = [record for kept in self._shared_records.values() for record in kept.values()]
        for number, session in self._sessions.items():
            for topic_filter, entry in session.subscriptions.items():
                kept = SubscriptionRecord(
                    number, topic_filter, entry.subscription, entry.identifier
                )
                records.append(kept)
        records.sort(key=_store_order)
        return records

    @property
    def session_count(self) -> int:
        """Return how many sessions are prepared."""
        return len(self._sessions)

    # -- inside ------------------------------------------------------------------------------

    def _session(self, record: SessionRecord) -> Session:
        session = Session(
            record.client_id,
            record.number,
            record.expiry_interval_s,
            self.context,
            self.limits_by_name.get(record.limits_name, self.limits),
            self.drops,
            self.context.accounts.account_with_key(record.account),
        )
        session.account.count_session(record.client_id, 1)
        return session

    def _fits(self, session: Session, record: SessionRecord) -> bool:
        """Return whether ``session`` was built from a record with the same values."""
        return (
            session.client_id == record.client_id
            and session.limits is self.limits_by_name.get(record.limits_name, self.limits)
            and session.account.key == record.account
            and session.is_stored == (record.expiry_interval_s > 0)
        )

    def _move(self, former: Session, session: Session) -> None:
        """Move the subscriptions of ``former`` to ``session``, and end ``former``."""
        for topic_filter, entry in list(former.subscriptions.items()):
            self.router.unsubscribe(former, topic_filter)
            self.router.subscribe(session, entry)
        former.account.count_session(former.client_id, -1)
        former.end()

    def _forget_if_unused(self, number: int) -> None:
        """Forget a session that has neither record nor subscriptions any more."""
        session = self._sessions.get(number)
        if session is None or self._numbers.get(session.client_id) == number:
            return
        if not session.subscriptions and not self._shared_records.get(number):
            self._forget(number)

    def _forget(self, number: int) -> None:
        session = self._sessions.pop(number)
        self._shared_records.pop(number, None)
        session.account.count_session(session.client_id, -1)
        session.end()


def _store_order(record: SubscriptionRecord) -> tuple[int, bytes]:
    return (record.number, record.topic_filter.encode())
