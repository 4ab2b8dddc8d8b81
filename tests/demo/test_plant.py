"""examples/plant, the programs that a newcomer copies: all of them, as their README has them."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from penstock.config.load import load_settings
from penstock.protocol.kinds import PUBACK
from tests.support import recording_subscriber
from tests.support.admin_http import get
from tests.support.broker import SERVE, Broker
from tests.support.deadline import wait_for
from tests.support.environment import environment
from tests.support.fault_proxy import FOREVER, FaultProxy
from tests.support.fixtures import Clients
from tests.support.seen_packets import UP

pytest.importorskip("pyspark", reason="the extra spark is not installed")
pytest.importorskip("starlette", reason="the extra admin is not installed")

PLANT: Final = Path(__file__).parents[2] / "examples" / "plant"
LIMIT_S: Final = 900  # Spark starts, and other tests may have the cores
TOKEN: Final = "0123456789abcdef" * 4


def reading(number: int) -> bytes:
    return b'{"n": %d, "celsius": %d}' % (number, number)


def started(directory: Path, name: str, **settings: str) -> Broker:
    """The broker of a configuration, on ports and in a directory of the test."""
    (directory / name).mkdir()
    command = [*SERVE, "--config", str(PLANT / f"{name}.toml")]
    broker = Broker(directory / name, settings, command=command, stream=name == "plant")
    broker.start()
    return broker


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Broker]:
    token_file = tmp_path / "token"
    token_file.write_text(f"me:{TOKEN} admin\n")
    token_file.chmod(0o600)
    settings = {"admin.bind": "127.0.0.1:0", "admin.token_file": str(token_file)}
    broker = started(tmp_path, "plant", **settings)
    get(broker, "/healthz")  # waits for the admin process
    yield broker
    broker.close()


@pytest.fixture
def site(tmp_path: Path, plant: Broker) -> Iterator[Broker]:
    text = (PLANT / "site.toml").read_text()
    assert "mqtt://127.0.0.1:1883" in text
    moved = tmp_path / "site.toml"
    moved.write_text(text.replace("127.0.0.1:1883", f"127.0.0.1:{plant.port}"))
    (tmp_path / "site").mkdir()
    broker = Broker(tmp_path / "site", command=[*SERVE, "--config", str(moved)])
    broker.start()
    yield broker
    broker.close()


def stream_of(broker: Broker) -> str:
    host, port = broker.stream_address
    return f"{host}:{port}"


@contextmanager
def running(*arguments: object, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A program of the example, killed with the block if it runs still."""
    program = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=PLANT,
        env=environment() | variables,
    )
    try:
        yield program
    finally:
        program.kill()
        program.communicate()


def said(code: int, *arguments: object, **variables: str) -> str:
    """What a program of the example prints before it ends with this code."""
    with running(*arguments, **variables) as program:
        output, errors = program.communicate(timeout=LIMIT_S)
        assert program.returncode == code, errors
    return output


def run(*arguments: object) -> str:
    """What a program of the example prints."""
    return said(0, *arguments)


def rows(archive: Path, query: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(archive)) as database:
        return database.execute(query).fetchall()


def session_of(broker: Broker, client_id: str) -> dict[str, Any]:
    path = f"/api/v1/session?client_id={client_id}"
    found: dict[str, Any] = get(broker, path, Authorization=f"Bearer {TOKEN}").json
    return found


@pytest.mark.timeout(LIMIT_S + 60)
def test_each_reading_comes_once_and_in_order_though_device_and_brokers_are_killed(
    plant: Broker, site: Broker, tmp_path: Path
) -> None:
    record = tmp_path / "record"
    device = ("device.py", f"mqtt://127.0.0.1:{site.port}", tmp_path / "outbox")

    def numbers() -> list[int]:
        lines = (line.partition(" ") for line in record.read_text().splitlines(keepends=True))
        texts = [text for topic, _, text in lines if topic == "plant/a/7/temp"]
        return [json.loads(text)["n"] for text in texts if text.endswith("\n")]

    def has_come_to(count: int) -> bool:
        return len(numbers()) > count

    record.touch()
    with running(recording_subscriber.__file__, f"mqtt://127.0.0.1:{plant.port}", record):
        wait_for("the subscription", lambda: "subscribed" in record.read_text())
        for victim in (None, site, plant):
            come_to = len(numbers()) + 60
            with running(*device, 300) as program:
                wait_for("some readings", partial(has_come_to, come_to))
                program.kill()
            if victim is not None:
                victim.restart()
        last = int(run(*device, 10))
        wait_for("the last reading", lambda: last in numbers())
        assert numbers() == list(range(1, last + 1))


def test_the_site_takes_its_commands_and_says_whether_it_is_connected(
    plant: Broker, site: Broker, clients: Clients
) -> None:
    at_plant = clients.join(plant, "p")
    at_plant.subscribe("sites/a/connected", qos=1)
    assert at_plant.take().payload == b"1"
    machine = clients.join(site, "m")
    machine.subscribe("commands/#", qos=2)
    at_plant.publish("commands/b/7/set", b"of another site", 2)
    at_plant.publish("commands/a/7/set", b"22", 2)
    command = machine.take()
    assert (command.topic, command.payload) == ("commands/7/set", b"22")
    assert machine.settle() == []


