"""Declared and derived tables, filled side by side: one Spark, and a landing for each table.

A query for each table rather than one for all: the service filters by topic, so that each message
travels once for each table that wants it; a table can fall behind, be restarted, or begin later
without the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from penstock.config.derived import DerivedDefinition
from penstock.config.table import TableDefinition
from penstock.spark.chosen import AnyTable
from penstock.spark.delta_commit import MessageTable
from penstock.spark.derived.appending import STATE_SETTINGS, AppendedTable
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.derived.last_known import LastKnown
from penstock.spark.derived.replacing import ReplacedTable
from penstock.spark.derived.silence import Silence
from penstock.spark.jobs.compaction import Compaction
from penstock.spark.jobs.landing import (
    CHECKPOINT_NAME,
    LOG_NAME,
    Landing,
    LandingSettings,
    Place,
)
from penstock.spark.jobs.progress import Progress
from penstock.spark.session import LOCAL_MASTER, local_spark
from penstock.spark.tables.api import ROWS, LandedTable
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.landing_place import LandingPlace
from penstock.spark.tables.repeats import Repeats
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import PLAIN, Credentials

POLL_S: Final = 0.25
"""Pause between two looks at the landings."""


@dataclass(frozen=True)
class RunSettings:
    """How declared tables are landed.

    Attributes:
        server: HOST:PORT of the stream service.
        credentials: what it asks for; a token by its file only.
        available_now: end when everything there was at the start has landed.
        connect_timeout_s: how long the stream service may be away.
        fail_on_data_loss: whether messages that retention removed before they landed end the run.
        master: Spark's master URL.
    """

    server: str
    credentials: Credentials = PLAIN
    available_now: bool = False
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    fail_on_data_loss: bool = True
    master: str = LOCAL_MASTER


class TablesRun:
    """One run of the landings. `run` blocks; `stop` may be called from a signal handler.

    They start one after the other: all at once they would keep each other from starting in the ten
    seconds that Spark gives a planner.
    The first landing that fails ends the others, and its error is raised.
    """

    def __init__(
        self,
        tables: Sequence[AnyTable],
        settings: RunSettings,
        on_progress: Callable[[str, Progress], None] = lambda _name, _progress: None,
        open_spark: Callable[..., AbstractContextManager[SparkSession]] = local_spark,
    ) -> None:
        self._tables = tables
        self._settings = settings
        self._on_progress = on_progress
        self._open_spark = open_spark
        self._landings: list[Landing] = []
        self._failures: list[Exception] = []
        self._stopping = False  # no Event: a signal handler that sets one may wait forever

    def stop(self) -> None:
        """Ask the run to end: batches being landed finish first."""
        self._stopping = True
        for landing in self._landings:
            landing.stop()

    def run(self) -> None:
        """Land messages until stopped, or until done where `available_now`.

        Raises:
            PenstockError: what `Landing.run` raises.
        """
        log = self._tables[0].path / CHECKPOINT_NAME / LOG_NAME
        with self._open_spark("penstock tables", self._settings.master, log) as spark:
            self._landings = [self._landing(table, spark) for table in self._tables]
            threads = []
            for landing in self._landings:
                threads.append(threading.Thread(target=self._land, args=(landing,)))
                threads[-1].start()
                while landing.is_starting and threads[-1].is_alive() and not self._stopping:
                    time.sleep(POLL_S)
            if self._stopping:  # perhaps before the landings were there to be told
                self.stop()
            for thread in threads:
                while thread.is_alive():  # signals are handled between two looks
                    thread.join(POLL_S)
        if self._failures:
            raise self._failures[0]

    def _land(self, landing: Landing) -> None:
        try:
            landing.run()
        except Exception as error:  # raised again by run, in the thread of the caller
            self._failures.append(error)
            self.stop()

    def _landing(self, table: AnyTable, spark: SparkSession) -> Landing:
        definition = table.definition
        is_derived = isinstance(table, DerivedTable)
        is_silence = isinstance(table, DerivedTable) and isinstance(table.derivation, Silence)

        @contextmanager
        def shared(*_: object) -> Iterator[SparkSession]:
            session = spark.newSession()  # a session knows only one query of a name
            if is_derived:
                for name, value in STATE_SETTINGS.items():
                    session.conf.set(name, value)
            yield session

        return Landing(
            LandingSettings(
                table=table.path,
                server=self._settings.server,
                credentials=self._settings.credentials,
                group=table.group,
                group_lease_s=definition.group_lease_s,
                stream=table.stream,
                topics=(table.topic_filter,),
                available_now=self._settings.available_now,
                trigger_s=definition.commit_s_min,
                starting=definition.starting_offsets,
                offsets_per_batch_max=None if is_silence else definition.commit_offsets_max,
                fail_on_data_loss=self._settings.fail_on_data_loss,
                connect_timeout_s=self._settings.connect_timeout_s,
                master=self._settings.master,
                derivation=table.selection("").derivation,
                is_endless=is_silence,
            ),
            lambda progress: self._on_progress(table.name, progress),
            shared,
            derived_place(table) if isinstance(table, DerivedTable) else landing_place(table),
        )


def landing_place(table: DeclaredTable) -> LandingPlace:
    """The tables of a declaration, to land in."""
    definition = table.definition
    tables = table.open()
    repeats = None
    if definition.repeats is not None:
        repeats = Repeats(table.sorting, table.id_column, definition.repeats.within_s)
    compact = _compaction(definition, tables)
    return LandingPlace(tables, table.sorting, repeats, compact, table.sorting.columns)


def derived_place(table: DerivedTable) -> Place:
    """The table of a derivation, to fill."""
    tables = table.open()
    rows, checkpoint = tables[ROWS], table.path / CHECKPOINT_NAME
    compact = _compaction(table.definition, tables)
    if isinstance(table.derivation, LastKnown):
        assert isinstance(rows, MessageTable), "the configuration allows no other format"
        return ReplacedTable(rows, table.derivation, checkpoint, compact)
    return AppendedTable(rows, table.derivation.derive, checkpoint, compact)


def _compaction(
    definition: TableDefinition | DerivedDefinition, tables: Mapping[str, LandedTable]
) -> Callable[[], None]:
    compactions = [
        Compaction(one, definition.compact_commits, definition.compact_bytes)
        for one in tables.values()
        if definition.compact_commits and isinstance(one, MessageTable)
    ]

    def compact() -> None:
        for one in compactions:
            one()

    return compact
