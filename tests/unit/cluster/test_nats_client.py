"""The client of NATS with servers that misbehave: what was sent, what was answered, and where it
goes next."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from penstock.cluster.nats_client import (
    LoginRefused,
    NatsClient,
    NoAnswer,
    NotSent,
    UnfitServer,
)
from penstock.cluster.nats_login import NO_LOGIN
from tests.support.deadline import DEADLINE_S, let_pass, wait_for
from tests.support.fake_nats import INFO, FakeNats, Script, Visit

NOWHERE = "nats://127.0.0.1:1"


def client_of(*urls: str) -> NatsClient:
    return NatsClient(urls, "test", NO_LOGIN, ssl.create_default_context, (2, 15, 1))


def soon() -> float:
    return time.monotonic() + DEADLINE_S


def at_once() -> float:
    return time.monotonic() + 0.3


def echo(visit: Visit) -> None:
    """Answer each request with ``fine``."""
    visit.take_login()
    while reply := visit.request_or_end():
        visit.answer(reply, b"fine")


@contextlib.contextmanager
def served(*scripts: Script) -> Iterator[tuple[NatsClient, list[FakeNats]]]:
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(FakeNats(script)) for script in scripts]
        client = stack.enter_context(closing(client_of(*(server.url for server in servers))))
        yield client, servers


def test_a_request_is_answered() -> None:
    with served(echo) as (client, _):
        assert client.request("a", b"", soon()).data == b"fine"
        assert client.version == "2.15.1"
        assert client.server == "fake"


def test_without_any_server_nothing_is_sent() -> None:
    with closing(client_of(NOWHERE)) as client, pytest.raises(NotSent, match="127"):
        client.request("a", b"", at_once())


def test_the_next_server_is_taken_when_one_is_away() -> None:
    with FakeNats(echo) as server, closing(client_of(NOWHERE, server.url)) as client:
        assert client.request("a", b"", soon()).data == b"fine"


def test_a_lost_machine_costs_little_before_the_next_server_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.cluster.nats_client._CONNECT_S_MAX", 10 * DEADLINE_S)
    with contextlib.ExitStack() as stack:
        lost = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = lost.getsockname()
        stack.enter_context(socket.create_connection(address))  # now it takes no more
        server = stack.enter_context(FakeNats(echo))
        client = stack.enter_context(
            closing(client_of(f"nats://127.0.0.1:{address[1]}", server.url))
        )
        assert client.request("a", b"", soon()).data == b"fine"


def asked(client: NatsClient) -> bytes:
    """The answer to what is asked again after 0.05, 0.15, 0.35 s and so on."""
    return client.first_answer("a", b"first", b"again", 0.05, soon()).data


@pytest.mark.parametrize("answered", [0, 1, 3])
def test_the_answer_to_any_of_the_repeated_requests_counts(answered: int) -> None:
    """However late: it is not thrown away because the same was asked again."""

    def be_slow(visit: Visit) -> None:
        visit.take_login()
        replies = [visit.request_or_end() for _ in range(answered + 3)]
        visit.answer(replies[answered], b"fine")
        while reply := visit.request_or_end():  # perhaps another repetition, whose answer is late
            visit.answer(reply, b"next")

    with served(be_slow) as (client, [server]):
        assert asked(client) == b"fine"
        assert client.request("a", b"", soon()).data == b"next"
        assert server.visits == 1


def test_nothing_is_asked_again_while_an_answer_is_received() -> None:
    """Else a large answer on a slow line would get more and more others before it."""
    requests: list[str] = []

    def dribble(visit: Visit) -> None:
        visit.take_login()
        requests.append(reply := visit.request_or_end())
        visit.say(b"MSG %b 1 4\r\nfi" % reply.encode())
        visit.heard(b"PING")  # what would have been asked again comes right behind it
        visit.say(b"ne\r\nPONG\r\n")
        requests.append(visit.request_or_end())

    with served(dribble) as (client, _):
        assert client.first_answer("a", b"first", b"again", 0.5, soon()).data == b"fine"
    assert len(requests) == 2
    assert not requests[1], "the end"


def test_a_silent_server_is_left_however_often_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """One count of silence goes on over all repetitions, from one PING."""
    monkeypatch.setattr("penstock.cluster.nats_client.SILENCE_S", 2.0)
    pings: list[bytes] = []

    def fall_silent(visit: Visit) -> None:
        visit.take_login()
        while ping := visit.heard(b"PING"):
            pings.append(ping)

    with served(fall_silent) as (client, _), pytest.raises(NoAnswer, match="silent"):
        client.first_answer("a", b"first", b"again", 0.05, time.monotonic() + 4)
    assert len(pings) == 1


def test_requests_are_repeated_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow log must not get a request each 0.05 s from each member."""
    monkeypatch.setattr("penstock.cluster.nats_client.SILENCE_S", DEADLINE_S)
    requests: list[str] = []

    def take(visit: Visit) -> None:
        visit.take_login()
        while reply := visit.request_or_end():
            requests.append(reply)

    with served(take) as (client, _), pytest.raises(NoAnswer, match="in time"):
        client.first_answer("a", b"first", b"again", 0.05, time.monotonic() + 1.2)
    assert 1 <= len(requests) <= 5, "at 0, 0.05, 0.15, 0.35 and 0.75 s"


