"""`penstock tail` and `penstock replay` as processes, on the log of a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from penstock.protocol.encode import encode
from penstock.protocol.kinds import PINGREQ, PUBLISH, V5
from penstock.protocol.packets import Pingresp, Puback
from penstock.protocol.properties import Properties
from penstock.stream.client import StreamClient
from penstock.stream.rows import STREAM_SCHEMA
from tests.support.broker import Broker
from tests.support.commands import Command, run, running
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fake_server import FakeServer, only_to
from tests.support.fixtures import Clients, running_broker
from tests.support.seen_packets import Seen

PRODUCED = [("penstock-producer", "p"), ("penstock-sequence", "1"), ("k", "v")]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("tail"), stream=True) as started:
        yield started


def server(broker: Broker) -> tuple[str, str]:
    return ("--server", ":".join(map(str, broker.stream_address)))


def at(broker: Broker) -> tuple[str, ...]:
    return (*server(broker), "-h", broker.host, "-p", str(broker.port))


def logged(broker: Broker, count: int) -> int:
    """Wait until the log has so many messages more than nothing; the offset after the last."""

    def end() -> int | None:
        with StreamClient(server(broker)[1], DEADLINE_S) as client:
            latest = client.offsets("messages").latest
        return latest if latest >= count else None

    return wait_for("the messages to be in the log", end)


def published(broker: Broker, clients: Clients, name: str, count: int) -> int:
    """Publish ``count`` messages to NAME/0, NAME/1 in turn; the offset of the first."""
    with StreamClient(server(broker)[1], DEADLINE_S) as client:
        first = client.offsets("messages").latest
    publisher = clients.join(broker, f"{name}p")
    for n in range(count):
        properties = Properties(content_type="x", user_properties=PRODUCED[2:]) if n == 1 else None
        publisher.publish(f"{name}/{n % 2}", b"%d" % n, qos=1, properties=properties)
    logged(broker, first + count)
    return first


def tailed(broker: Broker, *options: str) -> list[str]:
    code, output, told = run("tail", *server(broker), *options)
    assert code == 0, told
    return output.decode().splitlines()


def test_the_last_messages_have_their_time_offset_topic_and_payload(
    broker: Broker, clients: Clients, name: str
) -> None:
    first = published(broker, clients, name, 12)
    lines = [line.split(" ") for line in tailed(broker, "-t", f"{name}/#")]
    assert [int(line[2]) for line in lines] == list(range(first + 2, first + 12))
    assert lines[0][3:] == [f"{name}/0", "2"]
    assert all(line[0].count("-") == 2 and line[1].count(":") == 2 for line in lines)
    few = tailed(broker, "-t", f"{name}/1", "--last", "2", "-F", "%o|%c|%t|%p|%E")
    assert few == [f"{first + n}|{name}p|{name}/1|{n}|" for n in (9, 11)]


def test_a_range_of_offsets_and_times_is_chosen(
    broker: Broker, clients: Clients, name: str
) -> None:
    first = published(broker, clients, name, 6)
    span = ("--from", str(first + 1), "--until", str(first + 3))
    objects = [json.loads(line) for line in tailed(broker, *span, "--json")]
    assert [one["offset"] for one in objects] == [first + 1, first + 2]
    assert objects[0]["properties"] == {
        "content_type": "x",
        "user_properties": [["k", "v"]],
    }
    assert objects[0]["client_id"] == f"{name}p"
    cut = objects[1]["received"]
    form = ("-t", f"{name}/#", "-F", "%p")
    assert tailed(broker, "--from", cut, *form) == ["2", "3", "4", "5"]
    assert tailed(broker, "--from", "-10m", "--until", cut, "--last", "1", *form) == ["1"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--from", "999999"), b"--from 999999 is not in the log yet, which ends before offset"),
        (("--from", "2", "--until", "2"), b"is not after --from 2"),
        (("--from", "10:00", "--until", "2020-01-01"), b"is not after --from 10:00: they are 20"),
        (("--output", "/nowhere/x.csv"), b"--output /nowhere/x.csv: No such file"),
    ],
)
def test_a_mistake_is_told_with_what_to_do(
    broker: Broker, clients: Clients, name: str, options: tuple[str, ...], sentence: bytes
) -> None:
    published(broker, clients, name, 3)
    code, output, told = run("tail", *server(broker), *options)
    assert code in (1, 2)
    assert output == b""
    assert sentence in told


def test_new_messages_are_followed_until_a_signal(
    broker: Broker, clients: Clients, name: str
) -> None:
    published(broker, clients, name, 1)
    options = ("--follow", "-t", f"{name}/#", "-F", "%p")
    with running("tail", *server(broker), *options) as command:
        assert command.line() == b"0\n"
        clients.join(broker, f"{name}q").publish(f"{name}/9", b"more", qos=1)
        assert command.line() == b"more\n"
        command.ask_to_end()
        assert command.finish() == (0, b"", b"")


def test_a_file_is_whole_and_has_all_columns(
    broker: Broker, clients: Clients, name: str, tmp_path: Path
) -> None:
    first = published(broker, clients, name, 4)
    clients.join(broker, f"{name}b").publish(name, b'\xff,"\r\n', qos=1)
    logged(broker, first + 5)
    options = ("--from", str(first))
    for kind in ("parquet", "csv", "jsonl"):
        path = tmp_path / f"out.{kind}"
        code, _, told = run("tail", *server(broker), *options, "--output", str(path))
        assert (code, told) == (0, f"penstock: {path} has 5 messages\n".encode())
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert table.schema.equals(STREAM_SCHEMA)
    assert table.column("offset").to_pylist() == list(range(first, first + 5))
    assert (tmp_path / "out.csv").read_bytes().splitlines()[-1].count(b"base64") == 1
    last = json.loads((tmp_path / "out.jsonl").read_bytes().splitlines()[-1])
    assert last["encoding"] == "base64"
    assert {path.name for path in tmp_path.iterdir()} == {
        "out.parquet", "out.csv", "out.jsonl"
    }  # fmt: skip
    code, _, told = run("tail", *server(broker), *options, "--output", str(path))
    assert (code, b"give --force" in told) == (2, True)


def test_messages_are_published_again_under_other_topics(
    broker: Broker, clients: Clients, name: str
) -> None:
    first = published(broker, clients, name, 4)
    publisher = clients.join(broker, f"{name}r")
    publisher.publish(
        f"{name}/0", b"kept", qos=1, retain=True, properties=Properties(user_properties=PRODUCED)
    )
    logged(broker, first + 5)
    subscriber = clients.join(broker, f"{name}s")
    subscriber.subscribe("again/#", qos=2)
    options = ("--from", str(first), "-t", f"{name}/#", "--as-fast-as-possible")
    shown = run("replay", *at(broker), *options, "--prefix", "again/", "--dry-run")
    assert shown[0] == 0, shown
    assert b"5 messages would be published in 0.0 s" in shown[1]
    assert f"  3  {name}/0 \u2192 again/{name}/0".encode() in shown[1]
    code, output, told = run("replay", *at(broker), *options, "--prefix", "again/")
    assert (code, output, told) == (0, b"", b"penstock: 5 messages were published\n")
    taken = [subscriber.take() for _ in range(5)]
    assert [(one.topic, one.payload) for one in taken] == [
        (f"again/{name}/0", b"0"),
        (f"again/{name}/1", b"1"),
        (f"again/{name}/0", b"2"),
        (f"again/{name}/1", b"3"),
        (f"again/{name}/0", b"kept"),
    ]
    assert taken[1].properties == Properties(content_type="x", user_properties=[("k", "v")])
    assert taken[4].properties == Properties(user_properties=[("k", "v")])
    assert {one.qos for one in taken} == {1}
    assert tailed(broker, "-t", f"again/{name}/0", "--json", "--last", "1")[0].count(
        '"retain": false'
    )


def test_nothing_is_published_to_the_topics_it_came_from_unless_that_is_said(
    broker: Broker, clients: Clients, name: str
) -> None:
    first = published(broker, clients, name, 2)
    options = ("--from", str(first), "-t", f"{name}/#", "--as-fast-as-possible")
    code, _, told = run("replay", *at(broker), *options)
    assert code == 2
    assert b"--to-same-topics if that is meant" in told
    assert run("replay", *at(broker), *options, "--to-same-topics")[0] == 0
    payloads = tailed(broker, "--from", str(first), "-t", f"{name}/#", "-F", "%p")
    assert payloads == ["0", "1", "0", "1"]  # and not what it published itself


async def test_a_replay_that_is_interrupted_waits_for_acknowledgements(
    broker: Broker, clients: Clients, name: str
) -> None:
    """The acknowledgement comes with the answer to the first PINGREQ after the signal."""
    first = published(broker, clients, name, 3)
    end = logged(broker, first + 3)
    commands: list[Command] = []
    held: list[Seen] = []

    def interrupt(packet: Seen) -> bytes:
        held.append(packet)
        commands[0].ask_to_end()
        return b""

    def acknowledge(_: Seen) -> bytes:  # a busy machine may ping before it publishes
        acknowledged = encode(Puback(held[0].packet_id), V5) if held else b""
        return acknowledged + encode(Pingresp(), V5)

    answer = only_to(PUBLISH, interrupt, only_to(PINGREQ, acknowledge))
    async with FakeServer(answer) as target:
        host, port = target.address
        to_target = ("-h", host, "-p", str(port), "-k", "1", "--prefix", "p/")
        with running(
            "replay", *server(broker), *to_target, "--speed", "0.001", "--from", str(first)
        ) as command:
            commands.append(command)
            code, _, told = await asyncio.to_thread(command.finish)
    assert code == 1
    assert f"the rest: --from {first + 1} --until {end}, without --last".encode() in told
    assert b"interrupted: 1 message was published" in told


def test_a_replay_that_is_interrupted_says_where_the_rest_begins(
    broker: Broker, clients: Clients, name: str
) -> None:
    first = published(broker, clients, name, 3)
    end = logged(broker, first + 3)
    subscriber = clients.join(broker, f"{name}s")
    subscriber.subscribe("slow/#", qos=1)
    options = ("--from", str(first), "--prefix", "slow/", "--speed", "0.001")
    with running("replay", *at(broker), *options) as command:
        assert subscriber.take().payload == b"0"
        command.ask_to_end()
        code, _, told = command.finish()
    assert code == 1
    rest = f"the rest: --from {first + 1} --until {end}, without --last"
    assert rest.encode() in told
    assert b"interrupted: 1 message was published" in told
