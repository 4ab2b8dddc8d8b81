"""Histories of a table with state on real tables: what is killed, put back, or lost.

::

    ModelLog ──messages──▶ a model of Spark's engine ──rows──▶ AppendTarget ──▶ a real table
                             offsets/N, commits/N, state/N       ▲ refuses what does not fit

Real are the target, its checks, the table, and the files of the checkpoint that they read. A model
is Spark: it plans a batch, computes rows from the state before it, stores the state, and notes the
batch as done. The rows are windows of ten offsets, with how many messages each has.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa

from penstock.errors import ConfigError
from penstock.spark.arrow_maps import ArrowFunction
from penstock.spark.derived.appending import AppendTarget
from penstock.spark.jobs.steps import begin
from penstock.spark.parquet_files import NewFile
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.directory import ParquetDirectory
from penstock.spark.tables.iceberg import IcebergTable
from penstock.spark.tables.landed_table import LandedTable, QueryBatch, Selection
from penstock.store.mark import NO_MARK
from tests.support.landing_histories import FORMATS, FaultyTable, Killed, read_columns

EPOCH: Final = "20261121T000000-00000001"
SELECTION: Final = Selection(EPOCH, "messages", ("plant/#",), ", as windows of ten offsets")
WIDTH: Final = 10
SCHEMA: Final = pa.schema(
    [
        pa.field("epoch", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("window", pa.int64()),
        pa.field("count", pa.int64()),
    ]
)


class ModelRows:
    """The rows of a batch, which also makes its state."""

    def __init__(self, rows: list[dict[str, object]], path: Path, state: dict[str, int]) -> None:
        self._rows = rows
        self._path = path
        self._state = state

    def compute(self) -> None:
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(self._state))

    def write(self, writer: ArrowFunction) -> list[NewFile]:
        self.compute()
        if not self._rows:
            return []
        batch = pa.RecordBatch.from_pylist(self._rows, SCHEMA)
        return [NewFile(**file) for part in writer(iter([batch])) for file in part.to_pylist()]


class DerivedHistory:
    """One history, drawn from a seed; `play` it, then `verify` it.

    Attributes:
        refusals: how often a job was refused because of its state.
    """

    def __init__(self, seed: int, directory: Path) -> None:
        self.random = random.Random(seed)
        self.kind = self.random.choice(FORMATS)
        self.told: list[str] = []
        self.refusals = 0
        self._directory = directory
        self._table_path = directory / "windows"
        self._checkpoint = self._table_path / "_checkpoint"
        self._latest = 0
        self._copies = 0
        self._kill_chance = 0.0
        self._queries = 0

    def play(self) -> None:
        actions = [self._publish, self._run, self._run, self._copy, self._put_back, self._lose]
        for _ in range(self.random.randint(4, 14)):
            action = self.random.choice(actions)
            self.told.append(action.__name__.strip("_"))
            action()
        self._publish()
        self._kill_chance = 0.0
        self._run_once()

    def verify(self) -> None:
        """Each window that is over is there once, with all its messages."""
        found = Counter(
            row
            for path in self._open().recent_files(timedelta.max)
            for row in read_columns(path, "window", "count")
        )
        wanted = Counter((window, WIDTH) for window in range((self._latest - 1) // WIDTH))
        assert found == wanted, f"found {sorted(found.elements())}"

    def _publish(self) -> None:
        self._latest += self.random.choice([1, 7, 10, 25])

    def _run(self) -> None:
        self._kill_chance = self.random.choice([0.0, 0.1, 0.3])
        self._run_once()

    def _run_once(self) -> None:
        """Run the job until it has all, is killed, or is refused; then its table is removed."""
        try:
            self._land()
        except Killed:
            pass
        except ConfigError as error:
            assert "remove" in str(error), error  # noqa: PT017  # the rest goes on after it
            self.refusals += 1
            shutil.rmtree(self._table_path, ignore_errors=True)
            (self._directory / "iceberg.db").unlink(missing_ok=True)
            self._run_once()

    def _copy(self) -> None:
        """Of the table and its state, or of the state alone."""
        if self._table_path.is_dir():
            place = self._directory / "copies" / str(self._copies)
            shutil.copytree(self._table_path, place / "table")
            if (self._directory / "iceberg.db").exists():
                shutil.copy(self._directory / "iceberg.db", place)
            self._copies += 1

    def _put_back(self) -> None:
        if not self._copies:
            return
        place = self._directory / "copies" / str(self.random.randrange(self._copies))
        if self.random.random() < 0.5:
            shutil.rmtree(self._table_path, ignore_errors=True)
            shutil.copytree(place / "table", self._table_path)
            if (place / "iceberg.db").exists():
                shutil.copy(place / "iceberg.db", self._directory)
        elif (place / "table" / "_checkpoint").is_dir() and self._table_path.is_dir():
            shutil.rmtree(self._checkpoint, ignore_errors=True)
            shutil.copytree(place / "table" / "_checkpoint", self._checkpoint)

    def _lose(self) -> None:
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _interrupt(self) -> None:
        if self.random.random() < self._kill_chance:
            raise Killed

    def _open(self) -> LandedTable:
        if self.kind == "delta":
            return DeltaMessageTable(self._table_path, SCHEMA, ())
        if self.kind == "iceberg":
            return IcebergTable(self._table_path, SCHEMA, (), self._directory / "iceberg.db")
        return ParquetDirectory(self._table_path, SCHEMA, ())

    def _land(self) -> None:
        table = FaultyTable(self._open(), self._interrupt)
        target = AppendTarget(table, lambda messages: messages, self._checkpoint)  # type: ignore[arg-type]  # it is one but for commits
        self._checkpoint.mkdir(parents=True, exist_ok=True)
        target.prepare(SELECTION)
        landed = target.landed(SELECTION) or begin(target, SELECTION, 0, NO_MARK)
        target.check_state(SELECTION)
        query = self._query_id()
        limit = self.random.choice([3, 12, 1000])
        while True:
            planned, done = (self._last(name) for name in ("offsets", "commits"))
            start = self._pinned(landed.end) if done < 0 else self._end(done)
            if planned <= done:
                if start >= self._latest:
                    return
                planned = done + 1
                self._note("offsets", planned, min(self._latest, start + limit))
                self._interrupt()
            target.land(self._rows(done, planned, start), SELECTION, QueryBatch(query, planned))
            self._interrupt()
            self._note("commits", planned, 0)

    def _rows(self, done: int, batch: int, start: int) -> ModelRows:
        """What the messages of a batch add to the state, and the windows that are over then."""
        path = self._checkpoint / "state"
        state: Counter[str] = Counter()
        if done >= 0:
            state.update(json.loads((path / str(done)).read_text()))
        end = self._end(batch)
        state.update(str(offset // WIDTH) for offset in range(start, end))
        over = [window for window in state if int(window) < (end - 1) // WIDTH]
        rows: list[dict[str, object]] = [
            {"epoch": EPOCH, "offset": end - 1, "window": int(window), "count": state.pop(window)}
            for window in over
        ]
        return ModelRows(rows, path / str(batch), dict(state))

    def _query_id(self) -> str:
        path = self._checkpoint / "metadata"
        if not path.exists():
            self._queries += 1
            path.write_text(json.dumps({"id": f"query-{self._queries}"}))
        return str(json.loads(path.read_text())["id"])

    def _pinned(self, offset: int) -> int:
        """Where the first batch begins, as the source stores it before that is planned."""
        path = self._checkpoint / "start"
        if not path.exists():
            path.write_text(str(offset))
        return int(path.read_text())

    def _last(self, name: str) -> int:
        return max((int(path.name) for path in (self._checkpoint / name).glob("*")), default=-1)

    def _end(self, batch: int) -> int:
        text = (self._checkpoint / "offsets" / str(batch)).read_text()
        return int(json.loads(text.splitlines()[2])["0"])

    def _note(self, name: str, batch: int, end: int) -> None:
        (self._checkpoint / name).mkdir(exist_ok=True)
        position = json.dumps({"0": end, "epoch": EPOCH})
        (self._checkpoint / name / str(batch)).write_text(f"v1\n{{}}\n{position}\n")