def test_a_login_that_takes_longer_than_a_lost_machine_may_is_waited_for_in_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Calls with little time each would never connect, if each began with the short limit."""
    monkeypatch.setattr("penstock.cluster.nats_client._CONNECT_S_FIRST", 0.05)
    monkeypatch.setattr("penstock.cluster.nats_client._CONNECT_S_MAX", DEADLINE_S)

    def be_slow(visit: Visit) -> None:
        visit.greet(INFO)
        visit.heard(b"PING")
        let_pass(0.2)
        visit.say(b"PONG\r\n")
        while reply := visit.request_or_end():
            visit.answer(reply, b"fine")

    with served(be_slow) as (client, [server]):
        with pytest.raises(NotSent):
            client.request("a", b"", time.monotonic() + 0.04)
        client.connect(soon())
        assert client.is_connected
        assert server.visits == 2, "the second call begins with the long limit"


def test_messages_that_come_faster_than_they_are_read_do_not_stop_a_request() -> None:
    """As heartbeats of a program gone wrong do."""
    ended = threading.Event()

    def flood(visit: Visit) -> None:
        visit.take_login()
        reply = visit.request_or_end()

        def answer() -> None:
            if visit.request_or_end():
                ended.set()

        listening = threading.Thread(target=answer)
        listening.start()
        visit.answer(reply, b"fine")
        while not ended.is_set():
            visit.say(b"MSG beats 2 4\r\nbeat\r\n" * 5000)
        listening.join(DEADLINE_S)

    with served(flood) as (client, _):
        assert client.request("a", b"", soon()).data == b"fine"
        wait_for("messages that wait", lambda: client._is_idle and client._is_readable())
        client.ask("a", b"", soon())
        assert ended.wait(DEADLINE_S)


def test_a_connection_that_ended_while_it_was_idle_is_replaced_before_the_request() -> None:
    requests: list[str] = []

    def once(visit: Visit) -> None:
        visit.take_login()
        requests.append(reply := visit.request_or_end())
        visit.answer(reply, b"fine")

    with served(once) as (client, [server]):
        for number in range(1, 6):
            assert client.request("a", b"", soon()).data == b"fine"
            wait_for("the end", lambda: client._is_idle and client._is_readable())
            assert server.visits == len(requests) == number


def test_a_request_whose_connection_ends_is_not_answered() -> None:
    def drop(visit: Visit) -> None:
        visit.take_login()
        visit.request_or_end()

    with served(drop, echo) as (client, _):
        with pytest.raises(NoAnswer):
            client.request("a", b"", soon())
        assert client.request("a", b"", soon()).data == b"fine"  # of the next server


def test_a_server_that_falls_silent_is_left() -> None:
    def fall_silent(visit: Visit) -> None:
        visit.take_login()
        visit.heard(b"nothing of this")

    with served(fall_silent, echo) as (client, _):
        began_s = time.monotonic()
        with pytest.raises(NoAnswer, match="silent"):
            client.request("a", b"", soon())
        assert time.monotonic() - began_s < DEADLINE_S / 2
        assert client.request("a", b"", soon()).data == b"fine"


def test_a_server_that_gives_a_sign_is_waited_for() -> None:
    def be_slow(visit: Visit) -> None:
        visit.take_login()
        reply = visit.request_or_end()
        for _ in range(3):
            visit.heard(b"PING")
            visit.say(b"PONG\r\n")
        visit.answer(reply, b"late")

    with served(be_slow) as (client, _):
        assert client.request("a", b"", soon()).data == b"late"


def test_answers_to_earlier_requests_are_thrown_away() -> None:
    def answer_twice(visit: Visit) -> None:
        visit.take_login()
        first = visit.request_or_end()
        visit.answer(first, b"first")
        visit.answer(first, b"first, again")
        visit.answer(visit.request_or_end(), b"second")
        visit.request_or_end()

    with served(answer_twice) as (client, _):
        assert client.request("a", b"", soon()).data == b"first"
        assert client.request("a", b"", soon()).data == b"second"


def test_a_server_that_asks_for_a_sign_is_given_it() -> None:
    def ask(visit: Visit) -> None:
        visit.take_login()
        reply = visit.request_or_end()
        visit.say(b"PING\r\n")
        assert visit.heard(b"PONG")
        visit.answer(reply, b"fine")

    with served(ask) as (client, _):
        assert client.request("a", b"", soon()).data == b"fine"


def of_version(version: str) -> Script:
    def greet(visit: Visit) -> None:
        visit.take_login(INFO | {"version": version})
        while reply := visit.request_or_end():
            visit.answer(reply, b"fine")

    return greet


@pytest.mark.parametrize("version", ["2.15.0", "2.9.25", "1.0", "", "old", "2.14.1-preview.2"])
def test_servers_that_are_too_old_are_refused_at_once(version: str) -> None:
    with served(of_version(version), of_version(version)) as (client, _):
        began_s = time.monotonic()
        with pytest.raises(UnfitServer, match="or newer"):
            client.connect(soon())
        assert time.monotonic() - began_s < DEADLINE_S / 2


@pytest.mark.parametrize("version", ["2.15.1", "2.15.1-rc.1", "2.16.0", "3.0.0-dev"])
def test_newer_servers_are_taken(version: str) -> None:
    with served(of_version("2.10.1"), of_version(version)) as (client, _):
        assert client.request("a", b"", soon()).data == b"fine"


def test_a_server_that_takes_less_than_the_log_has_is_refused() -> None:
    with served(echo) as (client, _):
        client.payload_bytes_min = (1 << 20) + 1
        with pytest.raises(UnfitServer, match="max_payload"):
            client.connect(soon())


@pytest.mark.parametrize(
    "text", ["Authorization Violation", "User Authentication Expired", "Permissions Violation for"]
)
def test_a_login_that_is_refused_is_said(text: str) -> None:
    def refuse(visit: Visit) -> None:
        visit.greet(INFO)
        visit.heard(b"PING")
        visit.say(b"-ERR '%b'\r\n" % text.encode())

    with served(refuse) as (client, _), pytest.raises(LoginRefused, match=text):
        client.connect(soon())


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400\r\n", b"+OK\r\nPING\r\n", b"INFO 7\r\n", b""])
def test_a_program_that_is_no_server_of_nats_is_left_for_the_next(greeting: bytes) -> None:
    with served(lambda visit: visit.say(greeting), echo) as (client, _):
        assert client.request("a", b"", soon()).data == b"fine"


def test_a_server_that_is_about_to_end_is_left_before_the_next_request() -> None:
    def retire(visit: Visit) -> None:
        visit.take_login()
        visit.answer(visit.request_or_end(), b"of the old one")
        visit.greet(INFO | {"ldm": True})
        while reply := visit.request_or_end():
            visit.answer(reply, b"of the old one")

    with served(retire, echo) as (client, _):
        assert client.request("a", b"", soon()).data == b"of the old one"
        assert wait_for("the next server", lambda: client.request("a", b"", soon()).data == b"fine")


def test_tls_is_not_done_without() -> None:
    with FakeNats(echo) as server:
        url = server.url.replace("nats://", "tls://")
        with closing(client_of(url)) as client, pytest.raises(NotSent, match="offers no TLS"):
            client.connect(time.monotonic() + 2)
