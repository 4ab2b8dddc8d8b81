"""Reads sessions and their subscriptions from the store: all at once, or change by change.

::

      a start     database ──▶ read_sessions, read_subscriptions ─▶ RecoveredState
      a standby   database ──▶ StoredSessionsMirror.load ──╮
                  operations ▶ StoredSessionsMirror.apply ─┴▶ PreparedSessions

After a takeover everything else is read from the store (``RecoveredState``). Both decode with the
same functions. ``apply`` skips the operations of a commit that are not on sessions or
subscriptions; these are most, and cost a comparison each.

A million subscriptions have few different options, so decoded options are cached by their encoded
value. Equal topic filters of many sessions share one string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, final

from penstock.engine.api import PreparedSessions
from penstock.engine.values.records import SessionRecord, SubscriptionRecord
from penstock.protocol.packets import Subscription
from penstock.store import records
from penstock.store.chunk import decode_key
from penstock.store.database import Database

PUT: Final = 0
DELETE: Final = 1
DELETE_RANGE: Final = 2

Operation: TypeAlias = tuple[int, str, bytes, bytes]
"""An operation of a batch: its kind (``PUT``, ``DELETE``, ``DELETE_RANGE``), column family, key
(the first key of a range), and value (the excluded end key of a range; empty for ``DELETE``)."""

_SESSIONS: Final = "sessions"
_SUBSCRIPTIONS: Final = "subscriptions"
_NUMBER_BYTES: Final = 8
_CACHED_MAX: Final = 10_000  # options, and topic filters, that are cached decoded


def read_sessions(database: Database) -> Iterator[SessionRecord]:
    """Yield all sessions of a store, ordered by client identifier.

    Raises:
        StoreUnavailable: not all sessions can be read.
    """
    for key, value in database.items(_SESSIONS):
        yield records.decode_session(key.decode(), value)


def read_subscriptions(database: Database) -> Iterator[SubscriptionRecord]:
    """Yield all subscriptions of a store, ordered by session number and topic filter.

    Raises:
        StoreUnavailable: not all subscriptions can be read.
    """
    options_by_value: dict[bytes, tuple[int, bool, bool, int, int]] = {}
    filters: dict[bytes, str] = {}
    previous = b""
    number = 0
    for key, value in database.items(_SUBSCRIPTIONS):
        first = key[:_NUMBER_BYTES]
        if first != previous:
            previous = first
            number = decode_key(first)
        options = options_by_value.get(value)
        if options is None:
            if len(options_by_value) >= _CACHED_MAX:
                options_by_value.clear()
            options = options_by_value[value] = records.decode_subscription_options(value)
        encoded = key[_NUMBER_BYTES:]
        topic_filter = filters.get(encoded)
        if topic_filter is None:
            if len(filters) >= _CACHED_MAX:
                filters.clear()
            topic_filter = filters[encoded] = encoded.decode()
        qos, no_local, as_published, handling, identifier = options
        subscription = Subscription(topic_filter, qos, no_local, as_published, handling)
        yield SubscriptionRecord(number, topic_filter, subscription, identifier)


@final
class StoredSessionsMirror:
    """Keeps the ``PreparedSessions`` of a standby equal to the sessions in its database.

    Args:
        prepared: empty; ``load`` fills it, and ``apply`` updates it.
    """

    def __init__(self, prepared: PreparedSessions) -> None:
        self.prepared = prepared

    def load(self, database: Database) -> None:
        """Prepare all sessions and subscriptions in ``database``.

        Raises:
            StoreUnavailable: not all of them can be read.
        """
        prepared = self.prepared
        for session in read_sessions(database):
            prepared.put_session(session)
        for subscription in read_subscriptions(database):
            prepared.put_subscription(subscription)

    def apply(self, operations: Iterable[Operation]) -> None:
        """Apply the operations of a batch that was written to the store to the prepared
        sessions."""
        for operation in operations:
            family = operation[1]
            if family == _SUBSCRIPTIONS:
                self._apply_subscription(operation)
            elif family == _SESSIONS:
                self._apply_session(operation)

    def _apply_session(self, operation: Operation) -> None:
        kind, _, key, value = operation
        assert kind != DELETE_RANGE, "sessions go one by one: client identifiers are no range"
        if kind == PUT:
            self.prepared.put_session(records.decode_session(key.decode(), value))
        else:
            self.prepared.remove_session(key.decode())

    def _apply_subscription(self, operation: Operation) -> None:
        kind, _, key, value = operation
        number = decode_key(key[:_NUMBER_BYTES])
        if kind == DELETE_RANGE:
            assert len(key) == len(value) == _NUMBER_BYTES, "whole sessions lose them"
            self.prepared.remove_subscriptions(number, decode_key(value))
            return
        topic_filter = key[_NUMBER_BYTES:].decode()
        if kind == PUT:
            self.prepared.put_subscription(records.decode_subscription(number, topic_filter, value))
        else:
            self.prepared.remove_subscription(number, topic_filter)
