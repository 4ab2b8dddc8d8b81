"""The clients of a run: connect all of them, and track which have lost their connection.

::

      opened, 50 at a time ─▶ all connected ── one is lost ─▶ it reconnects ─▶ reconnections + 1
                                                    ╰── not within ``patience_s`` ─▶ BrokerLost
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final, final

from penstock.client import Client, Status
from penstock.client.options import Settings
from penstock.errors import PenstockError

_BATCH_CLIENTS: Final = 50  # clients that connect or disconnect at the same time
_SESSION_EXPIRY_S: Final = 3600
_RECONNECT_S_MIN: Final = 0.1
_RECONNECT_S_MAX: Final = 1.0


class BrokerLost(PenstockError):
    """Raised when a client could not reconnect, or no message came, for too long."""


@final
class Connections:
    """The clients of one run.

    Args:
        url: the broker's address.
        settings: options for all clients: login, TLS, version.
        keeps_sessions: whether the broker keeps the sessions of clients that lose their
            connection, until the run ends.
        patience_s: how long a client may be without a connection, in seconds.

    Attributes:
        reconnections: how often clients have connected again.
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
        self._disconnected_since_s: dict[str, float] = {}  # by client identifier, oldest first
        self._last_error = ""

    def add(self, client_id: str, client_settings: Settings) -> Client:
        """Add a client with further settings of its own, and return it; ``open`` connects it.

        Raises:
            ConfigError: a setting is not valid.
        """
        settings: Settings = {
            **self._settings,
            **client_settings,
            "client_id": client_id,
            "clean_start": not self.keeps_sessions,
            "session_expiry_s": _SESSION_EXPIRY_S if self.keeps_sessions else 0,
            "reconnect_s_min": _RECONNECT_S_MIN,
            "reconnect_s_max": _RECONNECT_S_MAX,
            "status_changed": partial(self._on_status_change, client_id),
        }
        client = Client(self.url, **settings)
        self._clients.append(client)
        return client

    async def open(self) -> None:
        """Connect all clients.

        Raises:
            ConnectFailed: a client could not connect.
        """
        for first in range(0, len(self._clients), _BATCH_CLIENTS):
            batch = self._clients[first : first + _BATCH_CLIENTS]
            await asyncio.gather(*(client.open() for client in batch))

    async def close(self) -> None:
        """Disconnect all clients; the broker forgets their sessions."""
        for first in range(0, len(self._clients), _BATCH_CLIENTS):
            batch = self._clients[first : first + _BATCH_CLIENTS]
            await asyncio.gather(*(self._close_client(client) for client in batch))

    async def _close_client(self, client: Client) -> None:
        has_session = self.keeps_sessions and client.is_connected
        await client.close(drain=False)
        if has_session:  # a clean start ends the stored session
            settings: Settings = {
                **self._settings,
                "client_id": client.client_id,
                "session_expiry_s": 0,
            }
            clean_start = Client(self.url, **settings)
            try:
                await clean_start.open()
            except PenstockError:
                return  # the broker is gone: the session expires by itself
            await clean_start.close()

    @property
    def disconnected_count(self) -> int:
        """The number of clients that have lost their connection and not reconnected yet."""
        return len(self._disconnected_since_s)

    def check(self) -> None:
        """Check that clients which lost their connection reconnect in time.

        Raises:
            BrokerLost: a client has had no connection for more than ``patience_s``.
        """
        since_s = next(iter(self._disconnected_since_s.values()), None)
        if since_s is not None and time.monotonic() - since_s > self.patience_s:
            raise BrokerLost(
                f"{self.url}: {self._last_error or 'no answer'}; {self.disconnected_count} of"
                f" {len(self._clients)} clients had no connection, the first for"
                f" {self.patience_s:g} s"
            )

    def _on_status_change(self, client_id: str, status: Status) -> None:
        if status.state == "connected":
            if self._disconnected_since_s.pop(client_id, None) is not None:
                self.reconnections += 1
        elif status.state == "waiting":
            self._disconnected_since_s.setdefault(client_id, time.monotonic())
            self._last_error = status.error
