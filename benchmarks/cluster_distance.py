"""What a round trip between the machines of a cluster costs: acknowledgements a second, by window.

    python -m benchmarks.cluster_distance --round-trip 0 50 200 500 1000

Three NATS servers and a member run on this machine. Proxies pass what servers send each other, and
what the member sends to the other two servers, with half of the round trip in each direction.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from penstock.protocol.kinds import V5
from penstock.protocol.packets import Puback, Publish
from tests.support.broker import Address
from tests.support.members import Members
from tests.support.nats_cluster import NatsCluster
from tests.support.raw_client import RawClient

ALONE: Final = 10
WINDOW: Final = 100


@final
class Distance:
    """A proxy that passes bytes on after a time.

    Args:
        target: where it connects to.
        delay_s: seconds that each byte takes, each way.
    """

    def __init__(self, target: Address, delay_s: float) -> None:
        self._target = target
        self._delay_s = delay_s
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._join, "127.0.0.1", 0)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                self._loop.call_later(self._delay_s, writer.write, data)
        self._loop.call_later(self._delay_s, writer.close)


@contextlib.contextmanager
def far_cluster(directory: Path, round_trip_s: float) -> Iterator[Members]:
    """A member whose servers are so far from each other."""
    servers = NatsCluster(directory / "nats")
    try:
        routes = [
            Distance(("127.0.0.1", server.route_port), round_trip_s / 2)
            for server in servers.servers
        ]
        listed = ", ".join(f"nats://127.0.0.1:{route.port}" for route in routes)
        for server, route in zip(servers.servers, routes, strict=True):
            path = Path(server.command[-1])
            head, _, rest = path.read_text().partition(" routes: [")
            _, _, tail = rest.partition("]")
            told = f' advertise: "127.0.0.1:{route.port}", routes: [{listed}]'
            path.write_text(f"{head}{told}{tail}")
        servers.start()
        near, *others = servers.servers
        urls = [near.url]
        urls += [
            f"nats://127.0.0.1:{Distance(('127.0.0.1', other.port), round_trip_s / 2).port}"
            for other in others
        ]
        settings = {"cluster.name": "far", "cluster.server_name": near.name}
        members = Members(directory, urls, settings, ("a",))
        try:
            yield members
        finally:
            members.close()
    finally:
        servers.close()


def measured(address: Address) -> tuple[float, float]:
    """Acknowledgements a second: of a publisher with one message under way, and with a window."""
    with RawClient(address, V5) as client:
        client.connect("far")
        client.publish("t", b"first", 1)
        began_s = time.monotonic()
        for _ in range(ALONE):
            client.publish("t", b"alone", 1)
        alone = ALONE / (time.monotonic() - began_s)
        began_s = time.monotonic()
        for number in range(1, WINDOW + 1):
            client.send(Publish("t", b"one of many", 1, packet_id=number))
        for _ in range(WINDOW):
            client.expect(Puback)
        return alone, WINDOW / (time.monotonic() - began_s)


def main() -> None:
    """Measure, and print a line for each round trip."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--round-trip", type=float, nargs="+", default=[0, 50, 200, 500], help="ms")
    print(f"{'round trip':>10}{'one under way':>16}{'window ' + str(WINDOW):>14}  acks/s")
    for round_trip_ms in parser.parse_args().round_trip:
        with (
            tempfile.TemporaryDirectory() as directory,
            far_cluster(Path(directory), round_trip_ms / 1000) as members,
        ):
            alone, many = measured(members.start().address)
            state = next(iter(members.all.values())).state()
            append_s = max(member.append_s for member in state.members)
        print(
            f"{round_trip_ms:>8.0f} ms{alone:>16.1f}{many:>14.1f}  an append {append_s:.2f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
