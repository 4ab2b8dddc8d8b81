"""Histories of landing jobs on real tables: what is killed, put back, lost, run twice at once.

::

    ModelLog ──messages──▶ LandingSteps ──▶ LandingTarget ──▶ tables of a real format
                               ▲ what a job decides               ▲ killed before or after a commit,
                               ╰ another job's steps in between   ╯ older copies put back

Real are the steps of the job (`penstock.spark.jobs.steps`), the targets, and the tables with their
files, on a disk. A model are the log, which is a list, and Spark: it reads a range and runs the
real writer over it, in this process. So thousands of histories take minutes. With `tests/spark` a
few of them run on a real Spark and a real stream service.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.spark.arrow_maps import ArrowFunction
from penstock.spark.jobs.steps import LandingSteps, begin
from penstock.spark.parquet_files import NewFile
from penstock.spark.tables.api import (
    DEAD_LETTERS,
    ROWS,
    Batch,
    LandedTable,
    Outcome,
    Selection,
)
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.directory import ParquetDirectory
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landing_target import LandingTarget

NOON: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCHEMA: Final = pa.schema(
    [
        pa.field("epoch", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("received_at", pa.timestamp("us", tz="UTC")),
        pa.field("number", pa.int64()),
    ]
)
_MESSAGES: Final = SCHEMA.append(pa.field("kind", pa.string()))
ROW, DEAD, OTHER = "row", "dead", "other"
"""What a message becomes: a row, a dead letter, or nothing, because its topic is another."""

FORMATS: Final = ("delta", "parquet", "iceberg")


class Killed(Exception):
    """The job is gone, in the middle of something."""


@dataclass
class ModelLog:
    """Messages by offset; each has a number that no other message ever has."""

    epoch: str = "20261121T000000-00000001"
    messages: list[tuple[int, str]] = field(default_factory=list)

    @property
    def latest(self) -> int:
        return len(self.messages)

    def rows(self, start: int, end: int) -> pa.RecordBatch:
        """The messages of a range that are for the table, as the stream service gives them."""
        found = [
            {
                "epoch": self.epoch,
                "offset": offset,
                "received_at": NOON + timedelta(seconds=offset),
                "number": number,
                "kind": kind,
            }
            for offset, (number, kind) in enumerate(self.messages[start:end], start)
            if kind != OTHER
        ]
        return pa.RecordBatch.from_pylist(found, _MESSAGES)


def split(messages: pa.Table) -> Mapping[str, pa.Table]:
    """The rows and the dead letters of some messages."""
    kinds = messages.column("kind")
    plain = messages.select(SCHEMA.names)
    return {
        ROWS: plain.filter(pc.equal(kinds, ROW)),
        DEAD_LETTERS: plain.filter(pc.equal(kinds, DEAD)),
    }


class ModelMessages:
    """A range that a model of Spark reads: a task for each part, in any order."""

    def __init__(self, rows: pa.RecordBatch, tasks: int, interrupt: Callable[[], None]) -> None:
        self._rows = rows
        self._tasks = tasks
        self._interrupt = interrupt

    def write(self, writer: ArrowFunction) -> list[NewFile]:
        size = -(-self._rows.num_rows // self._tasks) or 1
        files = []
        for first in range(0, self._rows.num_rows, size):
            self._interrupt()
            for written in writer(iter([self._rows.slice(first, size)])):
                files += [NewFile(**file) for file in written.to_pylist()]
        return files

    def without_rows_of(self, files: Sequence[Path], epoch: str, start: int) -> ModelMessages:
        present = {
            offset
            for path in files
            for of, offset in _read(path, "epoch", "offset")
            if of == epoch and offset >= start
        }
        wanted = [offset not in present for offset in self._rows.column("offset").to_pylist()]
        return ModelMessages(
            self._rows.filter(pa.array(wanted, pa.bool_())), self._tasks, self._interrupt
        )

    def messages(self) -> Any:
        raise AssertionError("only tables that leave out repeats ask for it")


class FaultyTable:
    """A table at whose commits something may happen."""

    def __init__(self, table: LandedTable, interrupt: Callable[[], None]) -> None:
        self._table = table
        self._interrupt = interrupt

    def __getattr__(self, name: str) -> object:
        return getattr(self._table, name)

    def commit(self, batch: Batch, files: Sequence[NewFile]) -> Outcome:
        self._interrupt()
        outcome = self._table.commit(batch, files)
        self._interrupt()
        return outcome


def open_tables(kind: str, directory: Path) -> dict[str, LandedTable]:
    """The tables of rows and of dead letters, opened anew."""
    found: dict[str, LandedTable] = {}
    for name in (ROWS, DEAD_LETTERS):
        path = directory / name
        if kind == "delta":
            found[name] = DeltaMessageTable(path, SCHEMA, ())
        elif kind == "iceberg":
            found[name] = IcebergTable(path, SCHEMA, (), directory / "iceberg.db")
        else:
            found[name] = ParquetDirectory(path, SCHEMA, ())
    return found


class Job:
    """A landing job that runs step by step."""

    def __init__(self, history: History, starting: str) -> None:
        self._history = history
        self._log = history.log
        opened = open_tables(history.kind, history.directory)
        tables = {name: FaultyTable(one, history.interrupt) for name, one in opened.items()}
        self._target = LandingTarget(tables, split)  # type: ignore[arg-type]  # it is one but for commits
        selection = Selection(self._log.epoch, "messages", ("plant/#",))
        self._target.prepare(selection)
        landed = self._target.landed(selection)
        if landed is None:
            start = self._log.latest if starting == "latest" else 0
            landed = begin(self._target, selection, start)
        limit = history.random.choice([None, 1, 3, 7, 20])
        self._steps = LandingSteps(self._target, selection, landed.end, limit)

    def step(self) -> bool:
        """Land one batch; False if there is nothing new."""
        self._steps.check_log(self._log.latest)
        end = self._steps.next_end(self._log.latest)
        if end is None:
            return False
        rows = self._log.rows(self._steps.position, end)
        tasks = self._history.random.randint(1, 3)
        self._steps.land(ModelMessages(rows, tasks, self._history.interrupt), end)
        return True

    def end(self) -> None:
        self._steps.store_passed()


class History:
    """One history, drawn from a seed; `play` it, then `verify` it.

    Args:
        seed: of all that is drawn.
        directory: an empty directory.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.kind = self.random.choice(FORMATS)
        self.directory = directory / "tables"
        self.directory.mkdir()
        self.log = ModelLog()
        self.told: list[str] = []
        self._starting = self.random.choice(["earliest", "earliest", "latest"])
        self._first = 0  # the offset at which landing begins
        self._copies: list[Path] = []
        self._jobs: list[Job] = []
        self._numbers = 0
        self._kill_chance = 0.0
        self._depth = 0
        self._copies_directory = directory / "copies"

    def play(self) -> None:
        self._publish(self.random.randint(0, 12))
        self._first = self.log.latest if self._starting == "latest" else 0
        self._begin()
        actions = [
            (self._publish_some, 6),
            (self._run, 6),
            (self._run_two_at_once, 3),
            (self._copy, 2),
            (self._put_back, 2),
            (self._put_back_under_a_running_job, 1),
        ]
        weighted = [action for action, weight in actions for _ in range(weight)]
        for _ in range(self.random.randint(4, 12)):
            action = self.random.choice(weighted)
            self.told.append(action.__name__.strip("_"))
            action()
        self._publish_some()
        self._finish()

    def verify(self) -> None:
        """Rows and dead letters are all messages from the start on, each once and at its place."""
        tables = open_tables(self.kind, self.directory)
        for name, kind in ((ROWS, ROW), (DEAD_LETTERS, DEAD)):
            found = Counter(
                row
                for path in tables[name].recent_files(timedelta.max)
                for row in _read(path, "epoch", "offset", "number")
            )
            wanted: Counter[tuple[object, ...]] = Counter(
                (self.log.epoch, offset, number)
                for offset, (number, of) in enumerate(self.log.messages)
                if of == kind and offset >= self._first
            )
            assert found == wanted, (
                f"{name}: missing {sorted((wanted - found).elements())}, too many"
                f" {sorted((found - wanted).elements())}, {self.kind}, after {self.told}"
            )

    def interrupt(self) -> None:
        """Somewhere in a job: it is killed, or another job comes in between."""
        drawn = self.random.random()
        if drawn < self._kill_chance:
            raise Killed
        if drawn < 2 * self._kill_chance and len(self._jobs) > 1 and not self._depth:
            self._depth += 1
            try:
                self.random.choice(self._jobs).step()
            finally:
                self._depth -= 1

    def _begin(self) -> None:
        """The first run begins the table; whenever it is killed, it is run again before others."""
        self._kill_chance = 0.2
        while True:
            try:
                self._job()
            except Killed:
                continue
            return

    def _job(self) -> Job:
        return Job(self, self._starting)

    def _publish_some(self) -> None:
        self._publish(self.random.choice([1, 2, 5, 12, 30]))

    def _publish(self, count: int) -> None:
        for _ in range(count):
            self.log.messages.append((self._numbers, self.random.choice([ROW, ROW, DEAD, OTHER])))
            self._numbers += 1

    def _run(self) -> None:
        self._kill_chance = self.random.choice([0.0, 0.1, 0.3])
        self._steps(1)

    def _run_two_at_once(self) -> None:
        self._kill_chance = self.random.choice([0.02, 0.1])
        self._steps(2)

    def _steps(self, jobs: int) -> None:
        try:
            self._jobs = [self._job() for _ in range(jobs)]
            for _ in range(self.random.choice([1, 3, 1000])):
                job = self.random.choice(self._jobs)
                if not job.step() and self.random.random() < 0.5:
                    break
            for job in self._jobs:
                job.end()
        except Killed:
            pass
        finally:
            self._jobs = []

    def _copy(self) -> None:
        copy = self._copies_directory / str(len(self._copies))
        shutil.copytree(self.directory, copy)
        self._copies.append(copy)

    def _put_back(self) -> None:
        if self._copies:
            shutil.rmtree(self.directory)
            shutil.copytree(self.random.choice(self._copies), self.directory)

    def _put_back_under_a_running_job(self) -> None:
        """It had landed, and lands again."""
        if self.kind != "delta" or not self._copies:  # others would be copied while they are open
            return
        self._kill_chance = 0.0
        job = self._job()
        job.step()
        self._put_back()
        self._publish_some()
        while job.step():
            pass

    def _finish(self) -> None:
        self._kill_chance = 0.0
        job = self._job()
        while job.step():
            pass
        job.end()


def _read(path: Path, *columns: str) -> Iterator[tuple[Any, ...]]:
    found = pq.ParquetFile(path).read(list(columns))
    return zip(*(found.column(name).to_pylist() for name in columns), strict=True)
