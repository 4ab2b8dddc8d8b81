"""Receipts: publishers hear that their messages are in a table, whoever is killed in between."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from penstock.auth.files import write_passwords
from penstock.auth.tokens import OWN_FILE
from penstock.control.landed_requests import OFFSETS_MAX, ReportProgress, TableState
from penstock.errors import ConfigError, EpochMismatch
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connack, Connect, Puback, Publish
from penstock.protocol.properties import Properties
from penstock.stream.client import StreamClient
from penstock.stream.credentials import Credentials
from tests.support.broker import Broker
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.fixtures import Clients, running_broker
from tests.support.processes import run_penstock
from tests.support.raw_client import RawClient

CHEAP = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
RECEIPT = "penstock-receipt"
ACCESS_LIST = """\
topic readwrite plant/#
topic readwrite answers/#
topic readwrite settle/#
topic read $SYS/#
pattern read commands/%c
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    access_list = tmp_path / "acl"
    access_list.write_text(ACCESS_LIST)
    settings = {
        "access.acl_file": access_list,
        "stream.tables_max": 2,
        "status.sys_interval_s": 0.2,
        "limits.max_mqueue_len": 0,
    }
    made = Broker(tmp_path, settings, stream=True)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def stream(broker: Broker) -> Iterator[StreamClient]:
    host, port = broker.stream_address
    with StreamClient(f"{host}:{port}", 60, own_token(broker)) as client:
        yield client


def own_token(broker: Broker) -> Credentials:
    """Of programs of the broker's user: beside an access list nobody is let in without a token."""
    return Credentials(token_file=str(broker.data_dir / OWN_FILE))


def asking(
    *tables: str, correlation: bytes | None = None, topic: str | None = "answers/p"
) -> Properties:
    return Properties(
        response_topic=topic,
        correlation_data=correlation,
        user_properties=[("colour", "red"), *((RECEIPT, table) for table in tables)],
    )


def landed(stream: StreamClient, table: str, end: int | None = None, **more: object) -> int:
    """As a job tells it, until publishers know; ``end`` is the log's without it."""
    log = stream.offsets("messages")
    end = log.latest if end is None else end
    given: dict[str, object] = {"topics": (), "epoch": log.epoch, "since": 0} | more
    told = -1
    while told < end:
        told = stream.report_progress(ReportProgress(table, "messages", end=end, **given))  # type: ignore[arg-type]
    return told


def state(stream: StreamClient, table: str) -> TableState | None:
    return next((found for found in stream.tables() if found.table == table), None)


def words(message: Publish) -> dict[str, str]:
    assert message.properties is not None
    return dict(message.properties.user_properties or [])


def correlation(message: Publish) -> bytes:
    assert message.properties is not None
    return message.properties.correlation_data or b""


