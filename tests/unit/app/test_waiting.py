"""A start, or a standby, that waits for room on its disk."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.app import waiting
from penstock.app.waiting import STEADY_S, DiskWait, open_patiently
from penstock.config.load import load_settings
from penstock.errors import StoreUnavailable
from tests.support.deadline import DEADLINE_S

FULL = StoreUnavailable("no room")


class Disk:
    """A disk that is full for some probes, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full_probes = 0
        self.now_s = 1000.0
        self.probe_s = 1.0
        monkeypatch.setattr(waiting, "probe", self._probe)
        monkeypatch.setattr(waiting, "RETRY_S_FIRST", 0.001)
        monkeypatch.setattr(waiting, "RETRY_S_LAST", 0.001)
        monkeypatch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: self.now_s))

    def _probe(self, *_: Path) -> None:
        self.now_s += self.probe_s
        self.full_probes -= 1
        if self.full_probes >= 0:
            raise FULL


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


async def test_each_outage_has_the_whole_time_and_is_over_when_there_is_room(
    disk: Disk, tmp_path: Path
) -> None:
    """The time of a second one, hours later, was over when it began; and a standby that followed
    the log again was told to be full until it became the primary."""
    wait = DiskWait(tmp_path, 100.0)
    for _ in range(3):
        disk.full_probes = 60
        assert await wait.wait(FULL)
        assert wait.failure == ""
        disk.now_s += STEADY_S + 1


@pytest.mark.usefixtures("disk")
async def test_attempts_that_fail_again_and_again_are_one_outage(tmp_path: Path) -> None:
    """There is room, and the store cannot be opened all the same."""
    wait = DiskWait(tmp_path, 100.0)
    attempts = 0
    with contextlib.suppress(StoreUnavailable):
        while await wait.wait(FULL):
            attempts += 1
            assert attempts < 1000
    assert attempts > 10


@pytest.mark.usefixtures("disk")
async def test_a_signal_while_the_store_is_opened_ends_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was obeyed while the start waited only; else the broker ran, and never heard of it."""
    closed: list[bool] = []
    heard = threading.Event()

    class Wait(DiskWait):  # type: ignore[misc]  # it is final
        def stop(self) -> None:
            super().stop()
            heard.set()

    def open_store() -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard.wait(DEADLINE_S)
        return SimpleNamespace(close=lambda: closed.append(True))

    monkeypatch.setattr(waiting, "DiskWait", Wait)
    parts: Any = SimpleNamespace(
        manager=SimpleNamespace(extending_timeout=lambda _: contextlib.nullcontext()),
        certificates=SimpleNamespace(samples=lambda: ()),
    )
    children: Any = SimpleNamespace(samples=lambda: (), start_admin=lambda: None)
    settings = load_settings(None, {"durability.data_dir": tmp_path}, {})
    assert await open_patiently(open_store, FULL, settings, parts, children) is None
    assert closed == [True]
