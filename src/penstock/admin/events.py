"""The broker's events for the API: they are read from the stream service, as any reader does.

The service is another process (``stream.service``), so that however long a search takes, neither
the broker nor an act of an operator waits for it. One search is made at a time.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, final

import msgspec

from penstock.admin.bounded_executor import BoundedExecutor
from penstock.admin.parameters import Mistake
from penstock.auth.tokens import OWN_FILE
from penstock.control.admin_requests import LIMIT_MAX, Cursor, Limit, Page, Seconds
from penstock.control.client import RequestRefused
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.stream.event_rows import Position

SERVICE_S: Final = 2.0
"""How long the stream service may be away, seconds."""

SEARCH_S: Final = 3.0
"""How long a search may take; the answer then has what was found, and a cursor. Seconds."""

OFF: Final = "the broker writes no events: set events.enabled, and restart it (docs/audit.md)"

_CURSOR: Final = re.compile(r"(\d{1,19})\.(\d{1,9})")
_KINDS_MAX: Final = 32


class ListEvents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """List events, the newest first.

    Attributes:
        kind: only these kinds, with commas between; empty: all.
        client_id: pattern of the client identifier; None: any, and events of no client.
        since: when the oldest may have happened, seconds since the Unix epoch.
        until: when the newest happened before, the same; 0: now.
        cursor: of the answer before.
        limit: how many at most.
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
        data_dir: the broker's data directory, which has its own token for the service.
        address: HOST:PORT of the service; empty: there are no events.
        uses_tls: whether the service speaks TLS.
    """

    def __init__(self, data_dir: Path, address: str, uses_tls: bool) -> None:
        self._token_file = data_dir / OWN_FILE
        self._address = address
        self._uses_tls = uses_tls
        self._searches = BoundedExecutor("searches for events", 1)

    async def listed(self, asked: ListEvents) -> Page:
        """Return a page of events.

        Raises:
            Mistake: the request cannot be understood.
            RequestRefused: there are no events.
            PenstockError: the stream service does not answer, or too many ask.
        """
        kinds = _kinds(asked.kind)
        before = _position(asked.cursor)
        if not 1 <= asked.limit <= LIMIT_MAX:
            raise Mistake(f"a page has 1 to {LIMIT_MAX} entries, not {asked.limit}")
        if not self._address:
            raise RequestRefused(OFF, False)
        return await self._searches.run(lambda: self._search(asked, kinds, before))

    def _search(self, asked: ListEvents, kinds: list[str], before: Position | None) -> Page:
        """Return a page of events, read from the log; in the thread of searches."""
        # Arrow is large; who never asks for events need not load it.
        from penstock.stream.client import StreamClient
        from penstock.stream.credentials import Credentials
        from penstock.stream.event_rows import newest_events

        until_s = asked.until or time.time() + 1.0
        within_us = (int(asked.since * 1_000_000), int(until_s * 1_000_000))
        has_token = os.access(self._token_file, os.R_OK)
        credentials = Credentials(
            tls=self._uses_tls,
            token_file=str(self._token_file) if has_token else "",
            verifies_service=False,
        )
        with StreamClient(self._address, SERVICE_S, credentials) as stream:
            try:
                found, rest = newest_events(
                    stream, kinds, asked.client_id, within_us, before, asked.limit, SEARCH_S
                )
            except ValueError as error:
                raise Mistake(str(error)) from None
            except ConfigError as error:
                raise RequestRefused(str(error), False) from None
        entries = [event.entry for event in found]
        return Page(entries, "" if rest is None else f"{rest[0]}.{rest[1]}")


def _kinds(text: str) -> list[str]:
    kinds = [kind for kind in text.split(",") if kind]
    if len(kinds) > _KINDS_MAX:
        raise Mistake(f"at most {_KINDS_MAX} kinds may be named")
    return kinds


def _position(cursor: str) -> Position | None:
    if not cursor:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise Mistake(f"{cursor!r} is no cursor of a list of events")
    return int(found[1]), int(found[2])