def test_publishers_who_asked_are_told_once_their_table_has_the_message(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publisher = clients.join(broker, "p")
    publisher.subscribe("answers/p")
    assert publisher.publish("plant/1", b"0", properties=asking("readings", correlation=b"a")) == 0
    publisher.publish("plant/1", b"1", properties=asking("*", correlation=b"b"))
    publisher.publish("plant/1", b"2", properties=asking("other", correlation=b"c"))
    publisher.publish("plant/1", b"3", properties=asking("readings", topic=None))
    publisher.publish("plant/1", b"4", properties=Properties(response_topic="answers/p"))
    publisher.publish("plant/1", b"5")
    publisher.publish("plant/2", b"6", properties=asking("x", "readings", correlation=b"d"))
    publisher.publish("plant/1", b"7", qos=0, properties=asking("readings", correlation=b"e"))
    assert publisher.settle() == [], "an acknowledgement is no receipt"
    log = stream.offsets("messages")

    assert landed(stream, "readings", 1, topics=("plant/1",)) == 1
    first = publisher.take()
    assert (first.topic, first.payload, first.qos, first.retain) == ("answers/p", b"", 1, False)
    assert correlation(first) == b"a"
    found = words(first)
    assert found.pop("penstock-landed-at").endswith("+00:00")
    assert found.pop("penstock-mark") == str(stream.mark_at("messages", log.epoch, 1))
    assert found == {RECEIPT: "readings", "penstock-offset": "0", "penstock-epoch": log.epoch}
    assert publisher.settle() == [], "the others have not landed"

    landed(stream, "readings", log.latest, topics=("plant/1",))
    more = [publisher.take(), publisher.take()]
    assert [(correlation(m), words(m)["penstock-offset"]) for m in more] == [
        (b"b", "1"),
        (b"e", "7"),
    ]
    landed(stream, "readings", log.latest, topics=("plant/1",))
    assert publisher.settle() == [], "nobody is told twice while nothing is killed"

    landed(stream, "all", log.latest)
    assert [correlation(publisher.take())] == [b"b"]
    assert [(s.table, s.receipts, s.refused) for s in stream.tables()] == [
        ("readings", 3, 0),
        ("all", 1, 0),
    ]


def test_a_table_that_begins_later_or_anew_says_so(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publisher = clients.join(broker, "p")
    publisher.subscribe("answers/p")
    for number in range(6):
        publisher.publish("plant/1", b"", properties=asking("t", correlation=b"%d" % number))
    landed(stream, "t", 5, since=3)
    assert [correlation(publisher.take()) for _ in range(2)] == [b"3", b"4"]
    landed(stream, "t", 2, since=0)
    assert publisher.settle() == [], "it has less than before: it was begun anew"
    landed(stream, "t", 4, since=0)
    assert [correlation(publisher.take()) for _ in range(2)] == [b"2", b"3"]
    landed(stream, "t", 6, since=5, topics=("plant/#",))
    assert correlation(publisher.take()) == b"5", "another selection is another table"


def test_the_response_topic_must_be_open_to_the_publisher(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publisher = clients.join(broker, "p")
    publisher.subscribe("commands/p", "answers/p")
    publisher.publish("plant/1", b"", properties=asking("t", topic="commands/p"))
    publisher.publish("plant/1", b"", properties=asking("t", topic="$SYS/broker/uptime"))
    publisher.publish("plant/1", b"", properties=asking("t"))
    gone = clients.join(broker, "gone")
    gone.publish("plant/1", b"", properties=asking("t", topic="commands/p"))
    gone.publish("plant/1", b"", properties=asking("t", correlation=b"of one who left"))
    gone.disconnect()
    landed(stream, "t")
    assert [publisher.take().topic, correlation(publisher.take())] == [
        "answers/p",
        b"of one who left",
    ]
    assert publisher.settle() == []
    found = state(stream, "t")
    assert found is not None
    assert (found.receipts, found.refused) == (2, 3)
    wait_until_logged(broker, "receipts of table t could not be sent: the message has left the log")


def test_the_user_of_one_who_is_away_is_known_after_a_restart(
    tmp_path: Path, clients: Clients
) -> None:
    """What he may do counts, and not what an anonymous client may."""
    write_passwords(tmp_path / "passwords", {"press": CHEAP.hash("press's")})
    (tmp_path / "acl").write_text(
        "user press\ntopic readwrite plant/#\ntopic readwrite answers/#\n"
    )
    settings = {
        "access.password_file": tmp_path / "passwords",
        "access.acl_file": tmp_path / "acl",
    }

    def log_in(client_id: str) -> RawClient:
        client = clients.open(guarded)
        kept = Properties(session_expiry_interval=3600)
        client.send(Connect(client_id, V5, True, 0, None, "press", b"press's", kept))
        assert client.expect(Connack).reason_code == 0
        return client

    with running_broker(tmp_path, settings, stream=True) as guarded:
        publisher = log_in("p")
        publisher.publish("plant/1", b"", properties=asking("t", correlation=b"a"))
        publisher.disconnect()
        guarded.restart()
        receiver = log_in("r")
        receiver.subscribe("answers/p")
        host, port = guarded.stream_address
        with StreamClient(f"{host}:{port}", 60, own_token(guarded)) as stream:
            landed(stream, "t")
        assert correlation(receiver.take()) == b"a"


def test_everybody_is_told_at_least_once_when_the_broker_is_killed_in_between(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    """More than one request holds, in chunks larger than that; the receiver has a session."""
    receiver = clients.join(broker, "receiver", expiry_s=3600)
    receiver.subscribe("answers/p", qos=1)
    publisher = clients.join(broker, "p")
    count = 4 * OFFSETS_MAX + 7
    publish_all(publisher, count)
    log = stream.offsets("messages")
    landed(stream, "t", 1)
    counts: Counter[bytes] = Counter()
    kills = 0
    told = 0
    while told < log.latest:
        asked = ReportProgress("t", "messages", (), log.epoch, 0, min(log.latest, told + 700))
        told = stream.report_progress(asked)
        counts[correlation(receiver.take())] += 1
        if kills < 2:
            kills += 1
            broker.restart()  # by SIGKILL; what the file says of the offset may be older
            receiver = clients.join(
                broker, "receiver", clean_start=False, expiry_s=3600, present=True
            )

    def complete() -> bool:
        counts[correlation(receiver.take())] += 1
        return len(counts) == count

    wait_for("every receipt", complete)
    assert set(counts) == {b"%d" % number for number in range(count)}


def publish_all(publisher: RawClient, count: int) -> None:
    """In windows, so that one commit has many."""
    window = 500
    for begin in range(0, count, window):
        numbers = range(begin, min(count, begin + window))
        publisher.send(
            *(
                Publish(
                    "plant/1",
                    b"",
                    1,
                    packet_id=1 + number % window,
                    properties=asking("t", correlation=b"%d" % number),
                )
                for number in numbers
            )
        )
        for _ in numbers:
            publisher.expect(Puback)


def test_the_progress_of_tables_is_told_and_outlasts_a_crash(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publisher = clients.join(broker, "p")
    publisher.publish("plant/1", b"", properties=asking("/data/a b", correlation=b"a"))
    publisher.publish("plant/1", b"")
    publisher.publish("plant/1", b"")
    landed(stream, "/data/a b", 1)
    broker.restart()
    host, port = broker.stream_address
    token = str(broker.data_dir / OWN_FILE)
    reaching = ["--server", f"{host}:{port}", "--token-file", token]
    end = stream.offsets("messages").latest

    def command(*given: str) -> subprocess.CompletedProcess[str]:
        return run_penstock("stream", *given, *reaching)

    found = json.loads(command("tables", "--json").stdout)
    assert (found["table"], found["offset"], found["lag_messages"]) == ("/data/a b", 1, end - 1)
    assert (found["receipts"], found["refused"]) == (1, 0)
    assert found["lag_s"] > 0
    assert "/data/a b  messages  1" in command("tables").stdout
    watcher = clients.join(broker, "watcher")
    watcher.subscribe("$SYS/broker/tables/%2Fdata%2Fa b/offset")
    assert watcher.take().payload == b"1"
    assert command("forget", "/data/a b").returncode == 0
    assert command("forget", "t").stderr == "penstock: there is no table t\n"
    assert stream.tables() == []


def test_impossible_progress_is_one_sentence(stream: StreamClient) -> None:
    log = stream.offsets("messages")

    def tell(
        table: str, stream_name: str = "messages", epoch: str = log.epoch, end: int = 0
    ) -> None:
        stream.report_progress(ReportProgress(table, stream_name, (), epoch, 0, end))

    with pytest.raises(
        EpochMismatch, match=r"^the offsets belong to epoch old, and the log is now"
    ):
        tell("t", epoch="old")
    with pytest.raises(ConfigError, match=r"^there is no stream 'nothing'"):
        tell("t", "nothing")
    with pytest.raises(
        ConfigError, match=r"^the table t cannot have landed 0 to 1: the log ends at 0"
    ):
        tell("t", end=1)
    with pytest.raises(ConfigError, match=r"^the name of a table must be 1 to 200 printable chara"):
        tell("*")
    tell("a")
    tell("b")
    with pytest.raises(ConfigError, match=r"^there is no place for the table c: 2 are known \(str"):
        tell("c")
