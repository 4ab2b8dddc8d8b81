"""examples/plant, the programs that a newcomer copies: all of them, as their README has them."""

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from penstock.config.load import load_settings
from tests.support.admin_http import get
from tests.support.broker import SERVE, Broker
from tests.support.deadline import wait_for
from tests.support.environment import environment
from tests.support.fixtures import Clients

pytest.importorskip("pyspark", reason="the extra spark is not installed")
pytest.importorskip("starlette", reason="the extra admin is not installed")

PLANT: Final = Path(__file__).parents[2] / "examples" / "plant"
LIMIT_S: Final = 900  # Spark starts, and other tests may have the cores
TOKEN: Final = "0123456789abcdef" * 4


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


def run(*arguments: object) -> str:
    """What a program of the example prints."""
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=PLANT,
        env=environment(),
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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
    with closing(sqlite3.connect(archive)) as database:
        numbers = database.execute("SELECT n FROM reading ORDER BY n").fetchall()
    assert numbers == [(number,) for number in range(1, 101)]
    assert run("averages.py", stream_of(plant)) == "a 100 22.25\n"
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
