"""A real broker and the socket of a service manager: ready, alive, reloading, stopping."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.broker import Broker
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.fixtures import Clients
from tests.support.notify_socket import NotifySocket

Start = Callable[..., Broker]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[NotifySocket]:
    made = NotifySocket(tmp_path / "notify")
    yield made
    made.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    brokers: list[Broker] = []

    def started(
        manager: NotifySocket, watchdog_s: float = 0.0, settings: dict[str, object] | None = None
    ) -> Broker:
        broker = Broker(tmp_path, settings)
        brokers.append(broker)
        for name, value in manager.environment(watchdog_s).items():
            broker.set_environment(name, value)
        broker.start()
        return broker

    yield started
    for broker in brokers:
        broker.close()


def test_a_start_asks_for_time_and_is_ready_once_clients_can_connect(
    start: Start, manager: NotifySocket
) -> None:
    broker = start(manager)
    first = manager.next()
    assert first is not None
    assert int(first["EXTEND_TIMEOUT_USEC"]) >= 10_000_000
    ready = manager.expect("READY")
    assert ready["READY"] == "1"
    assert f"{broker.port}" in ready["STATUS"]
    socket.create_connection(broker.address, 5).close()
    assert [message["STATUS"] for message in manager.seen if set(message) == {"STATUS"}] == [
        "opening the store",
        "recovering sessions and retained messages",
    ]


def test_a_mistake_is_never_ready(start: Start, manager: NotifySocket, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no directory")
    with pytest.raises(AssertionError, match="ended before it was ready"):
        start(manager)
    while manager.next(0.001):
        pass
    assert not any("READY" in message for message in manager.seen)


def test_a_reload_is_told_with_its_beginning_and_its_end(
    start: Start, manager: NotifySocket
) -> None:
    """As Type=notify-reload wants it: the time tells this reload from an earlier one."""
    broker = start(manager)
    manager.expect("READY")
    before_us = time.monotonic_ns() // 1000
    broker.process.send_signal(signal.SIGHUP)
    reloading = manager.expect("RELOADING")
    assert reloading["RELOADING"] == "1"
    assert before_us <= int(reloading["MONOTONIC_USEC"]) <= time.monotonic_ns() // 1000
    assert manager.expect("READY")["STATUS"] == "reloaded"


def test_a_reload_that_is_refused_is_over_too(
    start: Start, manager: NotifySocket, tmp_path: Path
) -> None:
    """Else the unit would be reloading for ever."""
    acl = tmp_path / "acl"
    acl.write_text("topic read #\n")
    broker = start(manager, settings={"access.acl_file": acl})
    manager.expect("READY")
    acl.write_text("nonsense\n")
    broker.process.send_signal(signal.SIGHUP)
    manager.expect("RELOADING")
    status = manager.expect("READY")["STATUS"]
    assert status.startswith("a reload was refused, nothing was changed: ")
    assert str(acl) in status


def test_the_watchdog_is_silent_while_the_loop_stands_still(
    start: Start, manager: NotifySocket, clients: Clients
) -> None:
    broker = start(manager, 1.0)
    manager.expect("READY")
    for _ in range(3):
        manager.expect("WATCHDOG")
    assert clients.join(broker, "c").publish("t", b"x", 1) is not None
    broker.process.send_signal(signal.SIGSTOP)
    try:
        wait_for("it to stand still", lambda: state_of(broker) == "T")
        while manager.next(0.001):  # sent before
            pass
        assert manager.next(1.5) is None
    finally:
        broker.process.send_signal(signal.SIGCONT)
    manager.expect("WATCHDOG")


def test_a_stop_is_told_before_clients_are_sent_away(start: Start, manager: NotifySocket) -> None:
    broker = start(manager)
    manager.expect("READY")
    assert broker.stop() == 0
    assert manager.expect("STOPPING")["STOPPING"] == "1"


def test_an_abstract_socket_will_do(start: Start) -> None:
    manager = NotifySocket(f"@penstock-test-{os.getpid()}")
    try:
        start(manager)
        manager.expect("READY")
    finally:
        manager.close()


def state_of(broker: Broker) -> str:
    """The state of its process, as in /proc."""
    return Path(f"/proc/{broker.process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_lines_for_the_journal_have_priorities(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    broker.log_path.touch()
    status = broker.log_path.stat()
    broker.set_environment("JOURNAL_STREAM", f"{status.st_dev}:{status.st_ino}")
    try:
        broker.start()
        broker.stop()
        wait_until_logged(broker, "<6>20")
        assert all(line.startswith("<") for line in broker.log().splitlines())
    finally:
        broker.close()
