"""`penstock bench` as a process, against Penstock and Mosquitto: its figures, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import mosquitto_broker
from tests.support.broker import Address, Broker
from tests.support.commands import run, running
from tests.support.deadline import DEADLINE_S
from tests.support.fixtures import Clients, running_broker
from tests.support.mosquitto_broker import Mosquitto


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("bench")
    with running_broker(directory, {"status.sys_interval_s": 1}, "memory") as started:
        yield started


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    started = Mosquitto(tmp_path_factory.mktemp("mosquitto"))
    try:
        started.start()
        yield started
    finally:
        started.close()


def at(address: Address) -> tuple[str, ...]:
    return ("bench", "-h", address[0], "-p", str(address[1]))


def figures(address: Address, *options: str) -> dict[str, Any]:
    """What it printed as JSON; it must have ended well."""
    code, output, told = run(*at(address), "--json", *options)
    assert (code, told) == (0, b""), output
    found: dict[str, Any] = json.loads(output)
    return found


def check_whole(found: dict[str, Any], sent: int, copies: int, qos: int) -> None:
    """Nothing is lost, repeated or out of order, and every copy has its latency."""
    assert found["messages"]["sent"] == sent
    assert found["messages"]["acknowledged"] == (sent if qos else 0)
    assert found["messages"]["refused"] == {}
    wanted = {"expected": copies, "received": copies, "lost": 0, "duplicated": 0}
    assert found["copies"] == {**wanted, "out_of_order": 0, "foreign": 0}
    assert found["payload_bytes"] == {"sent": sent * 100, "received": copies * 100}
    latency = found["latency_ms"]
    assert (latency["acknowledgement"] is None) is (qos == 0)
    assert 0 < latency["end_to_end"]["p50"] <= latency["end_to_end"]["max"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_every_copy_is_accounted_for(broker: Broker, name: str, qos: int) -> None:
    some = ("-P", "2", "-S", "4", "-s", "100", "-n", "300", "-w", "10", "-t", f"{name}/%i")
    found = figures(broker.address, *some, "-q", str(qos))
    check_whole(found, 300, 600, qos)


@mosquitto_broker.needed
@pytest.mark.parametrize(("qos", "version"), [(0, "3.1"), (1, "3.1.1"), (2, "5")])
def test_mosquitto_is_measured_too(mosquitto: Mosquitto, name: str, qos: int, version: str) -> None:
    some = ("-P", "2", "-S", "1", "-s", "100", "-n", "300", "-t", f"{name}/%i", "-V", version)
    found = figures(mosquitto.address, *some, "-q", str(qos))
    check_whole(found, 300, 300, qos)


def test_one_topic_for_all_reaches_everybody_and_no_session_stays(
    broker: Broker, clients: Clients, name: str
) -> None:
    common = ("-P", "2", "-S", "2", "-s", "100", "-n", "20", "-q", "1", "-c", "-I", name)
    check_whole(figures(broker.address, *common, "-t", name), 20, 40, 1)
    clients.join(broker, f"{name}w")
    code, output, _ = run("flow", "--broker", f"{broker.host}:{broker.port}", "--json")
    ours = {json.loads(line)["client_id"] for line in output.splitlines()}
    assert (code, {one for one in ours if one.startswith(name)}) == (0, {f"{name}w"})


def test_with_a_rate_the_figures_of_a_pipe_are_a_table(broker: Broker, name: str) -> None:
    timed = ("-r", "200", "-d", "0.2", "--warm-up", "0.05", "-q", "1", "-t", name)
    code, output, told = run(*at(broker.address), *timed)
    assert (code, told) == (0, b"")
    lines = [line.split() for line in output.decode().splitlines()]
    assert lines[0][:3] == ["1", "→", "1,"]
    named = {line[0]: line[1:] for line in lines if line}
    assert 1 <= int(named["sent"][0]) <= 50, "never more than is due"
    assert named["received"][0] == named["sent"][0]
    assert named["lost"] == ["0"]
    assert len(named["end"]) == 8, "end to end: mean, four quantiles, maximum"


def test_a_signal_ends_it_with_the_figures_so_far(
    broker: Broker, clients: Clients, name: str
) -> None:
    watcher = clients.join(broker, f"{name}w")
    watcher.subscribe(name)
    forever = ("-q", "1", "-d", "1000", "-r", "100", "-t", name)
    with running(*at(broker.address), *forever, "--json") as bench:
        watcher.take()
        bench.ask_to_end(signal.SIGINT)
        code, output, told = bench.finish()
    assert (code, told) == (0, b"")
    found = json.loads(output)
    assert found["interrupted"]
    assert found["copies"]["received"] == found["messages"]["sent"] > 0


def test_a_broker_that_is_killed_is_told_in_a_sentence_with_the_figures(
    own_broker: Broker, clients: Clients, name: str
) -> None:
    watcher = clients.join(own_broker, f"{name}w")
    watcher.subscribe(name)
    forever = ("-q", "1", "-d", "1000", "-r", "100", "-t", name, "--patience", "0.2", "--json")
    with running(*at(own_broker.address), *forever) as bench:
        watcher.take()
        own_broker.kill()
        code, output, told = bench.finish()
    found = json.loads(output)
    assert code == 1
    assert found["messages"]["sent"] > 0
    assert "of 2 clients had no connection" in found["failure"]
    sentences = told.decode().splitlines()
    assert all(line.startswith("penstock: ") for line in sentences)
    assert found["failure"] in told.decode()
    assert "Traceback" not in told.decode()


def test_a_broker_that_comes_back_loses_nothing_of_persistent_sessions(
    own_broker: Broker, clients: Clients, name: str
) -> None:
    watcher = clients.join(own_broker, f"{name}w")
    watcher.subscribe(name)
    steady = ("-q", "2", "-c", "-n", "100", "-r", "100", "-t", name, "--patience", "60")
    with running(*at(own_broker.address), *steady, "--json", "--quiet") as bench:
        watcher.take()
        own_broker.restart()
        code, output, told = bench.finish()
    assert (code, told) == (0, b""), output
    found = json.loads(output)
    assert found["reconnections"] >= 2
    assert (found["copies"]["received"], found["copies"]["duplicated"]) == (100, 0)


def test_a_broker_that_acknowledges_nothing_does_not_hold_it_for_ever() -> None:
    stuck = ("-V", "3.1.1", "-S", "0", "-q", "1", "-n", "5", "-w", "2")
    silence = ("--patience", "0.2", "--drain", "0.1", "--json")
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(DEADLINE_S)
        with running(*at(server.getsockname()), *stuck, *silence) as bench:
            connection, _ = server.accept()
            with connection:
                connection.settimeout(DEADLINE_S)
                assert connection.recv(65_536)[0] == 0x10  # CONNECT
                connection.sendall(b"\x20\x02\x00\x00")
                while connection.recv(65_536):
                    pass
                code, output, told = bench.finish()
    assert code == 1
    assert json.loads(output)["messages"]["unacknowledged"] == 2
    assert b"nothing came for 0.2 s" in told
    assert b"2 messages were not acknowledged" in told


def test_without_a_broker_it_says_so_in_one_sentence() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        code, output, told = run(*at(nobody.getsockname()), "-n", "1")
    assert (code, output) == (1, b"")
    assert told.startswith(b"penstock: mqtt://127.0.0.1:")
    assert told.count(b"\n") == 1
