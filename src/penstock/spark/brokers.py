"""The brokers of a query: connections to their stream services, and the spans of their logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import ConfigError
from penstock.spark.offsets import ONLY, LogPosition
from penstock.spark.options import SourceOptions
from penstock.spark.range_limits import RangeLimit, SpecificOffset, resolve
from penstock.stream.client import StreamClient, StreamOffsets


class Brokers:
    """Connections by server, made when they are needed; pickled without them.

    Every call waits for a broker that is away, for up to `connectTimeoutSeconds`.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._clients: dict[str, StreamClient] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_clients": {}}

    def log(
        self,
        server: str,
        connect_timeout_s: float | None = None,
        at_least: LogPosition | None = None,
    ) -> StreamOffsets:
        """Return the offsets that the stream spans at a server now.

        Args:
            server: its name in positions.
            connect_timeout_s: instead of the option's.
            at_least: the log is known to go so far: a replica that lags is not believed.
        """
        known = None if at_least is None else (at_least.epoch, at_least.offset)
        return self.client(server).offsets(self._options.stream, connect_timeout_s, known)

    def logs(
        self,
        connect_timeout_s: float | None = None,
        at_least: Mapping[str, LogPosition] | None = None,
    ) -> dict[str, StreamOffsets]:
        """Return the offsets that the stream spans at each server now; arguments as of `log`.

        Raises:
            ConfigError: two servers have the same log.
        """
        known = at_least or {}
        logs = {
            server: self.log(server, connect_timeout_s, known.get(server))
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

    def find(self, server: str, wanted: RangeLimit, log: StreamOffsets) -> LogPosition:
        """Return the position of a range limit in the log of a server."""
        if isinstance(wanted, SpecificOffset) and wanted.offset > log.latest:
            known = LogPosition(wanted.epoch or log.epoch, wanted.offset)
            log = self.log(server, at_least=known)  # another replica may have it
        return resolve(wanted, log, self.client(server))

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
    return "" if server == ONLY else f"{server}: "
