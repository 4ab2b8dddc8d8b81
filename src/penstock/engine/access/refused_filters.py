"""Subscriptions that were refused lately, for the log.

In MQTT 3.1 SUBACK cannot refuse a filter (v3.1 §3.8), so the client does not know. Between two
calls of ``take``, at most ``CLIENTS_MAX`` clients are kept, each with its latest filter and the
number of its refused filters.
"""

from __future__ import annotations

from typing import Final, final

CLIENTS_MAX: Final = 100


@final
class RefusedFilter:
    """The latest refused subscription of one client.

    Args:
        client_id: the client identifier.
        topic_filter: the filter it asked for.
        code: the reason code, of MQTT 5 in every version.
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
        self._recent: dict[str, RefusedFilter] = {}

    def note(self, client_id: str, topic_filter: str, code: int) -> None:
        """Note that ``client_id`` asked for ``topic_filter`` and was refused for ``code``."""
        known = self._recent.get(client_id)
        if known is None and len(self._recent) >= CLIENTS_MAX:
            return
        count = 1 if known is None else known.count + 1
        self._recent[client_id] = RefusedFilter(client_id, topic_filter, code, count)

    def take(self) -> list[RefusedFilter]:
        """Return the refused filters since the last call, and forget them."""
        if not self._recent:
            return []
        recent = list(self._recent.values())
        self._recent = {}
        return recent
