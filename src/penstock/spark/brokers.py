"""The brokers of a query: connections to their stream services, and the offsets of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import ConfigError
from penstock.spark.offsets import SINGLE_SERVER, LogPosition
from penstock.spark.options import SourceOptions
from penstock.spark.range_limits import RangeLimit, SpecificOffset, find_position
from penstock.stream.client import StreamClient, StreamOffsets


class BrokerConnections:
    """Connections to the brokers, by server, opened at their first use and not pickled.

    Every call waits up to `connectTimeoutSeconds` for a broker that does not answer.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clients: dict[str, StreamClient] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clients": {}}

    def read_offsets(
        self,
        server: str,
        connect_timeout_s: float | None = None,
        at_least: LogPosition | None = None,
    ) -> StreamOffsets:
        """Return the present first and last offset of the stream at a server.

        Args:
            server: the key of the server in positions.
            connect_timeout_s: replaces the option `connectTimeoutSeconds`, in seconds.
            at_least: a position that the log is known to have: the answer of a replica that is
                behind it is not used.
        """
        known = None if at_least is None else (at_least.epoch, at_least.offset)
        return self.client(server).offsets(self._options.stream, connect_timeout_s, known)

    def read_all_offsets(
        self,
        connect_timeout_s: float | None = None,
        at_least: Mapping[str, LogPosition] | None = None,
    ) -> dict[str, StreamOffsets]:
        """Return the present first and last offset of the stream at each server.

        Args:
            connect_timeout_s: as for `read_offsets`.
            at_least: such a position for each server that has one.

        Raises:
            ConfigError: two servers have the same log.
        """
        known = at_least or {}
        logs = {
            server: self.read_offsets(server, connect_timeout_s, known.get(server))
            for server in self._options.servers
        }
        by_epoch: dict[str, str] = {}
        for server, log in logs.items():
            other = by_epoch.setdefault(log.epoch, server)
            if other != server:
                raise ConfigError(
                    f"option servers: {other} and {server} have the same log, which would be read"
                    " twice: the machines of a cluster go into server"
                )
        return logs

    def marked(self, server: str, position: LogPosition, log: StreamOffsets) -> LogPosition:
        """Return a position of the present epoch with its mark; `log` was read lately."""
        if (position.epoch, position.offset) == (log.epoch, log.latest):
            return replace(position, mark=log.mark)
        stream = self._options.stream
        mark = self.client(server).mark_at(stream, position.epoch, position.offset)
        return replace(position, mark=mark)

    def find_position(self, server: str, limit: RangeLimit, log: StreamOffsets) -> LogPosition:
        """Return the position of a range limit in the log of a server."""
        if isinstance(limit, SpecificOffset) and limit.offset > log.latest:
            known = LogPosition(limit.epoch or log.epoch, limit.offset)
            log = self.read_offsets(server, at_least=known)  # another replica may have it
        return find_position(limit, log, self.client(server))

    def client(self, server: str) -> StreamClient:
        """Return the connection to a server."""
        if server not in self._clients:
            self._clients[server] = connect(self._options.servers[server], self._options)
        return self._clients[server]

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()


def connect(address: str, options: SourceOptions) -> StreamClient:
    """Return a connection to the stream services of one log, by the options."""
    return StreamClient(address, options.connect_timeout_s, options.credentials)


def server_prefix(server: str) -> str:
    """Return the beginning of an error about one of several brokers."""
    return "" if server == SINGLE_SERVER else f"{server}: "
