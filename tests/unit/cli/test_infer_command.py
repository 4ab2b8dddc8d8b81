"""`penstock tables infer`: what it writes is tried by `validate`, on the same log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess
from tests.support.commands import run
from tests.support.pseudo_terminal import on_a_terminal

TOPICS = ("plant/a/7/temp", "plant/a/8/temp", "plant/b/9/temp")


def payload(n: int) -> bytes:
    return b"warm" if n == 99 else b'{"temp_c": %d.5, "ts": %d}' % (n % 30, 1_700_000_000_000 + n)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "data") as writer:
        yield writer


@pytest.fixture
def service(log: LogWriter) -> Iterator[ServiceProcess]:
    process = ServiceProcess(log.data_dir)
    process.start()
    yield process
    process.stop()


def penstock(service: ServiceProcess, *words: str) -> tuple[int, str, str]:
    code, output, errors = run("tables", *words, "--server", service.address)
    return code, output.decode(), errors.decode()


def test_the_tables_written_can_be_validated(
    tmp_path: Path, log: LogWriter, service: ServiceProcess
) -> None:
    log.append(300, topics=TOPICS, payload=payload)
    file = tmp_path / "tables.toml"
    code, output, errors = penstock(service, "infer", "--topics", "plant/#", "--output", str(file))
    assert (code, output) == (0, "")
    assert errors == (
        "1 table from 300 messages (plant_temp); 1 would be dead letters."
        f" Next: penstock tables validate -c {file}\n"
    )
    assert 'topics = "plant/{plant}/{level_3:int}/temp"' in file.read_text()

    code, output, _ = penstock(service, "validate", "-c", str(file))
    assert code == 0
    assert output.startswith("plant_temp: 299 rows, 1 dead letters\n")


def test_the_newest_messages_are_looked_at(log: LogWriter, service: ServiceProcess) -> None:
    log.append(3000, topics=("a/b",), payload=lambda n: b"old" if n < 2500 else b"%d" % n)
    code, output, _ = penstock(service, "infer", "--topics", "a/#", "--sample", "200")
    assert code == 0
    assert "# 200 messages at offsets 2800 to 2999." in output
    assert 'b = "int"' in output


def test_rare_messages_are_looked_for_further_back(log: LogWriter, service: ServiceProcess) -> None:
    log.append(10, topics=("a/rare",))
    log.append(20_000, topics=("a/frequent",))
    code, output, _ = penstock(service, "infer", "--topics", "a/rare", "--sample", "100")
    assert code == 0
    assert "# 10 messages at offsets 0 to 9." in output


def test_a_file_that_is_there_is_kept(
    tmp_path: Path, log: LogWriter, service: ServiceProcess
) -> None:
    log.append(10)
    file = tmp_path / "tables.toml"
    file.write_text("mine")
    words = ("infer", "--topics", "#", "--output", str(file))
    code, _, errors = penstock(service, *words)
    assert code == 2
    assert errors == f"penstock: {file} is there already: give --force to write over it\n"
    assert file.read_text() == "mine"
    assert penstock(service, *words, "--force")[0] == 0
    assert "[[tables.declared]]" in file.read_text()


def test_names_that_the_configuration_has_are_taken(
    tmp_path: Path, log: LogWriter, service: ServiceProcess
) -> None:
    log.append(10, topics=("plant/temp",))
    config = tmp_path / "penstock.toml"
    config.write_text('[[tables.declared]]\nname = "plant_temp"\ntopics = "x/#"\n')
    _, output, _ = penstock(service, "infer", "--topics", "#", "-c", str(config))
    assert 'name = "plant_temp_2"' in output
    assert f"# To be added to {config}." in output


def test_an_empty_log_is_told_from_topics_that_nobody_publishes(
    log: LogWriter, service: ServiceProcess
) -> None:
    code, output, errors = penstock(service, "infer", "--topics", "plant/#")
    assert (code, output) == (2, "")
    assert errors == "penstock: the log is empty: publish some messages to plant/#, and try again\n"
    log.append(10, topics=("home/kitchen", "home/hall"))
    errors = penstock(service, "infer", "--topics", "plant/#")[2]
    assert errors == (
        "penstock: no message in the stream messages matches plant/#;"
        " its newest topics are home/kitchen, home/hall\n"
    )
    errors = penstock(service, "infer", "--topics", "plant/#/x")[2]
    assert "makes no MQTT topic filter" in errors


def test_messages_without_payloads_make_no_table(log: LogWriter, service: ServiceProcess) -> None:
    log.append(10, payload=lambda _: b"")
    assert "have empty payloads" in penstock(service, "infer", "--topics", "#")[2]


def test_a_terminal_is_told_what_takes_its_time_and_obeys_no_payload(
    log: LogWriter, service: ServiceProcess
) -> None:
    log.append(10, topics=("a/b",), payload=lambda _: b'{"k\\u001b[31m": "\\u001b[2J"}')
    shown = on_a_terminal(
        [
            sys.executable,
            "-m",
            "penstock",
            "tables",
            "infer",
            "-t",
            "#",
            "--server",
            service.address,
        ]
    )
    assert "reading the log" in shown
    assert "k_31m" in shown
    assert "\x1b[2J" not in shown
