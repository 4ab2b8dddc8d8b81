"""The watchdog: it tells that the broker works only while turns and commits go round."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.services.service_manager import ServiceManager
from penstock.services.watchdog import Watchdog


class Running:
    """A driver and an engine, as far as the watchdog looks at them."""

    def __init__(self) -> None:
        self.turns = 0
        self.commit_attempts = -1
        self.context: Any = SimpleNamespace(store_failure="")
        self.connections: dict[str, object] = {}

    def watched(self) -> Watchdog:
        return Watchdog(ServiceManager({}, 1), self, self)  # type: ignore[arg-type]


def test_turns_that_end_are_a_sign_of_life() -> None:
    running = Running()
    watchdog = running.watched()
    running.turns = 1
    assert watchdog.has_progressed()
    assert not watchdog.has_progressed()
    running.turns = 2
    assert watchdog.has_progressed()


def test_a_commit_that_does_not_end_is_none() -> None:
    running = Running()
    watchdog = running.watched()

    def look(attempts: int) -> bool:
        running.turns += 1
        running.commit_attempts = attempts
        return watchdog.has_progressed()

    assert look(-1)
    assert look(7)  # it began since the last look
    assert not look(7)
    assert not look(7)
    assert look(8)  # an attempt failed, and the next is under way
    assert look(-1)
    assert look(-1)


def test_the_status_names_what_is_wrong_with_the_store() -> None:
    running = Running()
    running.connections = {"a": object(), "b": object()}
    watchdog = running.watched()
    assert watchdog.status() == "2 clients"
    running.context.store_failure = "the disk is full"
    assert watchdog.status() == "2 clients; nothing is acknowledged: the disk is full"


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "42"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "43"}, 0.0),  # of the process before
    ],
)
def test_a_watchdog_of_another_process_is_not_ours(environ: dict[str, str], seconds: float) -> None:
    assert ServiceManager(environ, 42).watchdog_s == seconds


def test_a_manager_that_is_gone_disturbs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": "/nonexistent/notify"}, 1)
    manager.notify_ready("serving")
    assert "cannot be sent READY=1" in caplog.text