@pytest.mark.timeout(LIMIT_S + 60)
def test_a_consumer_that_is_killed_before_it_commits_gets_the_messages_again(
    plant: Broker, clients: Clients, tmp_path: Path
) -> None:
    archive = tmp_path / "archive.db"
    consumer = ("consumer.py", f"mqtt://127.0.0.1:{plant.port}", archive)
    assert run(*consumer) == "0 None\n"
    for number in range(20):
        clients.join(plant, "d").publish("plant/a/7/temp", reading(number), 1)
    with closing(sqlite3.connect(archive)) as other:
        other.execute("BEGIN IMMEDIATE")  # the consumer waits for this to end
        with running(*consumer):
            wait_for("the messages", lambda: session_of(plant, "archive")["queue"] == 0)
    assert session_of(plant, "archive")["window"] == 20
    assert run(*consumer) == "20 19.0\n"


@pytest.mark.timeout(LIMIT_S + 60)
def test_messages_that_a_consumer_stored_and_did_not_acknowledge_are_one_row_each(
    plant: Broker, clients: Clients, tmp_path: Path
) -> None:
    archive = tmp_path / "archive.db"
    device = clients.join(plant, "d")
    with FaultProxy(plant.address) as proxy:
        proxy.swallow(UP, PUBACK, times=FOREVER)
        consumer = ("consumer.py", f"mqtt://{proxy.address[0]}:{proxy.address[1]}", archive)
        run(*consumer)
        for number in range(20):
            device.publish(f"plant/a/{number % 2}/temp", reading(number // 2), 1)
        device.publish("plant/a/1/temp", b'{"n": ', 1)
        assert run(*consumer) == "20 9.0\n"
        assert session_of(plant, "archive")["window"] == 21
    assert run("consumer.py", f"mqtt://127.0.0.1:{plant.port}", archive) == "20 9.0\n"
    assert session_of(plant, "archive")["window"] == 0
    assert rows(archive, "SELECT * FROM rejected") == [("plant/a/1/temp", b'{"n": ')]


@pytest.mark.timeout(LIMIT_S + 60)
def test_a_consumer_that_is_long_away_misses_nothing(plant: Broker, tmp_path: Path) -> None:
    """More than 1,000 messages, which is the bound of a queue unless a configuration says more."""
    run("consumer.py", f"mqtt://127.0.0.1:{plant.port}", tmp_path / "archive.db")
    run("device.py", f"mqtt://127.0.0.1:{plant.port}", tmp_path / "outbox", 1010)
    assert session_of(plant, "archive")["queue"] == 1010


@pytest.mark.timeout(LIMIT_S + 60)
def test_readings_come_from_the_device_to_table_database_and_spark(
    plant: Broker, site: Broker, tmp_path: Path
) -> None:
    url = f"mqtt://127.0.0.1:{plant.port}"
    archive = tmp_path / "archive.db"
    run("consumer.py", url, archive)  # its session is there now
    device = ("device.py", f"mqtt://127.0.0.1:{site.port}", tmp_path / "outbox")
    run(*device, 60)
    site.kill()
    site.start()
    run(*device, 40)  # it goes on behind the 60th
    api = (f"{plant.admin_url}/api/v1", TOKEN)
    wait_for("the readings", lambda: run("long_queues.py", *api, 100) == "archive 100\n")
    assert run("consumer.py", url, archive) == "100 24.5\n"
    numbers = rows(archive, "SELECT n FROM reading ORDER BY n")
    assert numbers == [(number,) for number in range(1, 101)]
    averages = run("averages.py", stream_of(plant), tmp_path / "table")
    assert averages == "a 100 22.25\n100 rows\n"
    assert run("long_queues.py", *api, 1) == ""


def test_the_tables_of_the_example_are_right(plant: Broker, clients: Clients) -> None:
    clients.join(plant, "d").publish("plant/a/7/temp", b'{"n": 1, "celsius": 20.5}', 1)
    settings = load_settings(PLANT / "plant.toml", environ={})
    assert [table.name for table in settings.tables.declared] == ["temperatures"]
    where = ["--config", PLANT / "plant.toml", "--server", stream_of(plant)]
    assert "temperatures: 1 rows" in run("-m", "penstock", "tables", "validate", *where)


def test_an_operator_ends_the_sessions_with_long_queues(plant: Broker, clients: Clients) -> None:
    for name in ("away", "elsewhere"):
        left = clients.join(plant, name, clean_start=False, expiry_s=600)
        left.subscribe(f"for/{name}", qos=1)
        left.disconnect()
    clients.join(plant, "p").publish("for/away", b"x", 1)
    api = (f"{plant.admin_url}/api/v1", TOKEN)
    assert run("long_queues.py", *api, 1) == "away 1\n"
    assert run("long_queues.py", *api, 1, "--remove") == "away 1\n"
    assert run("long_queues.py", *api, 0) == "elsewhere 0\n"


def test_an_operator_is_told_who_is_behind_and_why(plant: Broker, clients: Clients) -> None:
    for name in ("few", "many\n"):
        left = clients.join(plant, name, clean_start=False, expiry_s=600)
        left.subscribe(f"for/{name.strip()}", qos=1)
        left.disconnect()
    publisher = clients.join(plant, "p")
    for topic in ("for/few", "for/many", "for/many"):
        publisher.publish(topic, b"x", 1)
    behind = ("behind.py", f"{plant.admin_url}/api/v1")
    assert said(0, *behind, 2, TOKEN=TOKEN) == ""
    told = said(1, *behind, 1, TOKEN=TOKEN)
    assert told.startswith("many? 2: ")
    assert "is not connected" in told
    assert told.count("\n") == 1
    assert said(2, *behind, 1, TOKEN="another") == ""
    plant.kill()
    assert said(2, *behind, 1, TOKEN=TOKEN) == ""
