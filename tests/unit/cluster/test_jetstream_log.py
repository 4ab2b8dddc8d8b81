"""What an append to JetStream comes to, by the answer that a server gives."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from penstock.cluster.jetstream import JetStreamLog, NatsHeartbeats, tls_context
from penstock.cluster.log import AppendRefused, AppendUnknown, Entry, LogRefused, LogUnavailable
from penstock.config.cluster import Cluster
from penstock.errors import ConfigError
from tests.support.deadline import DEADLINE_S
from tests.support.fake_nats import INFO, FakeNats, Script, Visit

Answer = Callable[[Visit, str], None]


def says(**fields: object) -> Answer:
    return lambda visit, reply: visit.answer(reply, json.dumps(fields).encode())


def refuses(code: int, text: str) -> Answer:
    return says(error={"code": 400, "err_code": code, "description": text})


def no_responders(visit: Visit, reply: str) -> None:
    header = b"NATS/1.0 503\r\n\r\n"
    visit.say(b"HMSG %b 1 %d %d\r\n%b\r\n" % (reply.encode(), len(header), len(header), header))


def appended(answer: Answer) -> None:
    """Append behind 6, at a server that answers so."""

    def script(visit: Visit) -> None:
        visit.take_login()
        answer(visit, visit.request_or_end())
        visit.heard(b"nothing of this")

    with FakeNats(script) as server:
        log = JetStreamLog(Cluster(log=(server.url,), name="orders"), "test")
        log.entry_bytes_max = 100  # as if it were opened
        with closing(log):
            log.append(b"the seventh", 6, DEADLINE_S)


def test_an_entry_at_its_place_is_appended() -> None:
    appended(says(stream="orders", seq=7))


@pytest.mark.parametrize(
    "answer",
    [refuses(10071, "wrong last sequence: 9"), refuses(10164, "wrong last sequence")],
)
def test_an_entry_for_another_place_is_refused(answer: Answer) -> None:
    with pytest.raises(AppendRefused, match="does not end at 6"):
        appended(answer)


@pytest.mark.parametrize(
    "answer",
    [
        no_responders,
        refuses(10008, "JetStream system temporarily unavailable"),
        refuses(10077, "maximum bytes exceeded"),
        lambda visit, reply: visit.answer(reply, b"+OK"),
        lambda visit, _: visit.end(),
        lambda visit, _: visit.say(b"-ERR 'User Authentication Expired'\r\n"),
        lambda visit, _: visit.say(b"-ERR 'Stale Connection'\r\n"),
        lambda visit, _: visit.say(b"nonsense\r\n"),
    ],
)
def test_any_other_answer_to_what_was_sent_leaves_it_unknown(answer: Answer) -> None:
    with pytest.raises(AppendUnknown):
        appended(answer)


@pytest.mark.parametrize(
    "answer", [says(stream="orders", seq=8), says(stream="other", seq=7), says()]
)
def test_an_entry_that_is_put_elsewhere_ends_it(answer: Answer) -> None:
    with pytest.raises(LogRefused, match="another program"):
        appended(answer)


def test_the_answer_to_an_earlier_sending_of_an_append_counts() -> None:
    """The servers are so far apart that an append is sent again before the first is answered."""

    def script(visit: Visit) -> None:
        visit.take_login()
        first = visit.request_or_end()
        assert visit.request_or_end() not in ("", first)
        says(stream="orders", seq=7)(visit, first)
        visit.heard(b"nothing of this")

    with FakeNats(script) as server:
        log = JetStreamLog(Cluster(log=(server.url,), name="orders"), "test")
        log.entry_bytes_max = 100
        with closing(log):
            log.append(b"the seventh", 6, DEADLINE_S)
        assert server.visits == 1


def test_without_a_server_it_was_not_sent() -> None:
    with closing(JetStreamLog(Cluster(log=("nats://127.0.0.1:1",)), "test")) as log:
        log.entry_bytes_max = 100
        with pytest.raises(LogUnavailable) as caught:
            log.append(b"", 0, 0.1)
    assert not isinstance(caught.value, AppendUnknown)


def test_appends_go_to_the_preferred_server_once_it_is_found() -> None:
    sequences: list[tuple[str, int]] = []

    def named(name: str) -> Script:
        def script(visit: Visit) -> None:
            visit.take_login(INFO | {"server_name": name})
            while reply := visit.request_or_end():
                sequences.append((name, len(sequences) + 1))
                answer = {"stream": "orders", "seq": len(sequences)}
                visit.answer(reply, json.dumps(answer).encode())

        return script

    with FakeNats(named("a")) as a, FakeNats(named("b")) as b, FakeNats(named("c")) as c:
        urls = (a.url, b.url, "nats://127.0.0.1:1", c.url)
        log = JetStreamLog(Cluster(log=urls, name="orders"), "test")
        log.entry_bytes_max = 100
        with closing(log):
            for after, preferred in enumerate(["", "c", "c", "unknown", "unknown", "b", "b", "a"]):
                if preferred:
                    log.prefer(preferred)
                log.append(b"entry", after, DEADLINE_S)
        visits = a.visits
    assert [name for name, _ in sequences] == ["a", "c", "c", "c", "c", "b", "b", "a"]
    assert visits == 5  # at first, once in each search, which for unknown is one, and at last


def test_a_read_that_came_to_a_lost_replica_is_sent_again_on_the_same_connection() -> None:
    requests: list[str] = []

    def script(visit: Visit) -> None:
        visit.take_login()
        requests.append(visit.request_or_end())  # a lost replica has it
        requests.append(reply := visit.request_or_end())
        header = b"NATS/1.0\r\nNats-Sequence: 7\r\n\r\n"
        sizes = (len(header), len(header) + 5)
        visit.say(b"HMSG %b 1 %d %d\r\n%bentry\r\n" % (reply.encode(), *sizes, header))
        visit.heard(b"nothing of this")

    with FakeNats(script) as server:
        log = JetStreamLog(Cluster(log=(server.url,), name="orders"), "test")
        with closing(log):
            assert log.read(7, 1, DEADLINE_S) == [Entry(7, b"entry")]
        assert server.visits == 1
    assert len(requests) == 2


def test_a_question_that_came_to_a_lost_leader_is_asked_again_on_the_same_connection() -> None:
    def script(visit: Visit) -> None:
        visit.take_login()
        visit.request_or_end()  # the lost leader has it
        data = base64.b64encode(b"entry").decode()
        says(message={"seq": 7, "data": data})(visit, visit.request_or_end())
        visit.heard(b"nothing of this")

    with FakeNats(script) as server:
        log = JetStreamLog(Cluster(log=(server.url,), name="orders"), "test")
        with closing(log):
            assert log.entry_at(7, DEADLINE_S) == Entry(7, b"entry")
        assert server.visits == 1


def test_a_change_that_came_to_a_lost_leader_is_sent_again_on_the_same_connection() -> None:
    """Each change leads to one state, so that it may be made twice."""

    def script(visit: Visit) -> None:
        visit.take_login()
        state = {"messages": 9, "first_seq": 1, "last_seq": 9}
        says(state=state)(visit, visit.request_or_end())
        visit.request_or_end()  # the lost leader has the purge
        says(success=True)(visit, visit.request_or_end())
        visit.heard(b"nothing of this")

    with FakeNats(script) as server:
        log = JetStreamLog(Cluster(log=(server.url,), name="orders"), "test")
        with closing(log):
            log.trim(5, DEADLINE_S)
        assert server.visits == 1


def test_heartbeats_without_a_server_are_lost_and_do_not_fail() -> None:
    def refuse(visit: Visit) -> None:
        visit.take_login()
        visit.say(b"-ERR 'Authorization Violation'\r\n")

    with FakeNats(refuse) as server:
        for url in (server.url, "nats://127.0.0.1:1"):
            with closing(NatsHeartbeats(Cluster(log=(url,)), "test")) as heartbeats:
                for _ in range(3):
                    heartbeats.send(b"beat")
                    assert heartbeats.received(0.01) == []
        assert server.visits < 100


def test_the_authorities_of_the_system_are_loaded_for_tls_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded: list[object] = []
    make = ssl.create_default_context

    def count(cafile: str | None = None) -> ssl.SSLContext:
        loaded.append(cafile)
        return make()

    monkeypatch.setattr(ssl, "create_default_context", count)
    context = tls_context(Cluster(log=("nats://127.0.0.1:1",)))
    assert not loaded
    assert context() is context()
    assert len(loaded) == 1
    with pytest.raises(ConfigError):
        tls_context(
            Cluster(
                log=("nats://127.0.0.1:1",),
                certificate=str(tmp_path / "none.pem"),
                key=str(tmp_path / "none.key"),
            )
        )


def copy_read(is_passed_on: Callable[[int], bool], requests: list[str]) -> list[Entry]:
    """Read the copy of a server that passes some requests on; note each in ``requests``."""

    def script(visit: Visit) -> None:
        visit.take_login(INFO | {"server_name": "own"})
        while request := visit.next_request():
            requests.append(request.reply)
            away = is_passed_on(len(requests))
            events = [{"type": "eg", "kind": 1, "name": "other"}] if away else []
            for server in ("other", "own") if away else ("own",):
                report = {"server": {"name": server}, "events": events if server == "own" else []}
                visit.answer(request.trace, json.dumps(report).encode())
            visit.answer_entries(request.reply, [] if away else [b"one", b"two"])

    with FakeNats(script) as server:
        log = JetStreamLog(Cluster(log=(server.url,), name="orders"), "test")
        with closing(log):
            return log.read_copy(1, 2, DEADLINE_S)


def test_a_copy_is_what_the_server_itself_answers() -> None:
    requests: list[str] = []
    entries = copy_read(lambda number: number < 4, requests)
    assert (entries, len(requests)) == ([Entry(1, b"one"), Entry(2, b"two")], 4)


def test_a_server_that_answers_no_read_itself_is_not_asked_for_ever() -> None:
    requests: list[str] = []
    with pytest.raises(LogUnavailable, match="passed each read on"):
        copy_read(lambda _: True, requests)
    assert len(requests) == 6
