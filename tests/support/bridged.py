"""Bridges for tests: many in one broker, each with a line of its own to the remote broker.

::

      local (Penstock) ─┬─ bridge b1 ── fault proxy ──┬─▶ remote (Penstock)
                        ├─ bridge b2 ── fault proxy ──┘
                        ╰─ bridge b3 ── fault proxy ────▶ Mosquitto

A test says by its mark which bridge it needs, and gets that bridge, its topics and its proxy as
``line``. A broker takes seconds to start, so those of one file share theirs: all their bridges are
in the settings of one broker (one for each ``persistence``), started when the first test asks
for it. No test touches the topics, the bridge or the proxy of another. Who kills or reconfigures a
broker starts its own (``start``).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar, final

import pytest

from penstock.protocol.kinds import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, packet_name
from tests.support.broker import Address, Broker
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fault_proxy import FaultProxy
from tests.support.fixtures import running_broker
from tests.support.mosquitto_broker import IS_INSTALLED, Mosquitto, needed
from tests.support.raw_client import RawClient
from tests.support.seen_packets import DOWN

SOON_S: Final = 0.1  # between two attempts
STATUS_S: Final = 0.25  # between two updates of what a bridge tells

_numbers = itertools.count(1)

Start = Callable[..., Broker]
Came = TypeVar("Came", bytes, str)


def bridge(*addresses: Address, **settings: Any) -> dict[str, Any]:
    """The settings of one bridge, ``up`` unless named, that hands on out/# and takes in/#."""
    chosen: dict[str, Any] = {
        "name": "up",
        "addresses": [f"mqtt://{host}:{port}" for host, port in addresses],
        "forwards": [
            {"topic_filters": ["out/#"], "direction": "out"},
            {"topic_filters": ["in/#"], "direction": "in"},
        ],
        "ends_at_message_max": 0,  # tests cut the line at one message as often as they like
        "reconnect_s_min": SOON_S,
        "reconnect_s_max": SOON_S,
    }
    return chosen | settings


def with_bridges(*bridges: dict[str, Any], **settings: object) -> dict[str, object]:
    """Settings of a broker that has these bridges."""
    return {
        "bridge.remotes": json.dumps(bridges),
        "status.sys_interval_s": STATUS_S,
    } | settings


@contextlib.contextmanager
def client(
    at: Broker | Address, name: str, *filters: str, kept: bool = False
) -> Iterator[RawClient]:
    """A connected client with these subscriptions; ``kept``: its session outlives it."""
    with RawClient(at.address if isinstance(at, Broker) else at) as joined:
        answer = joined.connect(name, clean_start=not kept, expiry_s=3600 if kept else None)
        if filters and not answer.session_present:
            joined.subscribe(*filters)
        yield joined


def connected(broker: Broker, name: str = "up", times: int = 1) -> None:
    """Wait until a bridge of ``broker`` has connected as often."""
    said = f"bridge {name}: connected"
    wait_for(f"bridge {name}", lambda: broker.log().count(said) >= times)


def status(broker: Broker, topic: str, wanted: bytes | None = None, name: str = "up") -> bytes:
    """What ``$SYS`` tells of a bridge, or waits until it is what is wanted."""
    topic = f"$SYS/broker/bridge/{name}/{topic}"
    with client(broker, f"asks for {topic}", topic) as asking:
        while True:
            told = asking.take().payload
            if wanted is None or told == wanted:
                return told


def numbered(count: int, begin: int = 0) -> list[bytes]:
    """Payloads: the numbers from ``begin`` on."""
    return [b"%d" % number for number in range(begin, begin + count)]


def first_of_each(payloads: Iterable[Came]) -> list[Came]:
    """What came, without what came again."""
    return list(dict.fromkeys(payloads))


