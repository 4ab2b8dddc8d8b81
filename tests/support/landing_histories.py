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

import copy
import hashlib
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

from penstock.errors import EpochMismatch
from penstock.spark.arrow_maps import ArrowFunction
from penstock.spark.jobs.resuming import resume
from penstock.spark.jobs.steps import EpochBegun, LandingSteps, begin
from penstock.spark.parquet_files import NewFile
from penstock.spark.plain_types import read_rows
from penstock.spark.storage.location import Location
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.directory import ParquetDirectory
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import (
    DEAD_LETTERS,
    ROWS,
    LandedTable,
    Outcome,
    PlannedBatch,
    Selection,
)
from penstock.spark.tables.landing_target import LandingTarget
from penstock.store.mark import NO_MARK, PATH_RUNS_MAX, Mark, Run
from penstock.stream.client import Continuation, StreamOffsets

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


def merge(table: LandedTable) -> None:
    """Merge all files of a table, as upkeep may."""
    paths = [file.path for file in table.live_files() or ()]
    table.compact([paths] if paths else [], 1)


LOOKS: Final[tuple[Callable[[LandedTable], object], ...]] = (
    lambda _: None,
    lambda table: table.live_files(),
    lambda table: table.columns(),
    lambda table: table.files(),
    lambda table: table.recent_files(timedelta.max),
    lambda table: table.contents(),
    lambda table: table.epochs(),
    lambda table: table.prepare(selection_of("any")),
    lambda table: table.remove_orphans(24, remove=False),
    merge,
)
"""What a job asks of its tables between its batches."""


class Killed(Exception):
    """The job is gone, in the middle of something."""


