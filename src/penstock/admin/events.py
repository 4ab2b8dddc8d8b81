"""Reads the broker's events for the API, from the stream service.

The service is a process of its own (``stream.service``), so that a long search delays neither the
broker nor other requests of operators. One search runs at a time.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec

from penstock.admin.bounded_executor import BoundedExecutor
from penstock.admin.parameters import BadRequest
from penstock.auth.tokens import OWN_FILE
from penstock.control.admin_requests import LIMIT_MAX, Cursor, Limit, Page, Seconds
from penstock.control.client import RequestRefused
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.stream.event_rows import Position

SERVICE_S: Final = 2.0
"""Time limit for reaching the stream service, seconds."""

SEARCH_S: Final = 3.0
"""Time limit of a search, seconds; the answer then has the events found so far and a cursor."""

OFF: Final = "the broker writes no events: set events.enabled, and restart it (docs/audit.md)"

_CURSOR: Final = re.compile(r"(\d{1,19})\.(\d{1,9})")
_KINDS_MAX: Final = 32


class ListEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List events, the newest first.

    Attributes:
        kind: kinds of events, separated by commas; "" for all kinds.
        client_id: pattern of the client identifier; None for all events, also those of no client.
        since: time of the oldest event, seconds since the Unix epoch.
        until: time that all events are older than, seconds since the Unix epoch; 0 for now.
        cursor: the cursor of the previous answer; "" for the first page.
        limit: events of the page at most.
    """

    kind: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    client_id: str | None = None
    since: Seconds = 0.0
    until: Seconds = 0.0
    cursor: Cursor = ""
    limit: Limit = 100


@final
class EventReader:
    """Reads events from a stream service.

    Args:
        data_dir: the broker's data directory, which has the broker's token for the service.
        address: HOST:PORT of the service; "" if the broker writes no events.
        uses_tls: whether the service speaks TLS.
    """

    def __init__(self, data_dir: Path, address: str, uses_tls: bool) -> None:
        self._token_file = data_dir / OWN_FILE
        self._address = address
        self._uses_tls = uses_tls
        self._searches = BoundedExecutor("searches for events", 1)

    async def list_events(self, request: ListEvents) -> Page:
        """Return a page of events, the newest first.

        Raises:
            BadRequest: a parameter is not valid.
            RequestRefused: the broker writes no events.
            PenstockError: the stream service does not answer, or too many searches wait.
        """
        kinds = _kinds(request.kind)
        before = _position(request.cursor)
        if not 1 <= request.limit <= LIMIT_MAX:
            raise BadRequest(f"a page has 1 to {LIMIT_MAX} entries, not {request.limit}")
        if not self._address:
            raise RequestRefused(OFF, False)
        return await self._searches.run(lambda: self._search(request, kinds, before))

    def _search(self, request: ListEvents, kinds: list[str], before: Position | None) -> Page:
        """Return a page of events, read from the log; runs in the thread of searches."""
        # Arrow is large: it is loaded with the first search.
        from penstock.stream.client import StreamClient
        from penstock.stream.credentials import Credentials
        from penstock.stream.event_rows import newest_events

        until_s = request.until or time.time() + 1.0
        within_us = (int(request.since * 1_000_000), int(until_s * 1_000_000))
        has_token = os.access(self._token_file, os.R_OK)
        credentials = Credentials(
            tls=self._uses_tls,
            token_file=str(self._token_file) if has_token else "",
            verifies_service=False,
        )
        with StreamClient(self._address, SERVICE_S, credentials) as stream:
            try:
                found, rest = newest_events(
                    stream, kinds, request.client_id, within_us, before, request.limit, SEARCH_S
                )
            except ValueError as error:
                raise BadRequest(str(error)) from None
            except ConfigError as error:
                raise RequestRefused(str(error), False) from None
        entries = [event.entry for event in found]
        return Page(entries, "" if rest is None else f"{rest[0]}.{rest[1]}")


def _kinds(text: str) -> list[str]:
    kinds = [kind for kind in text.split(",") if kind]
    if len(kinds) > _KINDS_MAX:
        raise BadRequest(f"kind has more than {_KINDS_MAX} kinds")
    return kinds


def _position(cursor: str) -> Position | None:
    if not cursor:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise BadRequest(f"{cursor!r} is not a cursor of a list of events")
    return int(found[1]), int(found[2])
