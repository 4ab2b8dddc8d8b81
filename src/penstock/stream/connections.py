"""The connections of a client to the stream services of a log, one for each address.

A connection is opened when it is first needed; token and certificates are read from their files
then. A connection that failed is closed, so that the next attempt opens a new one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import pyarrow.flight as flight

from penstock.stream.credentials import Credentials

SILENT_S_MAX: Final = 310.0
"""Seconds without data in a call after which gRPC pings the service. gRPC's servers close the
connection of a client that pings more often than every 300 s
(https://grpc.io/docs/guides/keepalive/)."""

ECHO_S_MAX: Final = 20.0
"""Longest wait for the answer to such a ping, in seconds."""

CONNECT_S_MAX: Final = 3.0
"""Longest attempt to connect if the log has several addresses, in seconds."""

_CHANNEL: Final = [
    ("grpc.enable_http_proxy", 0),  # an HTTP proxy does not forward to the broker
    ("grpc.use_local_subchannel_pool", 1),  # a new client opens a new TCP connection
    ("grpc.keepalive_time_ms", int(SILENT_S_MAX * 1000)),
    ("grpc.keepalive_timeout_ms", int(ECHO_S_MAX * 1000)),
    ("grpc.http2.ping_timeout_ms", int(ECHO_S_MAX * 1000)),
]
_REPLICA_CHANNEL: Final = [
    ("grpc.min_reconnect_backoff_ms", int(CONNECT_S_MAX * 1000)),  # also limits an attempt
]


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection to one service.

    Attributes:
        flight: the Flight client.
        headers: the headers of each call; they contain the token.
    """

    flight: flight.FlightClient
    headers: list[tuple[bytes, bytes]]

    def options(self, timeout_s: float | None = None) -> flight.FlightCallOptions:
        """Return the options of a call that may take ``timeout_s`` seconds; None for no limit."""
        return flight.FlightCallOptions(timeout=timeout_s, headers=self.headers)


@final
class Connections:
    """The connections to the services of one log.

    Args:
        addresses: HOST:PORT of each service.
        credentials: token, TLS settings and certificates, the same for all services.
    """

    def __init__(self, addresses: Sequence[str], credentials: Credentials) -> None:
        self._credentials = credentials
        self._channel = _CHANNEL + (_REPLICA_CHANNEL if len(addresses) > 1 else [])
        self._by_address: dict[str, Connection] = {}

    def get(self, address: str) -> Connection:
        """Return the connection to the service at ``address``; open it if there is none.

        Raises:
            ConfigError: a file of the credentials cannot be used.
        """
        found = self._by_address.get(address)
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
            found = self._by_address[address] = Connection(client, headers)
        return found

    def close(self, address: str) -> None:
        """Close the connection to the service at ``address``; ``get`` opens a new one."""
        connection = self._by_address.pop(address, None)
        if connection is not None:
            connection.flight.close()

    def close_all(self) -> None:
        """Close all connections."""
        for address in list(self._by_address):
            self.close(address)
