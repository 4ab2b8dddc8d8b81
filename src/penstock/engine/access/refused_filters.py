"""Subscriptions that were refused recently, for the log.

In MQTT 3.1 SUBACK cannot refuse a filter (v3.1 §3.8), so only the log tells of the refusal. Between
two calls of ``take``, at most ``CLIENTS_MAX`` clients are remembered, each with its latest refused
filter and the number of its refused filters.
"""

from __future__ import annotations

from typing import Final, final

CLIENTS_MAX: Final = 100


@final
class RefusedFilter:
    """The latest refused subscription of one client.

    Args:
        client_id: the client identifier.
        topic_filter: the refused filter.
        code: the MQTT 5 reason code of the refusal, whatever the client's version is.
        count: how many filters of this client were refused, this one included.
    """

    def __init__(self, client_id: str, topic_filter: str, code: int, count: int) -> None:
        self.client_id = client_id
        self.topic_filter = topic_filter
        self.code = code
        self.count = count


@final
class RefusedFilters:
    """The refused subscriptions since the last ``take``."""

    def __init__(self) -> None:
        self._by_client: dict[str, RefusedFilter] = {}

    def note(self, client_id: str, topic_filter: str, code: int) -> None:
        """Note that the subscription of ``client_id`` to ``topic_filter`` was refused with
        ``code``."""
        known = self._by_client.get(client_id)
        if known is None and len(self._by_client) >= CLIENTS_MAX:
            return
        count = 1 if known is None else known.count + 1
        self._by_client[client_id] = RefusedFilter(client_id, topic_filter, code, count)

    def take(self) -> list[RefusedFilter]:
        """Remove and return the refused filters since the last call."""
        if not self._by_client:
            return []
        recent = list(self._by_client.values())
        self._by_client = {}
        return recent
