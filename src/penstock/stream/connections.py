"""The connections of one client to the stream services of a log, one for each address.

A connection is made when it is first needed, and reads token and certificates from their files
then. One that failed is closed, so that the next attempt connects anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import pyarrow.flight as flight

from penstock.stream.credentials import Credentials

SILENT_S_MAX: Final = 310.0
"""After so long without data within a call gRPC pings the service. gRPC's
servers close the connection of a client that pings more often than every 300 s
(https://grpc.io/docs/guides/keepalive/)."""

ECHO_S_MAX: Final = 20.0
"""Longest wait for the answer to such a ping."""

CONNECT_S_MAX: Final = 3.0
"""Longest attempt to connect where the log has other addresses, too."""

_CHANNEL: Final = [
    ("grpc.enable_http_proxy", 0),  # a proxy for the web does not lead to the broker
    ("grpc.use_local_subchannel_pool", 1),  # a new attempt really connects anew
    ("grpc.keepalive_time_ms", int(SILENT_S_MAX * 1000)),
    ("grpc.keepalive_timeout_ms", int(ECHO_S_MAX * 1000)),
    ("grpc.http2.ping_timeout_ms", int(ECHO_S_MAX * 1000)),
]
_OF_SEVERAL: Final = [
    ("grpc.min_reconnect_backoff_ms", int(CONNECT_S_MAX * 1000)),  # it bounds an attempt, too
]


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to one service.

    Attributes:
        flight: the client of Flight.
        headers: sent with each call; they have the token.
    """

    flight: flight.FlightClient
    headers: list[tuple[bytes, bytes]]

    def options(self, timeout_s: float | None = None) -> flight.FlightCallOptions:
        """Return the options of a call that may take so long; None: as long as it takes."""
        return flight.FlightCallOptions(timeout=timeout_s, headers=self.headers)


@final
class Connections:
    """The connections to the services of one log.

    Args:
        addresses: HOST:PORT of each.
        credentials: token, TLS and certificates, the same for all.
    """

    def __init__(self, addresses: Sequence[str], credentials: Credentials) -> None:
        self._credentials = credentials
        self._channel = _CHANNEL + (_OF_SEVERAL if len(addresses) > 1 else [])
        self._open: dict[str, Connection] = {}

    def to(self, address: str) -> Connection:
        """Return the connection to a service.

        Raises:
            ConfigError: a file of the credentials cannot be used.
        """
        found = self._open.get(address)
        if found is None:
            credentials = self._credentials
            headers = credentials.headers()
            scheme = "grpc+tls" if credentials.tls else "grpc"
            certificate, key = credentials.pair()
            client = flight.FlightClient(
                f"{scheme}://{address}",
                tls_root_certs=credentials.root_certificates(),
                cert_chain=certificate,
                private_key=key,
                disable_server_verification=not credentials.verifies_service,
                generic_options=self._channel,
            )
            found = self._open[address] = Connection(client, headers)
        return found

    def close(self, address: str) -> None:
        """Close the connection to a service; the next call opens it again."""
        connection = self._open.pop(address, None)
        if connection is not None:
            connection.flight.close()

    def close_all(self) -> None:
        """Close all of them."""
        for address in list(self._open):
            self.close(address)
