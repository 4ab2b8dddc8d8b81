"""The clients of a run: connect all of them, and track which have lost their connection.

::

      opened, 50 at a time ─▶ all connected ── one is lost ─▶ it dials again ─▶ reconnections + 1
                                                     ╰── for longer than ``patience_s``: broker lost
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final, final

from penstock.client import Client, Status
from penstock.client.options import Settings
from penstock.errors import PenstockError

_AT_ONCE_MAX: Final = 50
_SESSION_KEPT_S: Final = 3600
_RECONNECT_S_MIN: Final = 0.1
_RECONNECT_S_MAX: Final = 1.0


class BrokerLost(PenstockError):
    """Raised when a connection could not be made again, or no message came, for too long."""


@final
class Connections:
    """The clients of one run.

    Args:
        url: the broker's address.
        settings: options for all clients: login, TLS, version.
        keeps_sessions: the broker keeps their sessions while they are away, until the run ends.
        patience_s: how long a connection may be missing.

    Attributes:
        reconnections: how often a client connected again.
        patience_s: how long a connection may be missing, in seconds.
    """

    def __init__(
        self, url: str, settings: Settings, *, keeps_sessions: bool, patience_s: float
    ) -> None:
        self.url = url
        self.reconnections = 0
        self._settings = settings
        self.keeps_sessions = keeps_sessions
        self.patience_s = patience_s
        self._clients: list[Client] = []
        self._away_since_s: dict[str, float] = {}  # by client identifier, oldest first
        self._error = ""

    def add(self, client_id: str, further: Settings) -> Client:
        """Add one more client, still to be opened, and return it.

        Raises:
            ConfigError: a setting is not valid.
        """
        settings: Settings = {
            **self._settings,
            **further,
            "client_id": client_id,
            "clean_start": not self.keeps_sessions,
            "session_expiry_s": _SESSION_KEPT_S if self.keeps_sessions else 0,
            "reconnect_s_min": _RECONNECT_S_MIN,
            "reconnect_s_max": _RECONNECT_S_MAX,
            "status_changed": partial(self._changed, client_id),
        }
        client = Client(self.url, **settings)
        self._clients.append(client)
        return client

    async def open(self) -> None:
        """Connect all clients.

        Raises:
            ConnectFailed: one of them could not connect.
        """
        for first in range(0, len(self._clients), _AT_ONCE_MAX):
            some = self._clients[first : first + _AT_ONCE_MAX]
            await asyncio.gather(*(client.open() for client in some))

    async def close(self) -> None:
        """Disconnect all clients; the broker forgets their sessions."""
        for first in range(0, len(self._clients), _AT_ONCE_MAX):
            some = self._clients[first : first + _AT_ONCE_MAX]
            await asyncio.gather(*(self._end(client) for client in some))

    async def _end(self, client: Client) -> None:
        has_session = self.keeps_sessions and client.is_connected
        await client.close(drain=False)
        if has_session:  # a clean start ends the stored session
            settings: Settings = {
                **self._settings,
                "client_id": client.client_id,
                "session_expiry_s": 0,
            }
            forgetful = Client(self.url, **settings)
            try:
                await forgetful.open()
            except PenstockError:
                return  # the broker is gone: the session expires by itself
            await forgetful.close()

    @property
    def away(self) -> int:
        """The number of clients without a connection."""
        return len(self._away_since_s)

    def check(self) -> None:
        """Check that lost connections come back.

        Raises:
            BrokerLost: one has been missing for more than ``patience_s``.
        """
        since_s = next(iter(self._away_since_s.values()), None)
        if since_s is not None and time.monotonic() - since_s > self.patience_s:
            raise BrokerLost(
                f"{self.url}: {self._error or 'no answer'}; {self.away} of {len(self._clients)}"
                f" clients had no connection, the first for {self.patience_s:g} s"
            )

    def _changed(self, client_id: str, status: Status) -> None:
        if status.state == "connected":
            if self._away_since_s.pop(client_id, None) is not None:
                self.reconnections += 1
        elif status.state == "waiting":
            self._away_since_s.setdefault(client_id, time.monotonic())
            self._error = status.error
