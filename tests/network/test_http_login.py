"""Users whom an HTTP service knows: a real broker, and a real service on loopback."""

import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, final

import pytest
from argon2 import PasswordHasher

from penstock.auth.files import write_passwords
from penstock.auth.http_requests import HttpMethod
from penstock.auth.web_requests import BODY_BYTES_MAX
from penstock.engine.values.access import Credentials
from penstock.protocol import reasons
from penstock.protocol.packets import Connack, Connect, Will
from tests.support.broker import Broker
from tests.support.fixtures import NEWEST_FIRST, Clients, running_broker
from tests.support.raw_client import RawClient

CHEAP: Final = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
YES: Final = b'{"result": "allow"}'
ACL: Final = [
    {"permission": "allow", "action": "publish", "topic": "devices/%u/#"},
    {"permission": "allow", "action": "subscribe", "topic": "devices/${username}/#"},
    {"permission": "deny", "action": "all", "topic": "devices/%u/secret"},
]


@final
class Service:
    """An HTTP service: ``answers`` maps a user name to status and body."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str | None] = []
        self.answers: dict[str, Callable[[], tuple[int, bytes]]] = {}
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.asked.append(body)
                service.tokens.append(self.headers["Authorization"])
                status, text = service.answers[body["username"]]()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{service.url}/elsewhere")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def do_GET(self) -> None:  # where a redirection leads
                service.asked.append({})
                self.send_response(204)
                self.end_headers()

            def log_message(self, *told: object) -> None:
                del told

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/login"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def says(self, username: str, status: int, said: object = None) -> None:
        """Answer for this user with a status and JSON."""
        body = b"" if said is None else json.dumps(said).encode()
        self.answers[username] = lambda: (status, body)

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    try:
        yield running
    finally:
        running.close()


@contextmanager
def asking(directory: Path, service: Service, **settings: object) -> Iterator[Broker]:
    """A broker that asks ``service``, and one user of whom it knows itself."""
    write_passwords(directory / "passwords", {"alice": CHEAP.hash("alice's")})
    given = {
        "http_login.url": service.url,
        "access.password_file": directory / "passwords",
        **{f"http_login.{name}": value for name, value in settings.items()},
    }
    with running_broker(directory, given) as broker:
        yield broker


def log_in(
    clients: Clients, broker: Broker, name: str, version: int = 5, will: Will | None = None
) -> tuple[RawClient, int]:
    client = clients.open(broker, version)
    client.client_id = f"of-{name}"
    connect = Connect(client.client_id, version, True, 0, will, name, f"{name}'s".encode())
    client.send(connect)
    return client, client.expect(Connack).reason_code


@pytest.mark.parametrize("version", NEWEST_FIRST)
def test_a_user_let_in_may_do_what_the_answer_says(
    tmp_path: Path, service: Service, clients: Clients, version: int
) -> None:
    service.says("dave", 200, {"result": "allow", "acl": ACL})
    with asking(tmp_path, service) as broker:
        dave, code = log_in(clients, broker, "dave", version)
        assert code == reasons.SUCCESS
        assert dave.subscribe("devices/dave/#", qos=0) == [0]
        if version == 5:
            assert dave.subscribe("devices/alice/#", qos=0) == [reasons.NOT_AUTHORIZED]
            assert dave.publish("devices/dave/secret", b"no", 1) == reasons.NOT_AUTHORIZED
            assert dave.publish("devices/alice/x", b"no", 1) == reasons.NOT_AUTHORIZED
        assert dave.publish("devices/dave/x", b"yes", 1) == 0
        assert dave.take().payload == b"yes"
        (asked,) = service.asked
        assert asked == {
            "clientid": "of-dave",
            "username": "dave",
            "password": "dave's",
            "peerhost": "127.0.0.1",
        }


def test_the_password_file_goes_first_and_the_service_is_not_told_of_its_users(
    tmp_path: Path, service: Service, clients: Clients
) -> None:
    with asking(tmp_path, service) as broker:
        assert log_in(clients, broker, "alice")[1] == reasons.SUCCESS
        assert service.asked == []


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (200, {"result": "allow"}, reasons.SUCCESS),
        (204, None, reasons.SUCCESS),
        (200, {"result": "deny"}, reasons.BAD_USER_NAME_OR_PASSWORD),
        (200, {"result": "ignore"}, reasons.BAD_USER_NAME_OR_PASSWORD),
        (401, None, reasons.BAD_USER_NAME_OR_PASSWORD),
        (403, {"result": "allow"}, reasons.BAD_USER_NAME_OR_PASSWORD),
        (200, {"result": "allow", "expire_at": 1}, reasons.BAD_USER_NAME_OR_PASSWORD),
        (200, {"result": "perhaps"}, reasons.SERVER_UNAVAILABLE),
        (200, ["allow"], reasons.SERVER_UNAVAILABLE),
        (200, {"result": "allow", "acl": [{"permission": "allow"}]}, reasons.SERVER_UNAVAILABLE),
        (200, {"result": "allow", "acl": "all"}, reasons.SERVER_UNAVAILABLE),
        (200, {"result": "allow", "expire_at": "soon"}, reasons.SERVER_UNAVAILABLE),
        (200, {"result": "allow", "expire_at": math.inf}, reasons.SERVER_UNAVAILABLE),
        (200, {"result": "allow", "expire_at": math.nan}, reasons.SERVER_UNAVAILABLE),
        (200, {"result": "allow", "expire_at": 10**400}, reasons.SERVER_UNAVAILABLE),
        (201, {"result": "allow"}, reasons.SERVER_UNAVAILABLE),
        (302, {"result": "allow"}, reasons.SERVER_UNAVAILABLE),
        (500, {"result": "allow"}, reasons.SERVER_UNAVAILABLE),
    ],
)
def test_only_a_clear_yes_lets_in(
    service: Service, status: int, said: object, expected: int
) -> None:
    """Fail closed; and a redirection does not carry the password on."""
    service.says("dave", status, said)
    answer = HttpMethod(service.url, 5.0, 0.0).check(Credentials("c", "dave", b"x"))
    assert answer.reason_code == expected
    assert len(service.asked) == 1


def test_a_service_that_is_not_there_or_says_nonsense_lets_nobody_in(service: Service) -> None:
    method = HttpMethod(service.url, 5.0, 60.0)
    for body in (b"", b"{", b"[" * 100_000, b"\xff", YES + b" " * BODY_BYTES_MAX):
        service.answers["dave"] = lambda body=body: (200, body)  # type: ignore[misc]
        answer = method.check(Credentials("c", "dave", b"x"))
        assert answer.reason_code == reasons.SERVER_UNAVAILABLE
    service.close()
    nobody = HttpMethod(service.url, 5.0, 60.0).check(Credentials("c", "dave", b"x"))
    assert nobody.reason_code == reasons.SERVER_UNAVAILABLE


def test_a_service_that_hangs_keeps_no_other_user_waiting(
    tmp_path: Path, service: Service, clients: Clients
) -> None:
    """Off the loop, limited in time, and apart from the threads of the password file."""
    released = threading.Event()

    def hang() -> tuple[int, bytes]:
        released.wait(30)
        return 204, b""

    for number in range(8):
        service.answers[f"hangs{number}"] = hang
    with asking(tmp_path, service, timeout_s=1, requests_max=2) as broker:
        waiting = []
        for number in range(4):
            client = clients.open(broker, 5)
            client.send(Connect(f"c{number}", 5, True, 0, None, f"hangs{number}", b"x"))
            waiting.append(client)
        assert log_in(clients, broker, "alice")[1] == reasons.SUCCESS
        codes = {client.expect(Connack).reason_code for client in waiting}
        assert codes == {reasons.SERVER_UNAVAILABLE}
        released.set()


def test_answers_are_cached_by_name_client_and_password(service: Service) -> None:
    service.says("dave", 204)
    method = HttpMethod(service.url, 5.0, 60.0, token="t0ken")
    for _ in range(3):
        assert method.check(Credentials("c", "dave", b"x")).reason_code == reasons.SUCCESS
    assert len(service.asked) == 1
    method.check(Credentials("c", "dave", b"y"))
    method.check(Credentials("d", "dave", b"x"))
    assert len(service.asked) == 3
    for password in (b"\xff", "\ufffd".encode()):  # the same in what is asked
        method.check(Credentials("c", "dave", password))
    assert len(service.asked) == 5
    assert set(service.tokens) == {"Bearer t0ken"}


def test_an_answer_with_an_end_is_asked_for_each_time(service: Service) -> None:
    """It counts from each login, and what is remembered would be older."""
    service.says("dave", 200, {"result": "allow", "expire_at": time.time() + 100})
    method = HttpMethod(service.url, 5.0, 60.0)
    for _ in range(2):
        assert 90 < method.check(Credentials("c", "dave", b"x")).lasts_s <= 100
    assert len(service.asked) == 2


def test_few_answers_are_remembered(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.auth.http_requests.CACHED_MAX", 1)
    service.says("dave", 204)
    method = HttpMethod(service.url, 5.0, 60.0)
    for client_id in ("a", "b", "b", "a"):
        method.check(Credentials(client_id, "dave", b"x"))
    assert [asked["clientid"] for asked in service.asked] == ["a", "b", "a"]


def test_a_user_let_in_until_a_time_is_sent_away_then(
    tmp_path: Path, service: Service, clients: Clients
) -> None:
    service.answers["dave"] = lambda: (
        200,
        json.dumps({"result": "allow", "expire_at": time.time() + 1}).encode(),
    )
    with asking(tmp_path, service) as broker:
        dave, code = log_in(clients, broker, "dave")
        assert code == reasons.SUCCESS
        dave.expect_disconnect(reasons.MAXIMUM_CONNECT_TIME)


def test_wrong_passwords_at_the_service_are_under_the_shares(
    tmp_path: Path, service: Service, clients: Clients
) -> None:
    service.says("dave", 401)
    settings = {
        "http_login.url": service.url,
        "access.failures_burst": 2,
        "access.failure_delay_s": 60,
        "access.failure_delay_s_max": 60,
    }
    with running_broker(tmp_path, settings) as broker:
        codes = [log_in(clients, broker, "dave")[1] for _ in range(4)]
        assert codes == [
            *[reasons.BAD_USER_NAME_OR_PASSWORD] * 3,
            reasons.CONNECTION_RATE_EXCEEDED,
        ]
        nobody = clients.open(broker, 5)
        nobody.send(Connect("c", 5, True, 0))
        assert nobody.expect(Connack).reason_code == reasons.NOT_AUTHORIZED


def test_a_service_that_fails_for_all_is_one_line(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """Thousands who come back meanwhile fill no log; and it says what is wrong."""
    service.answers["dave"] = lambda: (200, b"<html>")
    method = HttpMethod(service.url, 3.0, 60.0)
    for _ in range(5):
        answer = method.check(Credentials("c", "dave", b"x"))
        assert answer.reason_code == reasons.SERVER_UNAVAILABLE
    said = [record.getMessage() for record in caplog.records]
    complaint = "could not authenticate a client: its answer is no JSON"
    assert said == [f"http_login.url {service.url} {complaint}"]
