"""From the store to sessions and their subscriptions: all at once, or change by change.

::

      a start     database ─▶ read_sessions, read_subscriptions ─▶ RecoveredState
      a standby   database ──▶ Preparation.load ──╮
                  operations ▶ Preparation.apply ─┴▶ PreparedSessions ─▶ RecoveredState has the rest

Both decode with the same functions. Of a commit's operations only those on sessions and
subscriptions are looked at; the others, of which there are most, cost a comparison each.

A million subscriptions have few different options, so each is decoded once: a value is the key of
a dictionary. Filters that many sessions have are one string.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, final

from penstock.engine.batch.records import SessionRecord, SubscriptionRecord
from penstock.engine.routing.prepared_sessions import PreparedSessions
from penstock.protocol.packets import Subscription
from penstock.store import records
from penstock.store.chunk import decode_key
from penstock.store.database import Database

PUT: Final = 0
DELETE: Final = 1
DELETE_RANGE: Final = 2

Operation: TypeAlias = tuple[int, str, bytes, bytes]
"""An operation of a batch: its kind (``PUT``, ``DELETE``, ``DELETE_RANGE``), column family, key (of
a range the first), and value (of a range the key behind the last; of a deletion empty)."""

_SESSIONS: Final = "sessions"
_SUBSCRIPTIONS: Final = "subscriptions"
_NUMBER_BYTES: Final = 8
_KNOWN_MAX: Final = 10_000  # options that are kept decoded


def read_sessions(database: Database) -> Iterator[SessionRecord]:
    """Yield all sessions of a store, by client identifier.

    Raises:
        StoreFailed: they cannot all be read.
    """
    for key, value in database.items(_SESSIONS):
        yield records.decode_session(key.decode(), value)


def read_subscriptions(database: Database) -> Iterator[SubscriptionRecord]:
    """Yield all subscriptions of a store, by session number and topic filter.

    Raises:
        StoreFailed: they cannot all be read.
    """
    known: dict[bytes, tuple[int, bool, bool, int, int]] = {}
    filters: dict[bytes, str] = {}
    previous = b""
    number = 0
    for key, value in database.items(_SUBSCRIPTIONS):
        first = key[:_NUMBER_BYTES]
        if first != previous:
            previous = first
            number = decode_key(first)
        options = known.get(value)
        if options is None:
            if len(known) >= _KNOWN_MAX:
                known.clear()
            options = known[value] = records.decode_subscription_options(value)
        encoded = key[_NUMBER_BYTES:]
        topic_filter = filters.get(encoded)
        if topic_filter is None:
            if len(filters) >= _KNOWN_MAX:
                filters.clear()
            topic_filter = filters[encoded] = encoded.decode()
        qos, no_local, as_published, handling, identifier = options
        subscription = Subscription(topic_filter, qos, no_local, as_published, handling)
        yield SubscriptionRecord(number, topic_filter, subscription, identifier)


@final
class Preparation:
    """Keeps ``prepared`` as the store is, whose changes it is told.

    Args:
        prepared: nothing was prepared in it yet.
    """

    def __init__(self, prepared: PreparedSessions) -> None:
        self.prepared = prepared

    def load(self, database: Database) -> None:
        """Prepare all that ``database`` holds now.

        Raises:
            StoreFailed: it cannot all be read.
        """
        prepared = self.prepared
        for session in read_sessions(database):
            prepared.put_session(session)
        for subscription in read_subscriptions(database):
            prepared.put_subscription(subscription)

    def apply(self, operations: Iterable[Operation]) -> None:
        """Apply the operations of a batch to the prepared sessions, as the batch changes the
        store."""
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
