"""How a NATS server that is gone is removed, by the answers that JetStream gives."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cluster import removing
from penstock.config.cluster import Cluster
from penstock.errors import StoreError, StoreUnavailable
from tests.support.deadline import DEADLINE_S
from tests.support.fake_nats import FakeNats, Visit

Answer = Callable[[Visit, str], None]


def refused(code: int, text: str) -> Answer:
    body = json.dumps({"error": {"code": 400, "err_code": code, "description": text}}).encode()
    return lambda visit, reply: visit.answer(reply, body)


def removed(visit: Visit, reply: str) -> None:
    visit.answer(reply, b'{"success":true}')


def no_responders(visit: Visit, reply: str) -> None:
    header = b"NATS/1.0 503\r\n\r\n"
    visit.say(b"HMSG %b 1 %d %d\r\n%b\r\n" % (reply.encode(), len(header), len(header), header))


def nothing(visit: Visit, reply: str) -> None:
    del visit, reply


NOT_A_MEMBER = refused(10044, "server is not a member of the cluster")


def ask(directory: Path, *answers: Answer, timeout_s: float = DEADLINE_S) -> int:
    """Remove a server; each request gets the next answer. Returns how many were not asked for."""
    left: Iterator[Answer] = iter(answers)

    def script(visit: Visit) -> None:
        visit.take_login()
        while reply := visit.request_or_end():
            next(left, nothing)(visit, reply)

    login = directory / "login"
    login.write_text("s:s\n")
    with FakeNats(script) as server:
        settings = Cluster(log=(server.url,), name="orders")
        removing.remove_server(settings, "lost", str(login), timeout_s)
    return len(list(left))


@pytest.fixture(autouse=True)
def asks_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removing, "_AGAIN_S", 0.2)


def test_the_cluster_is_asked_again_until_another_leader_is_elected(tmp_path: Path) -> None:
    """The lost server was the leader, and the others say nothing."""
    assert ask(tmp_path, nothing, nothing, removed) == 0


def test_a_removal_by_an_attempt_without_an_answer_is_done(tmp_path: Path) -> None:
    assert ask(tmp_path, nothing, NOT_A_MEMBER) == 0


def test_a_server_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="lost is not removed: server is not a member"):
        ask(tmp_path, NOT_A_MEMBER)


def test_the_cluster_is_not_asked_for_ever(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="it did not answer in time"):
        ask(tmp_path, *[nothing] * 50, timeout_s=0.5)


def test_the_login_of_another_account_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="login is not the login of the system account"):
        ask(tmp_path, no_responders, timeout_s=10 * DEADLINE_S)