@dataclass
class ModelLog:
    """Messages by offset; each has a number that no other message ever has.

    An older copy of it can be put back; then it tells who comes back with a mark where they part,
    and goes on under another epoch, as the log does (`penstock.store.history`). The names of its
    epochs have no order, as if the clock were set to any time before each.
    """

    epoch: str = "20261121T000000-00000001"
    messages: list[tuple[int, str]] = field(default_factory=list)
    lineage: list[tuple[str, int]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=lambda: [Run(0, f"{0:012x}")])

    @property
    def latest(self) -> int:
        return len(self.messages)

    @property
    def offsets(self) -> StreamOffsets:
        lineage = tuple(self.lineage)
        return StreamOffsets("messages", self.epoch, 0, self.latest, lineage=lineage)

    def mark_at(self, _stream: str, _epoch: str, offset: int) -> Mark:
        if not offset:
            return NO_MARK
        path = tuple(run for run in self.runs if run.begin < offset)[-PATH_RUNS_MAX:]
        numbers = [number for number, _ in self.messages[:offset]]
        return Mark(path, hashlib.sha256(repr(numbers).encode()).hexdigest())

    def check_position(self, _stream: str, epoch: str, offset: int, mark: Mark) -> Continuation:
        end = dict([(self.epoch, self.latest), *self.lineage]).get(epoch)
        is_living = offset <= self.latest and mark.digest == self.mark_at("", "", offset).digest
        if is_living:
            return Continuation(self.epoch, offset)
        known = [index for index, run in enumerate(self.runs) if run in mark.path]
        if not known:
            raise EpochMismatch(f"nothing is known of offset {offset} of epoch {epoch}, {end}")
        last = known[-1]
        theirs = mark.path[mark.path.index(self.runs[last]) + 1 :]
        parts_at = min(run.begin for run in (*self.runs[last + 1 :], *theirs))
        if epoch == self.epoch:
            self.lineage = [(one, min(to, parts_at)) for one, to in self.lineage]
            self.lineage.insert(0, (self.epoch, parts_at))
            named = hashlib.sha256(repr((self.epoch, self.runs)).encode()).hexdigest()
            self.epoch = f"{self.epoch[:-8]}{named[:8]}"
        return Continuation(self.epoch, parts_at, parts_at, f"they part at {parts_at}")

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

    def without_rows_of(self, files: Sequence[Location], epoch: str, start: int) -> ModelMessages:
        present = {
            offset
            for path in files
            for of, offset in read_columns(path, "epoch", "offset")
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

    def commit(self, batch: PlannedBatch, files: Sequence[NewFile]) -> Outcome:
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


def selection_of(epoch: str) -> Selection:
    return Selection(epoch, "messages", ("plant/#",))


class Job:
    """A landing job that runs step by step."""

    def __init__(self, history: History, starting: str) -> None:
        self._history = history
        self._log = history.log
        self.tables = open_tables(history.kind, history.directory)
        tables = {name: FaultyTable(one, history.interrupt) for name, one in self.tables.items()}
        self._target = LandingTarget(tables, split)  # type: ignore[arg-type]  # it is one but for commits
        selection, log = selection_of(self._log.epoch), self._log
        self._target.prepare(selection)
        found = resume(self._target, selection_of, log.offsets, log)
        if found is None:
            start = log.latest if starting == "latest" else 0
            mark = log.mark_at("messages", log.epoch, start)
            found = selection, begin(self._target, selection, start, mark)
        limit = history.random.choice([None, 1, 3, 7, 20])
        self._epoch = found[0].epoch
        self._steps = LandingSteps(self._target, *found, limit)

    def step(self) -> bool:
        """Land one batch; False if there is nothing new."""
        log, steps = self._log, self._steps
        if log.epoch != self._epoch:
            raise EpochMismatch("the log is of another epoch now")
        offset, mark = steps.reached()
        found = log.check_position("messages", log.epoch, offset, mark)
        if (found.epoch, found.offset) != (self._epoch, offset):
            raise EpochMismatch(found.why)
        end = steps.next_end(log.latest)
        if end is None:
            return False
        rows, mark = log.rows(steps.position, end), log.mark_at("messages", log.epoch, end)
        tasks = self._history.random.randint(1, 3)
        steps.land(ModelMessages(rows, tasks, self._history.interrupt), end, mark)
        return True

    def look(self) -> None:
        for table in self.tables.values():
            self._history.random.choice(LOOKS)(table)

    def end(self) -> None:
        self._steps.store_passed()


class History:
    """One history, drawn from a seed; `play` it, then `verify` it.

    Args:
        seed: of all that is drawn.
        directory: an empty directory.
        kind: the format of the tables; drawn if it is empty.
        starting: where landing begins; drawn if it is empty.
    """

    def __init__(self, seed: int, directory: Path, kind: str = "", starting: str = "") -> None:
        self.random = random.Random(seed)
        self.kind = self.random.choice(FORMATS)
        self.kind = kind or self.kind
        self.directory = directory / "tables"
        self.directory.mkdir()
        self.log = ModelLog()
        self.told: list[str] = []
        drawn = self.random.choice(["earliest", "earliest", "latest"])
        self._starting = starting or drawn
        self._first = 0  # the offset at which landing begins
        self._copies: list[Path] = []
        self._jobs: list[Job] = []
        self._numbers = 0
        self._runs = 0
        self._kill_chance = 0.0
        self._depth = 0
        self._copies_directory = directory / "copies"
        self._log_copies: list[ModelLog] = []

    def play(self) -> None:
        self._start()
        actions = [
            (self._publish_some, 6),
            (self._run, 6),
            (self._run_two_at_once, 3),
            (self._copy, 2),
            (self._put_back, 2),
            (self._put_back_under_a_running_job, 1),
            (self._copy_the_log, 3),
            (self._put_back_the_log, 4),
        ]
        weighted = [action for action, weight in actions for _ in range(weight)]
        for _ in range(self.random.randint(4, 12)):
            action = self.random.choice(weighted)
            self.told.append(action.__name__.strip("_"))
            action()
        self._publish_some()
        self._finish()

    def play_these(self, *actions: str) -> None:
        """Play these and no others, by the names of the methods below; `start` is the first."""
        for name in actions:
            self.told.append(name)
            getattr(self, f"_{name}")()

    def verify(self) -> None:
        """Each message that the log has is there once, in the right table; what it no longer has
        is marked as such."""
        tables = open_tables(self.kind, self.directory)
        living = dict(self.log.messages)
        wanted = {number for number, _ in self.log.messages[self._first :]}
        for name, kind in ((ROWS, ROW), (DEAD_LETTERS, DEAD)):
            found: Counter[int] = Counter()
            for path in tables[name].recent_files(timedelta.max):
                for epoch, offset, number in read_columns(path, "epoch", "offset", "number"):
                    found[number] += 1
                    self._verify_mark(tables[ROWS], epoch, offset, is_lost=number not in living)
            missing = sorted(n for n in wanted if living[n] == kind and not found[n])
            often = sorted(n for n in found if found[n] > 1)
            wrong = sorted(n for n in found if living.get(n, kind) != kind)
            assert not missing, f"{name}: {missing} are missing"
            assert not often, f"{name}: {often} are there more than once"
            assert not wrong, f"{name}: {wrong} are in the wrong table"

    def _verify_mark(self, rows: LandedTable, epoch: str, offset: int, *, is_lost: bool) -> None:
        landed = rows.landed(selection_of(epoch))
        assert landed is not None
        is_marked = landed.parts_at is not None and landed.parts_at <= offset
        assert is_marked == is_lost, f"{epoch} {offset}: {landed.parts_at} and {is_lost}"

    def land_all(self, count: int) -> None:
        """Publish messages, and land all that the log has."""
        self._publish(count)
        self._finish()

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

    def _start(self) -> None:
        self._publish(self.random.randint(0, 12))
        self._first = self.log.latest if self._starting == "latest" else 0
        self._begin()

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
                if self.random.random() < 0.2:
                    job.look()
            for job in self._jobs:
                job.end()
        except (Killed, EpochMismatch, EpochBegun):
            pass  # it is run again
        finally:
            self._jobs = []

    def _copy(self) -> None:
        place = self._copies_directory / str(len(self._copies))
        shutil.copytree(self.directory, place)
        self._copies.append(place)

    def _put_back(self) -> None:
        if self._copies:
            shutil.rmtree(self.directory)
            shutil.copytree(self.random.choice(self._copies), self.directory)

    def _put_back_only_the_logs_of_tables(self) -> None:
        """Files of rows that were written since stay, as they do in a bucket."""
        if not self._copies:
            return
        chosen = self.random.choice(self._copies)
        for name in (ROWS, DEAD_LETTERS):
            log = f"{name}/_delta_log"
            shutil.rmtree(self.directory / log, ignore_errors=True)
            if (chosen / log).exists():
                shutil.copytree(chosen / log, self.directory / log)

    def _put_back_under_a_running_job(self) -> None:
        """It had landed, and lands again, perhaps after another job has landed what was lost."""
        if self.kind != "delta" or not self._copies:  # others would be copied while they are open
            return
        self._kill_chance = 0.0
        try:
            job = self._job()
            self._publish_some()
            job.step()
            job.look()
            known = job.tables[ROWS].contents()
            self.random.choice([self._put_back, self._put_back_only_the_logs_of_tables])()
            if known is not None and self.random.random() < 0.8:
                self._land_until_there_are(known.version)
            self._publish_some()
            while job.step():
                job.look()
        except (EpochMismatch, EpochBegun):
            pass  # it is run again

    def _land_until_there_are(self, versions: int) -> None:
        """Another job lands, or merges, until the table of rows has so many versions again."""
        job = self._job()
        rows = job.tables[ROWS]
        ends_with_merge = self.random.random() < 0.5
        while (found := rows.contents()) is not None and found.version < versions:
            if ends_with_merge and found.version == versions - 1 and rows.live_files():
                merge(rows)
            else:
                self._publish(1)
                job.step()

    def _copy_the_log(self) -> None:
        self._log_copies.append(copy.deepcopy(self.log))

    def _put_back_the_log(self) -> None:
        """Of the running broker, too: the next one opens it anew."""
        if not self._log_copies:
            return
        vars(self.log).update(vars(copy.deepcopy(self.random.choice(self._log_copies))))
        self._runs += 1
        self.log.runs.append(Run(self.log.latest, f"{self._runs:012x}"))
        self._publish(self.random.choice([0, 3, 30]))

    def _finish(self) -> None:
        self._kill_chance = 0.0
        while True:
            job = self._job()
            try:
                while job.step():
                    pass
            except EpochMismatch:
                continue
            job.end()
            return


def read_columns(location: Location, *columns: str) -> Iterator[tuple[Any, ...]]:
    found = read_rows(location, columns)
    return zip(*(found.column(name).to_pylist() for name in columns), strict=True)