@final
class Line:
    """One bridge of a test, from ``local`` through ``proxy`` to ``remote``.

    It hands ``NAME/out/#`` on and takes ``NAME/in/#``.
    """

    def __init__(self, name: str, leads_to: str, remote: Address, proxy: FaultProxy) -> None:
        self.name = name
        self.leads_to = leads_to  # "penstock", "mosquitto"
        self.remote = remote
        self.proxy = proxy
        self.local_broker: Broker | None = None
        self.out = f"{name}/out"
        self.into = f"{name}/in"

    @property
    def local(self) -> Broker:
        """The broker that has the bridge."""
        assert self.local_broker is not None
        return self.local_broker

    def near(
        self, *filters: str, kept: bool = False
    ) -> contextlib.AbstractContextManager[RawClient]:
        """A client of the local broker."""
        return client(self.local, f"{self.name}-near", *filters, kept=kept)

    def far(
        self, *filters: str, kept: bool = False
    ) -> contextlib.AbstractContextManager[RawClient]:
        """A client of the remote broker, not through the proxy; it gets what the bridge brings."""
        return client(self.remote, f"{self.name}-far", *(filters or (self.out,)), kept=kept)

    def publish(self, qos: int, *payloads: bytes) -> None:
        """Publish at the local broker, one after the other, each acknowledged."""
        with client(self.local, f"{self.name}-publishes") as publisher:
            for payload in payloads:
                publisher.publish(self.out, payload, qos)
            publisher.settle()

    def connected(self, times: int = 1) -> None:
        """Wait until the bridge has connected as often, from the beginning."""
        connected(self.local, self.name, times)

    def go_down(self) -> None:
        """The remote broker cannot be reached any more, and the bridge has noticed."""
        self.proxy.refuse()
        self.proxy.reset()
        self.told("connected", "0")

    def go_up(self, remote: Address | None = None) -> None:
        """It can be reached again; or another one, in place of that one."""
        if remote is not None:
            self.remote = self.proxy.target = remote
        self.proxy.accept()

    def told(self, topic: str, value: str) -> None:
        """Wait until ``$SYS`` tells this value of the bridge; ``connected`` is 1 or 0."""
        where = f"bridge/{self.name}/{topic}"
        if topic == "connected":
            self.updated()
            where = f"connection/{self.name}/state"
        with client(self.local, f"{self.name}-asks", f"$SYS/broker/{where}") as asking:
            while asking.take().payload.decode() != value:
                pass

    def updated(self) -> None:
        """Wait until ``$SYS`` is of a later moment than this: it may hold what was true before."""
        with client(self.local, f"{self.name}-waits", "$SYS/broker/messages/sent") as waiting:
            waiting.take_payloads(2)  # to be told that it changed changes it

    def tells(self, topic: str) -> str:
        """What ``$SYS`` tells of the bridge now."""
        return status(self.local, topic, name=self.name).decode()

    def tiers(self, queue: int, in_flight: int) -> None:
        """Wait until so much is in tier 1, the queue, and in tier 2, in flight."""
        self.updated()
        self.told("queue/messages", str(queue))
        self.told("inflight/messages", str(in_flight))

    def published_after_pubrel(self) -> list[bytes]:
        """Payloads that the remote broker published again after it had sent their PUBREL.

        That is forbidden [MQTT-4.3.3-6]: here they are new messages, and come in twice. Mosquitto
        does it (2.0.11 to 2.1.2, ``db__message_reconnect_reset_outgoing``): where a connection ends
        before its PUBREL was sent again, the next one begins with PUBLISH.
        """
        at: dict[int, bytes] = {}
        released: dict[int, bytes] = {}
        found: list[bytes] = []
        for packet in list(self.proxy.seen):
            if packet.way == DOWN and packet.kind == PUBREL:
                released[packet.packet_id] = at.get(packet.packet_id, b"")
            elif packet.way == DOWN and packet.kind == PUBLISH and packet.qos == 2:
                at[packet.packet_id] = packet.payload
                if packet.dup and released.get(packet.packet_id) == packet.payload:
                    found.append(packet.payload)
        return found

    def all_gone(self) -> None:
        """Wait until nothing waits and nothing is in flight."""
        self.tiers(0, 0)


@final
class Lines:
    """The lines of one file, and the brokers that they share.

    Args:
        directory: an empty directory.
        remote: the broker they lead to, unless one is to lead to Mosquitto.
        wanted: for each test that wants one, by its node id: what its mark says.
    """

    def __init__(self, directory: Path, remote: Broker, wanted: dict[str, dict[str, Any]]) -> None:
        self._directory = directory
        self._remote = remote
        self._open = contextlib.ExitStack()
        self._wanted = wanted
        self._names = {test: f"b{next(_numbers)}" for test in wanted}
        self._lines: dict[str, Line] = {}
        self._mosquitto: Mosquitto | None = None

    def of(self, test: str) -> Line:
        """The line of one test; its broker runs."""
        if test not in self._lines:
            self._start(self._wanted[test].get("persistence", "file"))
        return self._lines[test]

    def _start(self, persistence: str) -> None:
        bridges: list[dict[str, Any]] = []
        lines: list[Line] = []
        for test, marked in self._wanted.items():
            settings = {"persistence": "file", "remote": "penstock", "port": "open"} | marked
            if settings.pop("persistence") != persistence:
                continue
            leads_to = settings.pop("remote")
            remote = self._address(leads_to)
            proxy = self._open.enter_context(FaultProxy(remote))
            if settings.pop("port") == "closed":
                proxy.refuse()
            line = Line(self._names[test], leads_to, remote, proxy)
            lines.append(line)
            self._lines[test] = line
            forwards = [
                {"topic_filters": [f"{line.out}/#"], "direction": "out"},
                {"topic_filters": [f"{line.into}/#"], "direction": "in"},
            ]
            settings = {"name": line.name, "forwards": forwards} | settings
            settings = json.loads(json.dumps(settings).replace("NAME", line.name))
            bridges.append(bridge(proxy.address, **settings))
        directory = self._directory / persistence
        directory.mkdir()
        local = self._open.enter_context(
            running_broker(directory, with_bridges(*bridges), persistence)
        )
        for line in lines:
            line.local_broker = local

    def _address(self, remote: str) -> Address:
        if remote == "penstock":
            return self._remote.address
        if self._mosquitto is None:
            directory = self._directory / "mosquitto"
            directory.mkdir()
            self._mosquitto = Mosquitto(directory)
            self._open.callback(self._mosquitto.close)
            self._mosquitto.start()
        return self._mosquitto.address

    def close(self) -> None:
        """End the broker and all proxies."""
        self._open.close()


