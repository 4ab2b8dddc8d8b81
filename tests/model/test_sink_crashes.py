"""A batch of staged rows, with a crash at every single step on its way into the log.

The staging area is real, in a directory; so are the engine, its driver and the publisher. Each
operation that reaches the disk (a file's sync, a rename, a directory's sync, a removal, a commit)
is a *step*. The n-th step of a run crashes everything, before or after the disk has it; renames
that were not synced stay or are undone. Then everything starts again, Spark too or only the broker,
until all batches are published. This is done for each n there is. Whatever the crash, the log has
each row once, in order, and no staged file is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, final

import pyarrow as pa
import pytest

from penstock.control import client as control
from penstock.control.client import PublishProgress
from penstock.engine.batch.commit import Commit
from penstock.engine.server.server import Server
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.runtime.driver import Driver
from penstock.services import staged_rows as staged_rows_module
from penstock.services.staged_rows import StagedRowsPublisher
from penstock.store import staging as staging_module
from penstock.store.memory import MemoryStore
from penstock.store.staging import DECIDED, Staging
from penstock.store.watermark import sync_directory
from penstock.stream.publishing import Publishing, PublishLimits
from penstock.stream.requests import PublishBatchRequest, StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA
from tests.unit.engine.bench import EPOCH, START_US

SINK: Final = "query"
BATCHES: Final = (((0, 3), (3, 5)), ((5, 6),))  # by batch and file: the range of rows
ROWS: Final = [str(n).encode() for n in range(6)]
LIMITS: Final = PublishLimits(128, 1_000_000, 1_000_000_000)


class Crash(BaseException):
    """The end of a life of the broker; nothing may catch it."""


@final
class Disk:
    """The steps that reach the disk; after the crash none does."""

    def __init__(self, crash_at: int, after: bool, loses_renames: bool) -> None:
        self.steps = 0
        self.crashed = threading.Event()
        self._crash_at = crash_at
        self._after = after
        self._loses_renames = loses_renames
        self._renamed: list[tuple[Path, Path]] = []
        self._lock = threading.RLock()  # a directory is synced as a file is
        self._is_inside = False

    def step(self, does: Callable[[], Any]) -> Any:
        """Do ``does`` as one step, and crash before or after it if it is its turn."""
        with self._lock:
            if self._is_inside:
                return does()
            if self.crashed.is_set():
                raise Crash
            self.steps += 1
            if self.steps != self._crash_at:
                return self._do(does)
            if self._after:
                self._do(does)
            self.crashed.set()
            if self._loses_renames:
                self._do(self._undo_renames)
            raise Crash

    def _undo_renames(self) -> None:
        for source, target in reversed(self._renamed):
            os.rename(target, source)  # noqa: PTH104  # past the patch

    def _do(self, does: Callable[[], Any]) -> Any:
        self._is_inside = True
        try:
            return does()
        finally:
            self._is_inside = False

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Route the operations of the staging area through this disk."""
        fsync, rename, rmtree = os.fsync, Path.rename, shutil.rmtree

        def renamed(source: Path, target: Path) -> None:
            def both() -> None:
                rename(source, target)
                self._renamed.append((source, target))

            self.step(both)

        def synced(directory: Path) -> None:
            def both() -> None:
                sync_directory(directory)
                self._renamed = [pair for pair in self._renamed if pair[1].parent != directory]

            self.step(both)

        patch.setattr(staging_module, "sync_directory", synced)
        patch.setattr(os, "fsync", lambda number: self.step(lambda: fsync(number)))
        patch.setattr(Path, "rename", renamed)
        patch.setattr(
            shutil,
            "rmtree",
            lambda path, **how: self.step(lambda: rmtree(path, **how)),
        )


@final
class CrashingStore:
    """The store of one life of the broker: its commits are in ``memory``, which survives."""

    acknowledged_when = "memory"
    writes_columns = False

    def __init__(self, memory: MemoryStore, disk: Disk) -> None:
        self._memory = memory
        self._disk = disk

    def commit(self, commit: Commit) -> None:
        self._disk.step(lambda: self._memory.commit(commit))

    def read(self, offsets: Iterable[int]) -> dict[int, Message]:
        return self._memory.read(offsets)


