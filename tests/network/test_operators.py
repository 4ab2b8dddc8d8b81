"""Operators: the broker's own users on the API and on the page, what ends them, and what they do.

The hard edges are here too: whatever one asker does, checks are answered, and acts of others.
"""

import http.client
import json
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette", reason="the extra admin is not installed")
pytest.importorskip("uvicorn", reason="the extra admin is not installed")
pytest.importorskip("prometheus_client", reason="the extra admin is not installed")

from penstock.admin.connection_timeouts import CONNECTIONS_MAX
from penstock.admin.operations import PREFIX
from penstock.admin.rate_limiter import LOGINS_BURST
from penstock.admin.web import ANSWERS_MAX
from penstock.auth.files import read_passwords, write_passwords
from penstock.auth.scram import keys_for, line_of
from tests.support.admin_http import get
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker
from tests.support.operators import Visit, basic, with_operators

KICK = {"filter": {"client_id": "nobody"}}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, with_operators(tmp_path)) as started:
        yield started


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for tests with few logins."""
    directory = tmp_path_factory.mktemp("operators")
    with running_broker(directory, with_operators(directory)) as started:
        yield started


def sessions(broker: Broker, authorization: str) -> int:
    return get(broker, f"{PREFIX}/sessions", Authorization=authorization).status


def test_a_user_shows_its_password_with_each_request_and_its_role_counts(shared: Broker) -> None:
    assert sessions(shared, basic("victor")) == 200
    assert sessions(shared, basic("victor", "wrong")) == 401
    assert sessions(shared, basic("device")) == 403, "a user without a role"
    assert sessions(shared, "Basic nonsense") == 401
    headers = {"Content-Type": "application/json"}
    told = json.dumps(KICK).encode()
    for user, status in (("victor", 403), ("olga", 200)):
        answer = get(
            shared, f"{PREFIX}/sessions/kick", "POST", told, Authorization=basic(user), **headers
        )
        assert answer.status == status, answer.body
    said = "olga at 127.0.0.1 (API) disconnected 0 clients"
    wait_for("the log line", lambda: said in shared.log())


def test_the_cookie_is_for_our_page_alone(shared: Broker) -> None:
    visit = Visit(shared, "olga")
    assert visit.answer.status == 200
    cookie = visit.answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert visit.ask(f"{PREFIX}/sessions").status == 200
    assert visit.ask(f"{PREFIX}/sessions", **{"Sec-Fetch-Site": "cross-site"}).status == 403
    assert visit.ask(f"{PREFIX}/sessions/kick", KICK, **{"X-CSRF-Token": ""}).status == 403
    assert visit.ask(f"{PREFIX}/sessions/kick", KICK).status == 200
    assert visit.ask(f"{PREFIX}/reload", {}).status == 403, "an operator is no admin"
    assert visit.ask("/page/logout", {}, **{"X-CSRF-Token": "x"}).status == 403
    assert visit.ask("/page/logout", {}).status == 204
    assert visit.ask(f"{PREFIX}/sessions").status == 401


def test_a_wrong_password_and_an_unknown_user_are_told_the_same(broker: Broker) -> None:
    answers = [Visit(broker, user, "wrong").answer for user in ("olga", "nobody", "")]
    assert {(answer.status, answer.body) for answer in answers} == {
        (401, b'{"error":"the user name or the password is wrong"}')
    }


def test_an_operator_who_may_not_be_here_any_more_is_out_before_the_next_act(
    tmp_path: Path,
) -> None:
    names = ("removed", "changed", "demoted", "banned")
    roles = {"ada": "admin"} | dict.fromkeys(names, "operator")
    settings = with_operators(tmp_path, roles)
    del settings["admin.users"]
    config = tmp_path / "penstock.toml"

    def write(named: list[str]) -> None:
        shown = ", ".join(f'{name} = "{roles[name]}"' for name in named)
        config.write_text(f"[admin]\nusers = {{ {shown} }}\n")

    write(list(roles))
    started = Broker(tmp_path, settings)
    started.command = (*started.command, "--config", str(config))
    try:
        started.start()
        visits = {name: Visit(started, name) for name in roles}
        for visit in visits.values():
            assert visit.ask(f"{PREFIX}/sessions/kick", KICK).status == 200
        lines = read_passwords(tmp_path / "passwords")
        del lines["removed"]
        lines["changed"] = line_of(keys_for("another"))
        write_passwords(tmp_path / "passwords", lines)
        write([name for name in roles if name != "demoted"])
        admin = visits.pop("ada")
        ban = {"kind": "user", "value": "banned"}
        assert admin.ask(f"{PREFIX}/bans/make", ban).status == 200
        assert admin.ask(f"{PREFIX}/reload", {}).status == 200
        for name, visit in visits.items():
            assert visit.ask(f"{PREFIX}/sessions/kick", KICK).status == 401, name
            assert visit.ask(f"{PREFIX}/sessions").status == 401, "the session has ended"
            status = 401 if name in ("removed", "changed") else 403
            assert Visit(started, name).answer.status == status
        assert admin.ask(f"{PREFIX}/sessions/kick", KICK).status == 200
    finally:
        started.close()


def test_an_operator_locks_out_no_admin(tmp_path: Path) -> None:
    """By name it may not; and a ban of addresses is for clients of MQTT: somebody must lift it."""
    roles = {"ada": "admin", "olga": "operator", "otto": "operator"}
    with running_broker(tmp_path, with_operators(tmp_path, roles)) as broker:
        ada, olga = Visit(broker, "ada"), Visit(broker, "olga")
        admin, everybody = (
            {"kind": "user", "value": "ada"},
            {"kind": "address", "value": "0.0.0.0/0"},
        )
        refused = olga.ask(f"{PREFIX}/bans/make", admin)
        assert refused.status == 400
        assert b"has the role admin in admin.users" in refused.body
        assert olga.ask(f"{PREFIX}/bans/make", {"kind": "user", "value": "otto"}).status == 200
        assert olga.ask(f"{PREFIX}/bans/make", everybody).status == 200
        assert Visit(broker, "ada").answer.status == 200
        assert ada.ask(f"{PREFIX}/bans/make", admin).status == 200, "an admin may"
        assert olga.ask(f"{PREFIX}/bans/lift", admin).status == 400
        assert olga.ask(f"{PREFIX}/bans/lift", everybody).status == 200


def test_logins_of_one_address_are_limited_whatever_they_show(broker: Broker) -> None:
    assert sessions(broker, basic("victor")) == 200
    count = int(LOGINS_BURST) + 5
    answers = [Visit(broker, "", f"eyJ.{number}.x").answer.status for number in range(count)]
    assert set(answers) == {401, 429}
    assert sessions(broker, basic("victor")) == 200, "what was right lately is no login"


def test_users_without_anything_that_checks_their_passwords_are_refused(tmp_path: Path) -> None:
    settings = with_operators(tmp_path)
    del settings["access.password_file"]
    with (
        pytest.raises(AssertionError, match="nothing to check their passwords with"),
        running_broker(tmp_path, settings),
    ):
        pass


def test_the_page_is_served_under_a_strict_policy(shared: Broker) -> None:
    for path in ("/", "/page/page.js", "/page/page.css"):
        answer = get(shared, path)
        assert answer.status == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    shell = get(shared, "/").body.decode()
    assert "<style" not in shell
    assert "onclick" not in shell
    assert get(shared, "/page/routes.py").status == 404


def test_an_answer_does_not_wait_for_the_one_before_to_be_acknowledged(shared: Broker) -> None:
    get(shared, "/healthz")
    url = urlsplit(shared.admin_url)
    connection = http.client.HTTPConnection(str(url.hostname), url.port)
    took_s = []
    for _ in range(10):
        began_s = time.monotonic()
        connection.request("GET", "/page/page.js")
        connection.getresponse().read()
        took_s.append(time.monotonic() - began_s)
    connection.close()
    assert min(took_s[1:]) < 0.035, "40 ms are TCP's delay of an acknowledgement"


# -- hard edges ------------------------------------------------------------------------------


def held(broker: Broker, sent: bytes) -> socket.socket:
    url = urlsplit(broker.admin_url)
    connection = socket.create_connection((url.hostname, url.port))
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("user", ["", "olga"])
def test_requests_that_never_end_do_not_take_the_checks_places(broker: Broker, user: str) -> None:
    get(broker, "/healthz")
    shown = f"Authorization: {basic(user)}\r\n" if user else ""
    head = (
        f"POST {PREFIX}/sessions/kick HTTP/1.1\r\nHost: localhost\r\n{shown}"
        "Content-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    ).encode()
    connections = [held(broker, head) for _ in range(CONNECTIONS_MAX)]
    connections += [held(broker, head[:20]) for _ in range(CONNECTIONS_MAX)]
    try:
        assert get(broker, "/healthz").status == 200
        assert get(broker, "/readyz").status == 200
    finally:
        for connection in connections:
            connection.close()


def test_logins_that_never_end_do_not_take_the_places_of_those_that_are_in(shared: Broker) -> None:
    assert sessions(shared, basic("victor")) == 200
    head = (
        b"POST /page/login HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: 99\r\n\r\n"
    )
    connections = [held(shared, head) for _ in range(ANSWERS_MAX)]
    try:
        wait_for("the logins", lambda: Visit(shared, "olga").answer.status == 503)
        assert sessions(shared, basic("victor")) == 200
    finally:
        for connection in connections:
            connection.close()


def test_requests_that_are_none_write_no_lines(shared: Broker) -> None:
    """Who need not log in could else fill the log, two lines a request."""
    get(shared, "/healthz")
    before = shared.log()
    upgrade = (
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket"
    )
    for sent, status in ((b"nonsense", 400), (upgrade, 200)):
        with held(shared, sent + b"\r\n\r\n") as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 %d" % status)
    assert shared.log() == before


def test_a_login_of_too_many_characters_is_a_mistake(shared: Broker) -> None:
    answer = Visit(shared, "a" * 65_536).answer
    assert answer.status == 400
    assert "length <= 65535" in answer.json["error"]


def test_patterns_of_many_brackets_do_not_hold_up_the_loop(
    shared: Broker, clients: Clients
) -> None:
    for number in range(20):
        clients.join(shared, f"client-{number}")
    for pattern in ("[" * 14_000, "*a" * 7_000):
        asked = f"{PREFIX}/sessions?client={pattern}"
        answer = get(shared, asked, Authorization=basic("victor"))
        assert (answer.status, "at most 256 characters" in answer.json["error"]) == (400, True)
    longest = get(shared, f"{PREFIX}/sessions?client={'*?' * 128}", Authorization=basic("victor"))
    assert longest.status == 200


def test_lists_that_wait_hold_up_no_act(broker: Broker) -> None:
    visit = Visit(broker, "olga")
    assert sessions(broker, basic("victor")) == 200
    broker.process.send_signal(signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(12) as pool:
            lists = [pool.submit(sessions, broker, basic("victor")) for _ in range(8)]
            act = pool.submit(visit.ask, f"{PREFIX}/sessions/kick", KICK)
            assert get(broker, "/healthz").status == 503, "checks are answered in time meanwhile"
            broker.process.send_signal(signal.SIGCONT)
            assert act.result().status == 200
            assert {one.result() for one in lists} == {200}
    finally:
        broker.process.send_signal(signal.SIGCONT)


# -- events ----------------------------------------------------------------------------------


def test_events_are_listed_the_newest_first_in_pages(tmp_path: Path, clients: Clients) -> None:
    settings = with_operators(tmp_path) | {"events.enabled": "true"}
    with running_broker(tmp_path, settings, stream=True) as broker:
        visit = Visit(broker, "olga")
        for number in range(5):
            clients.join(broker, f"press-{number}")
        asked = f"{PREFIX}/events?kind=connected&client_id=press-*"

        def names(query: str = "") -> list[str]:
            answer = visit.ask(asked + query)
            return [entry["client"] for entry in answer.json["entries"]]

        wait_for("the events", lambda: len(names()) == 5)
        newest_first = [f"press-{number}" for number in range(4, -1, -1)]
        assert names() == newest_first
        page: list[str] = []
        cursor = ""
        while len(page) < 6:
            answer = visit.ask(f"{asked}&limit=2&cursor={cursor}").json
            page += [entry["client"] for entry in answer["entries"]]
            cursor = answer["cursor"]
            if not cursor:
                break
        assert page == newest_first
        assert names("&until=1") == []
        login = visit.ask(f"{PREFIX}/events?kind=administered").json["entries"][0]
        assert (login["act"], login["by"]) == ("login", "olga at 127.0.0.1 (page)")
        for query in ("kind=nothing", "cursor=x", "limit=0", "client_id=" + "a" * 300):
            assert visit.ask(f"{PREFIX}/events?{query}").status == 400, query


def test_events_that_are_off_are_said_to_be_off(shared: Broker) -> None:
    answer = Visit(shared, "victor").ask(f"{PREFIX}/events")
    assert (answer.status, "set events.enabled" in answer.json["error"]) == (409, True)
