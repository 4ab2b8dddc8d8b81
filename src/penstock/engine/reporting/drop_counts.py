"""Counts of dropped messages: nothing is dropped silently.

Every message that will not reach a session it was meant for has one reason from a closed list
(``values.drop_reasons``) and is counted under it. Which method::

      drop             one delivery, which may become a dead letter
      count_delivery   one delivery, which may not: its receiver has no right to it
      count            a message that never became a delivery, or many of which nothing is known
      count_known      many at once, some of which are in memory; the caller hands these over

The engine does not log: a short bounded list keeps the latest drops, and the shell takes it
(``take_recent``) and writes them to the log.

Sessions and shared subscriptions are counted separately, because a client may choose the name of a
shared subscription as its client identifier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.reporting.events import Events
from penstock.engine.reporting.flight_recorder import FlightRecorder
from penstock.engine.values.client_groups import OTHER
from penstock.engine.values.counters import NO_LISTENER, Counters
from penstock.engine.values.drop_reasons import REASONS, slug_of
from penstock.engine.values.message import Delivery

_RECENT_MAX: Final = 100
LAST_MAX: Final = 8  # the latest drops that are remembered of one session or group
_OWNERS_WITH_LAST_MAX: Final = 10_000  # sessions, and groups, whose latest drops are remembered


@mypyc_attr(allow_interpreted_subclasses=True)
class DropHandler:
    """The port that takes dropped messages: ``dead_letters`` publishes them, and the client library
    tells its caller (``session.outcome``)."""

    def on_drop(self, reason: int, client_id: str, delivery: Delivery) -> None:
        """Handle ``delivery``, which was dropped on its way to ``client_id``."""

    def on_unknown_drops(self, client_id: str, acknowledged: int, qos0: int) -> None:
        """Count dropped messages whose deliveries are not in memory.

        Args:
            client_id: the client identifier, or the name of a group.
            acknowledged: the number of dropped messages of QoS 1 and 2.
            qos0: the number of dropped messages of QoS 0.
        """


@final
class DropCount:
    """The number of messages dropped for one reason and client, and the topic of the last of
    them."""

    def __init__(self, reason: int, client_id: str, topic: str, messages: int) -> None:
        self.reason = reason
        self.client_id = client_id
        self.topic = topic
        self.messages = messages


@final
class LastDrop:
    """One of the latest messages dropped for a session or group; ``offset`` is -1 if it is not in
    the log."""

    def __init__(self, reason: int, topic: str, offset: int) -> None:
        self.reason = reason
        self.topic = topic
        self.offset = offset


@final
class OwnerDrops:
    """The drops of each session, or of each group: counts by reason, and the latest drops."""

    def __init__(self) -> None:
        self.owners: Mapping[str, object] = {}  # the sessions or groups that exist, by name
        self._counts: dict[str, dict[int, int]] = {}  # by name, then by reason
        self._last_drops: dict[str, list[LastDrop]] = {}  # by name, the oldest drop first

    def count(self, reason: int, name: str, messages: int) -> None:
        """Add ``messages`` to the counts of the session or group ``name``, if it exists."""
        if name in self.owners:
            counts = self._counts.get(name)
            if counts is None:
                counts = self._counts[name] = {}
            counts[reason] = counts.get(reason, 0) + messages

    def remember(self, reason: int, name: str, topic: str, offset: int) -> None:
        """Remember a drop as the latest one of the session or group ``name``, if it exists."""
        if name in self.owners:
            last = self._last_drops.get(name)
            if last is None:
                if len(self._last_drops) >= _OWNERS_WITH_LAST_MAX:
                    del self._last_drops[next(iter(self._last_drops))]
                last = self._last_drops[name] = []
            last.append(LastDrop(reason, topic, offset))
            if len(last) > LAST_MAX:
                del last[0]

    def last_drops_of(self, name: str) -> list[LastDrop]:
        """Return the latest drops of the session or group ``name``, the oldest first, at most
        ``LAST_MAX``."""
        return list(self._last_drops.get(name, []))

    def counts_by_reason(self, name: str) -> dict[int, int]:
        """Return the number of dropped messages of the session or group ``name``, by reason; a
        copy."""
        counts = self._counts.get(name)
        return {} if counts is None else dict(counts)

    def count_of(self, name: str) -> int:
        """Return the number of dropped messages of the session or group ``name``."""
        counts = self._counts.get(name)
        return 0 if counts is None else sum(counts.values())

    def forget(self, name: str) -> None:
        """Forget the drops of the session or group ``name``, which ended."""
        self._counts.pop(name, None)
        self._last_drops.pop(name, None)


@final
class Drops:
    """The drops of one broker: totals by reason, and the drops of each session and group.

    ``name`` is a client identifier or, with ``is_of_group``, the topic filter of a shared
    subscription.
    """

    def __init__(self) -> None:
        self.counts: list[int] = [0] * len(REASONS)
        self.clients: dict[str, Counters] = {}  # by client identifier, of clients with a session
        self.fallback = Counters(NO_LISTENER, OTHER)  # of groups, and of clients without a session
        self.client_drops = OwnerDrops()
        self.client_drops.owners = self.clients
        self.group_drops = OwnerDrops()
        self.drop_handler: DropHandler | None = None
        self.events: Events | None = None
        self.recorder: FlightRecorder | None = None
        self._recent_drops: dict[tuple[int, str], DropCount] = {}

    def drop(self, reason: int, name: str, delivery: Delivery, is_of_group: bool = False) -> None:
        """Count a dropped delivery, and hand it to ``drop_handler``."""
        self.count_delivery(reason, name, delivery, is_of_group)
        if self.drop_handler is not None:
            self.drop_handler.on_drop(reason, name, delivery)

    def count_delivery(
        self, reason: int, name: str, delivery: Delivery, is_of_group: bool = False
    ) -> None:
        """Count a dropped delivery without handing it to ``drop_handler``."""
        topic = "" if delivery.message is None else delivery.message.topic
        self._count(reason, name, topic, 1, is_of_group)
        self._remember(reason, name, topic, delivery.offset, is_of_group)
        if self.events is not None:
            self.events.note_dropped(slug_of(reason), name, delivery)

    def count(
        self, reason: int, name: str, topic: str, messages: int = 1, is_of_group: bool = False
    ) -> None:
        """Count ``messages`` dropped for ``reason`` on their way to ``name``."""
        if messages <= 0:
            return
        self._count(reason, name, topic, messages, is_of_group)
        self._remember(reason, name, topic, -1, is_of_group)
        if self.events is not None:
            self.events.note_drops(slug_of(reason), name, topic, messages)

    def count_known(
        self,
        reason: int,
        name: str,
        known: list[Delivery],
        messages: int,
        is_of_group: bool = False,
    ) -> None:
        """Count ``messages`` dropped for ``reason``; ``known`` has those of their deliveries that
        are in memory."""
        if messages <= 0:
            return
        self._count(reason, name, "", messages, is_of_group)
        for delivery in known[-LAST_MAX:]:
            topic = "" if delivery.message is None else delivery.message.topic
            self._remember(reason, name, topic, delivery.offset, is_of_group)
        events = self.events
        if events is None:
            return
        for delivery in known:
            events.note_dropped(slug_of(reason), name, delivery)
        if messages > len(known):
            events.note_drops(slug_of(reason), name, "", messages - len(known))

    def _count(self, reason: int, name: str, topic: str, messages: int, is_of_group: bool) -> None:
        self.counts[reason] += messages
        counters = self.fallback if is_of_group else self.counters_of(name)
        counters.messages_dropped += messages
        (self.group_drops if is_of_group else self.client_drops).count(reason, name, messages)
        recent = self._recent_drops.get((reason, name))
        if recent is not None:
            recent.messages += messages
            recent.topic = topic
        elif len(self._recent_drops) < _RECENT_MAX:
            self._recent_drops[reason, name] = DropCount(reason, name, topic, messages)

    def _remember(self, reason: int, name: str, topic: str, offset: int, is_of_group: bool) -> None:
        if is_of_group:
            self.group_drops.remember(reason, name, topic, offset)
            return
        self.client_drops.remember(reason, name, topic, offset)
        if self.recorder is not None:
            self.recorder.note_dropped(reason, name, topic, offset)

    def last_drops_of(self, client_id: str) -> list[LastDrop]:
        """Return the latest drops of one session, the oldest first, at most ``LAST_MAX``."""
        return self.client_drops.last_drops_of(client_id)

    def counts_by_reason(self, client_id: str) -> dict[int, int]:
        """Return the number of dropped messages of one session, by reason; a copy."""
        return self.client_drops.counts_by_reason(client_id)

    def count_of(self, client_id: str) -> int:
        """Return the number of dropped messages of one session."""
        return self.client_drops.count_of(client_id)

    def counters_of(self, client_id: str) -> Counters:
        """Return the counters of the client's listener and client group; ``fallback`` if the client
        has no session."""
        return self.clients.get(client_id, self.fallback)

    def forget(self, client_id: str) -> None:
        """Forget the counts of ``client_id``, whose session ended; the totals stay."""
        self.clients.pop(client_id, None)
        self.client_drops.forget(client_id)

    def take_recent(self) -> list[DropCount]:
        """Remove and return the drops since the last call, for at most 100 pairs of reason and
        client.

        Drops of further pairs are in ``counts`` only.
        """
        if not self._recent_drops:
            return []
        recent = list(self._recent_drops.values())
        self._recent_drops = {}
        return recent
