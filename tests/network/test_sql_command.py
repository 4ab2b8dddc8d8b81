"""`penstock sql` as a process, on the log of a real broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet
import pytest

from penstock.stream.client import StreamClient
from tests.support.broker import Broker
from tests.support.commands import run, running
from tests.support.deadline import DEADLINE_S, wait_for
from tests.support.fixtures import Clients, running_broker
from tests.support.pseudo_terminal import on_a_terminal

DECLARED = """
[[tables.declared]]
name = "plant_line1"
topics = "plant/{machine}/temp"
decoder = { kind = "json", columns = { v = "float64" } }
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("sql"), stream=True) as started:
        yield started


@pytest.fixture
def command(broker: Broker, clients: Clients, tmp_path: Path) -> list[str]:
    """``sql`` with the address and a declared table; the log has three readings at least."""
    publisher = clients.join(broker, "publisher")
    for n, payload in enumerate((b'{"v": 1}', b'{"v": 2}', b"a\xff,\r\x1b[2J")):
        publisher.publish(f"plant/m{n}/temp", payload, qos=1)
    address = ":".join(map(str, broker.stream_address))
    with StreamClient(address, DEADLINE_S) as client:
        wait_for("the messages", lambda: client.offsets("messages").latest % 3 == 0)
    config = tmp_path / "penstock.toml"
    config.write_text(DECLARED)
    return ["sql", "--server", address, "--config", str(config)]


def test_a_statement_prints_its_rows_and_what_was_read(command: list[str]) -> None:
    text = (
        "SELECT machine, avg(v) AS mean FROM plant_line1"
        " WHERE received_at > now() - INTERVAL 1 HOUR AND topic = 'plant/m0/temp' GROUP BY ALL"
    )
    code, output, told = run(*command, text, "--explain")
    assert (code, output) == (0, b"machine,mean\r\nm0,1.0\r\n"), told
    assert b"plant_line1: " in told
    assert b"  topics: plant/m0/temp\n" in told
    assert b"  received since: 2" in told
    shown = run(
        *command, "--json", 'SELECT machine, v, qos, "offset" < 0 AS b FROM plant_line1 LIMIT 1'
    )
    assert json.loads(shown[1]) == {"machine": "m0", "v": 1.0, "qos": 1, "b": False}


def test_rows_become_a_whole_file_or_none(command: list[str], tmp_path: Path) -> None:
    parquet, csv = tmp_path / "out.parquet", tmp_path / "out.csv"
    text = 'SELECT "offset", payload, received_at FROM messages ORDER BY 1 LIMIT 3'
    assert run(*command, text, "--output", str(parquet))[0] == 0
    table = pyarrow.parquet.read_table(parquet)
    assert table.column("payload").to_pylist()[2] == b"a\xff,\r\x1b[2J"
    assert run(*command, text, "--output", str(csv))[0] == 0
    assert csv.read_bytes().count(b"\r\n") == 4
    for wrong, sentence in (
        ("SELECT 1 a, 2 a", b"two columns are called 'a'"),
        ("SELECT 'infinity'::TIMESTAMPTZ t", b"column t has an infinite time"),
    ):
        code, _, told = run(*command, wrong, "--output", str(tmp_path / "never.parquet"))
        assert code in (1, 2)
        assert sentence in told
    assert {path.name for path in tmp_path.iterdir()} == {"penstock.toml", "out.parquet", "out.csv"}


def test_ctrl_c_ends_a_statement(command: list[str]) -> None:
    long = "SELECT count(*) FROM range(1000000000000) t(n) WHERE md5(n::VARCHAR) = ''"
    with running(*command, f"SELECT 1 AS a; {long}") as started:
        assert (started.line(), started.line()) == (b"a\r\n", b"1\r\n")
        started.ask_to_end()
        assert started.finish() == (1, b"", b"penstock: interrupted\n")


def test_a_service_that_is_away_is_told_in_a_sentence() -> None:
    code, output, told = run("sql", "--server", "127.0.0.1:1", "SELECT 1")
    assert (code, output, told.count(b"\n")) == (1, b"", 1)
    assert told.startswith(b"penstock: no stream service answers at 127.0.0.1:1;")


def test_a_terminal_shows_a_table_and_obeys_no_payload(command: list[str]) -> None:
    text = 'SELECT machine, payload::BLOB FROM plant_line1 JOIN messages USING ("offset") LIMIT 9'
    shown = on_a_terminal([sys.executable, "-m", "penstock", *command, text])
    assert "machine" in shown
    assert "\x1b[2J" not in shown


def test_the_shell_runs_what_is_piped_into_it(command: list[str]) -> None:
    said = b"CREATE TABLE t AS SELECT 1 a;\nSELECT a FROM t; SHOW TABLES;"
    code, output, told = run(*command, said=said)
    assert (code, told) == (0, b"")
    assert (
        output.splitlines()[-4:] == [b"messages", b"plant_line1", b"t"] or b"plant_line1" in output
    )
    assert b"a\r\n1\r\n" in output