@final
class Spark:
    """A query with a checkpoint: the number of the batch that it has to publish."""

    def __init__(self) -> None:
        self.batch = 0
        self.runs = 0
        self.files: list[tuple[str, int, int]] = []

    def forget(self) -> None:
        """Forget what its tasks staged: it was killed."""
        self.files = []

    async def run(self, publishing: Publishing) -> None:
        """Stage and publish the batches that are left, each commit twice."""
        loop = asyncio.get_running_loop()
        while self.batch < len(BATCHES):
            if not self.files:
                self.files = await loop.run_in_executor(None, self._stage, publishing)
            files = tuple(self.files)
            request = PublishBatchRequest(SINK, self.batch, f"run{self.runs}", "spark", files)
            for _ in range(2):
                while not (await loop.run_in_executor(None, publishing.publish, request)).is_done:
                    pass
            self.batch += 1
            self.files = []

    def _stage(self, publishing: Publishing) -> list[tuple[str, int, int]]:
        self.runs += 1
        files: list[tuple[str, int, int]] = []
        for partition, (begin, end) in enumerate(BATCHES[self.batch]):
            request = StageRowsRequest(SINK, self.batch, f"run{self.runs}", partition)
            rows = [
                {"topic": "t", "payload": ROWS[n], "qos": 1, "retain": False, "properties": None}
                for n in range(begin, end)
            ]
            batch = pa.RecordBatch.from_pylist(rows, PUBLISH_SCHEMA)
            staged = publishing.put(request, PUBLISH_SCHEMA, iter((batch,)))
            files.append((staged.name, staged.rows, staged.size_bytes))
        return files


async def live(memory: MemoryStore, disk: Disk, data_dir: Path, spark: Spark) -> None:
    """Run one life of the broker, until Spark is done or everything crashes."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, _context: None)  # crashes in callbacks
    store = CrashingStore(memory, disk)
    server = Server(
        EngineLimits(), memory.recover(), ("#",), "memory", Now(time.monotonic(), START_US)
    )
    driver = Driver(server, store, 1_000_000, lambda _failure: None)  # type: ignore[arg-type]
    publisher = StagedRowsPublisher(server, driver, Staging(data_dir), 0.0)

    def ask(_data_dir: Path, request: control.Publish, *_how: object) -> PublishProgress:
        return asyncio.run_coroutine_threadsafe(publisher.publish(request), loop).result()

    with pytest.MonkeyPatch.context() as patch:
        disk.patch(patch)
        patch.setattr(control, "ask", ask)
        with contextlib.suppress(Crash):
            publisher.start()
        running = asyncio.ensure_future(spark.run(Publishing(data_dir, LIMITS)))
        crashed = loop.run_in_executor(None, wait_for_crash, disk, running)
        await asyncio.wait((running, crashed), return_when=asyncio.FIRST_COMPLETED)
        if not disk.crashed.is_set():
            await running
        running.cancel()
        await publisher.stop()
        with contextlib.suppress(Crash):
            await driver.stop()
        with contextlib.suppress(Crash, asyncio.CancelledError):
            await running
        await crashed


def wait_for_crash(disk: Disk, running: asyncio.Future[None]) -> None:
    while not running.done() and not disk.crashed.wait(0.01):
        pass


def play(crash_at: int, after: bool, loses: bool, spark_too: bool, data_dir: Path) -> int:
    """Play one run with a crash at a step; return how many steps it took."""
    memory = MemoryStore(EPOCH)
    spark = Spark()
    disk = Disk(crash_at, after, loses)
    asyncio.run(live(memory, disk, data_dir, spark))
    steps = disk.steps
    if disk.crashed.is_set():
        if spark_too:
            spark.forget()
        asyncio.run(live(memory, Disk(0, False, False), data_dir, spark))
    end = memory.log_extent().end
    found = memory.read(range(end))
    payloads = [found[offset].payload for offset in range(end)]
    which = f"crash {'after' if after else 'before'} step {crash_at}, {loses=}, {spark_too=}"
    assert payloads == ROWS, which
    assert not list(data_dir.glob(f"staged/*/*/{DECIDED}")), which
    return steps


@pytest.mark.parametrize(
    ("loses", "spark_too"),
    [
        (False, False),
        pytest.param(True, False, marks=pytest.mark.torture("what is lost, both lose, too")),
        (True, True),
    ],
    ids=["broker killed", "its power cut", "both lost"],
)
def test_each_row_is_in_the_log_once_whatever_step_crashes(
    loses: bool, spark_too: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_rows_module, "PIECE_ROWS_MAX", 2)
    steps = play(0, False, loses, spark_too, tmp_path / "0")
    assert steps > 20
    for crash_at, after in itertools.product(range(1, steps + 1), (False, True)):
        play(crash_at, after, loses, spark_too, tmp_path / f"{crash_at} {after}")
    print(f"{2 * steps} crashes")