def is_left_out(item: pytest.Item) -> bool:
    """Whether a test is not run, for want of Mosquitto."""
    return not IS_INSTALLED and needed.mark in item.iter_markers("skipif")


@pytest.fixture(scope="module")
def lines(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, shared_broker: Broker
) -> Iterator[Lines]:
    """All that this file's tests ask for by ``@pytest.mark.bridge``."""
    wanted: dict[str, dict[str, Any]] = {}
    for item in request.session.items:
        marks = list(item.iter_markers("bridge"))
        if item.path == request.path and marks and not is_left_out(item):
            wanted[item.nodeid] = {}
            for mark in reversed(marks):  # the closest counts
                wanted[item.nodeid] |= mark.kwargs
    opened = Lines(tmp_path_factory.mktemp("bridged"), shared_broker, wanted)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def line(request: pytest.FixtureRequest, lines: Lines) -> Line:
    """The line that the mark of this test describes.

    ``@pytest.mark.bridge(...)`` takes the settings of a bridge, in which NAME stands for the name
    of the line, and of the line: ``persistence`` of the local broker ("file", "memory"),
    ``remote`` ("penstock", "mosquitto"), ``port`` ("open", "closed": the remote broker cannot be
    reached until ``Line.go_up``).
    """
    return lines.of(request.node.nodeid)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start one more broker with these settings."""
    with contextlib.ExitStack() as all_of_them:

        def start(settings: dict[str, object] | None = None, **others: Any) -> Broker:
            directory = tmp_path / str(len(list(tmp_path.iterdir())))
            directory.mkdir()
            return all_of_them.enter_context(running_broker(directory, settings, **others))

        yield start


def _each(setting: str, *values: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "line",
        [
            pytest.param(
                value,
                id=value,
                marks=[pytest.mark.bridge(**{setting: value})]
                + ([needed] if value == "mosquitto" else []),
            )
            for value in values
        ],
        indirect=True,
    )


each_mode: Final = _each("persistence", "file", "memory")
"""Marks a test that ``line`` comes with either persistence of the local broker."""

each_version: Final = _each("version", "3.1", "3.1.1", "5")
"""Marks a test that ``line`` speaks either version of MQTT."""

each_remote: Final = _each("remote", "penstock", "mosquitto")
"""Marks a test that ``line`` leads to either broker."""

_FLOW: Final = (PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP)


def drawn(line: Line, connection: int = 0) -> list[str]:
    """What went over the line for messages that go out, as the seed draws it: ``PUBLISH M1``,
    ``PUBACK M1 lost``, ``PUBLISH M1 DUP``; of one connection if it is named, counted among those
    that carried any of it: one may have been given up before, on a slow machine."""
    payloads: dict[int, str] = {}
    found: list[str] = []
    connections: list[int] = []
    for packet in list(line.proxy.seen):
        if packet.kind not in _FLOW:
            continue
        if packet.connection not in connections:
            connections.append(packet.connection)
        if packet.kind == PUBLISH:
            payloads[packet.packet_id] = packet.payload.decode()
        told = f"{packet_name(packet.kind)} {payloads[packet.packet_id]}"
        if packet.kind == PUBLISH and packet.dup:
            told += " DUP"
        if connection in (0, connections.index(packet.connection) + 1):
            found.append(told if packet.passed else f"{told} lost")
    return found


def assert_drawn(line: Line, expected: list[str], connection: int = 0) -> None:
    """What went over the line is as ``expected``: an acknowledgement may still be on its way."""
    ends_s = time.monotonic() + DEADLINE_S
    while len(drawn(line, connection)) < len(expected) and time.monotonic() < ends_s:
        time.sleep(0.01)
    assert drawn(line, connection) == expected
