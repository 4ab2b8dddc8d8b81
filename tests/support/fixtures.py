"""Brokers and clients for tests; whatever a test started ends with it, also when it fails."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import pytest

from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Will
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.raw_client import RawClient

VERSIONS: Final = (V31, V311, V5)
NEWEST_FIRST: Final = (
    V5,
    *(
        pytest.param(version, marks=pytest.mark.torture("the same in an older version"))
        for version in (V311, V31)
    ),
)
"""All versions, for a test that starts a broker for each: `make test` asks for the newest."""

_numbers = itertools.count(1)


@contextmanager
def running_broker(
    directory: Path,
    settings: Mapping[str, object] | None = None,
    persistence: str = "file",
    stream: bool = False,
) -> Iterator[Broker]:
    """A started broker; see ``Broker`` for the arguments."""
    broker = Broker(directory, settings, persistence, stream=stream)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@final
class Clients:
    """Raw clients of one test."""

    def __init__(self) -> None:
        self._opened: list[RawClient] = []

    def open(self, broker: Broker, version: int = V5) -> RawClient:
        """A connection without CONNECT."""
        client = RawClient(broker.address, version)
        self._opened.append(client)
        return client

    def join(
        self,
        broker: Broker,
        client_id: str,
        version: int = V5,
        *,
        clean_start: bool = True,
        keep_alive_s: int = 0,
        will: Will | None = None,
        expiry_s: int | None = None,
        properties: Properties | None = None,
        present: bool = False,
    ) -> RawClient:
        """A connected client; ``present`` is what CONNACK must say of an earlier session.

        MQTT 3.1 has no word for it there.
        """
        client = self.open(broker, version)
        answer = client.connect(client_id, clean_start, keep_alive_s, will, expiry_s, properties)
        assert answer.reason_code == 0, answer
        assert answer.session_present is (present and version != V31), answer
        return client

    def close(self) -> None:
        """Drop every connection."""
        for client in self._opened:
            client.drop()


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker with default settings, for tests that keep to their own names."""
    with running_broker(tmp_path_factory.mktemp("shared")) as broker:
        yield broker


@pytest.fixture
def clients() -> Iterator[Clients]:
    """Raw clients that end with the test."""
    opened = Clients()
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def name() -> str:
    """A name no other test uses, for client identifiers and topics; short enough for MQTT 3.1."""
    return f"t{next(_numbers)}"


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A file broker of this test's own, to be killed and started again; without streams."""
    with running_broker(tmp_path) as broker:
        yield broker
