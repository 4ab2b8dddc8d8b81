"""HTTP services that send a header byte by byte and never end: what waits for them, how long."""

import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, final

import pytest

from penstock.auth.http_requests import HttpMethod
from penstock.cli.top.broker_api import AdminApi
from penstock.cluster.etcd_client import EtcdClient, EtcdLogin, NoAnswer
from penstock.config.registry import RegistryDefinition
from penstock.control.metric_requests import Health, ReadHealth
from penstock.decoding.registry import Registry, RegistryUnavailable
from penstock.engine.values.access import Credentials
from penstock.errors import StoreUnavailable
from penstock.protocol import reasons
from penstock.protocol.packets import Connect
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fixtures import Clients, running_broker

LINE_S: Final = 0.05
LIMIT_S: Final = 0.5

Answer = TypeVar("Answer")


@final
class Dripping:
    """A server whose answer begins with a header that comes byte by byte, while ``is_sick``."""

    def __init__(self, body: bytes = b"{}") -> None:
        self.is_sick = True
        self.body = body
        self.asked = 0
        self.cut = 0  # connections that their client ended
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._accepted: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._listening.accept()
            except OSError:
                return
            self._accepted.append(accepted)
            self._threads.append(threading.Thread(target=self._serve, args=(accepted,)))
            self._threads[-1].start()

    def _serve(self, accepted: socket.socket) -> None:
        with accepted, accepted.makefile("rb") as received, suppress(OSError):
            while read_request(received):
                self.asked += 1
                accepted.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while self.is_sick and not self._ended.wait(LINE_S):
                    try:
                        accepted.sendall(b"1")
                    except OSError:
                        self.cut += 1
                        raise
                said = b"\r\nContent-Length: %d\r\n\r\n%b" % (len(self.body), self.body)
                accepted.sendall(said)

    @property
    def connections(self) -> int:
        """How many were accepted."""
        return len(self._accepted)

    def close(self) -> None:
        self._ended.set()
        for opened in (self._listening, *self._accepted):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in (self._accepting, *self._threads):
            thread.join(DEADLINE_S)


def read_request(received: BinaryIO) -> bool:
    """Read one request; whether there was one."""
    length = 0
    while line := received.readline():
        if line == b"\r\n":
            received.read(length)
            return True
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return False


@pytest.fixture
def sick() -> Iterator[Dripping]:
    server = Dripping()
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    """Threads for what would wait for ever."""
    with ThreadPoolExecutor(8) as threads:
        yield threads


def answer_of(sick: Dripping, asked: Future[Answer]) -> Answer:
    """What was answered while the server was still sick."""
    try:
        return asked.result(10 * LIMIT_S)
    finally:
        sick.close()


def test_a_login_service_that_drips_headers_is_given_up_in_time(
    sick: Dripping, others: ThreadPoolExecutor
) -> None:
    method = HttpMethod(sick.url, LIMIT_S, 0.0)
    answer = answer_of(sick, others.submit(method.check, Credentials("c", "dave", b"x")))
    assert answer.reason_code == reasons.SERVER_UNAVAILABLE
    assert "could not" in answer.detail


def test_a_connection_that_was_given_up_is_cut(sick: Dripping) -> None:
    HttpMethod(sick.url, LIMIT_S, 0.0).check(Credentials("c", "dave", b"x"))
    wait_for("the connection to be cut", lambda: sick.cut == 1)


def test_connections_to_a_service_are_used_again(sick: Dripping) -> None:
    sick.is_sick = False
    sick.body = b'{"result": "allow"}'
    method = HttpMethod(sick.url, DEADLINE_S, 0.0)
    for number in range(5):
        answer = method.check(Credentials(f"c{number}", "dave", b"x"))
        assert answer.reason_code == reasons.SUCCESS
    assert sick.asked == 5
    assert sick.connections == 1


def test_a_registry_that_drips_headers_is_given_up_in_time(
    sick: Dripping, others: ThreadPoolExecutor, tmp_path: Path
) -> None:
    definition = RegistryDefinition(url=sick.url, timeout_s=LIMIT_S, cache_dir=str(tmp_path))
    registry = Registry(definition)
    asked = others.submit(registry.schema_by_id, 7)
    with pytest.raises(RegistryUnavailable, match="takes longer than"):
        answer_of(sick, asked)


def test_an_admin_process_that_drips_headers_is_given_up_in_time(
    sick: Dripping, others: ThreadPoolExecutor
) -> None:
    api = AdminApi(sick.url, "token")
    asked = others.submit(api.ask, ReadHealth(), Health, LIMIT_S)
    with pytest.raises(StoreUnavailable, match=r"did not answer for 0\.5 s"):
        answer_of(sick, asked)


def test_a_server_of_etcd_that_drips_headers_is_given_up_in_time(
    sick: Dripping, others: ThreadPoolExecutor
) -> None:
    client = EtcdClient([sick.url], EtcdLogin(), ssl.create_default_context())
    asked = others.submit(client.change, "/v3/kv/put", {}, time.monotonic() + LIMIT_S)
    with pytest.raises(NoAnswer, match="does not answer"):
        answer_of(sick, asked)
    assert sick.asked == 1


def test_a_collector_that_drips_headers_is_noticed(
    sick: Dripping, others: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library limits each wait for a byte; metrics ended without a word."""
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.sdk.metrics.export import MetricsData
    from opentelemetry.sdk.resources import Resource

    from penstock.otlp import collector as module

    monkeypatch.setattr(module, "STUCK_S", LIMIT_S)
    resource = Resource({})
    collector = module.Collector(module.CollectorEndpoint(sick.url, {}), resource)
    asked = others.submit(collector.send_metrics, MetricsData([]))
    wait_for("the request", lambda: sick.asked == 1)
    assert wait_for("it to be noticed", collector.stuck) == f"{sick.url}/v1/metrics"
    sick.close()
    asked.result(DEADLINE_S)
    assert collector.stuck() == ""


def test_keys_that_were_read_never_wait_for_an_address_that_drips(
    sick: Dripping, others: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token that names an unknown key began a read, and all others waited for it."""
    tokens = pytest.importorskip("penstock.auth.json_web_tokens")
    from tests.network.test_jwt_login import key_set, token

    monkeypatch.setattr(tokens, "REFRESH_S_MIN", 0.0)
    sick.is_sick = False
    sick.body = json.dumps(key_set()).encode()
    method = tokens.TokenMethod(tokens.KeySet(sick.url, 3600.0), ("ES256",))
    assert method.check(Credentials("c", "dave", token())).reason_code == reasons.SUCCESS
    sick.is_sick = True
    unknown = others.submit(method.check, Credentials("c", "dave", token(kid="unknown")))
    wait_for("the keys to be asked for", lambda: sick.asked == 2)
    known = others.submit(method.check, Credentials("c", "dave", token()))
    assert answer_of(sick, known).reason_code == reasons.SUCCESS
    assert unknown.result(DEADLINE_S).reason_code != reasons.SUCCESS


def test_a_broker_stops_while_its_login_service_hangs(
    sick: Dripping, clients: Clients, tmp_path: Path
) -> None:
    settings = {"http_login.url": sick.url, "http_login.timeout_s": 60}
    with running_broker(tmp_path, settings) as broker:
        for number in range(3):
            client = clients.open(broker, 5)
            client.send(Connect(f"c{number}", 5, True, 0, None, f"user{number}", b"x"))
        wait_for("the service to be asked", lambda: sick.asked == 3)
        begun_s = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - begun_s < 30, "the time limit of a log-in is 60 s"
