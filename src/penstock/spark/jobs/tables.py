"""Lands declared and derived tables side by side: one Spark, and a landing for each table.

Each table has its own query: the service filters by topic, so each message
is sent once for each table that takes it; a table can fall behind, be restarted, or begin later
without the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.spark.derived.appending import STATE_SETTINGS, AppendedTable
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.derived.last_known import LastKnown
from penstock.spark.derived.replacing import ReplacedTable
from penstock.spark.derived.silence import Silence
from penstock.spark.failures import sentence_of
from penstock.spark.jobs.landing import (
    CHECKPOINT_NAME,
    LOG_NAME,
    Landing,
    LandingSettings,
    Target,
)
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.supervision import SupervisedLanding
from penstock.spark.session import LOCAL_MASTER, SparkFailed, is_gone, local_spark
from penstock.spark.table_selection import AnyTable
from penstock.spark.tables.api import ROWS
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.evolving import EvolvingTarget
from penstock.spark.tables.landing_target import LandingTarget
from penstock.spark.tables.repeats import Repeats
from penstock.spark.tables.upkeep import Upkeep
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import PLAIN, Credentials

POLL_S: Final = 0.25
"""Pause between two polls of the landings."""


@dataclass(frozen=True)
class RunSettings:
    """The settings for landing declared tables.

    Attributes:
        server: HOST:PORT of the stream service; in a cluster of each, separated by commas.
        credentials: the credentials for the stream service; a token only by its file.
        available_now: end when everything there was at the start has landed.
        trigger_s: shortest time from one commit to the next; None: as each table says.
        connect_timeout_s: how long the stream service may be away before a table fails.
        fail_on_data_loss: whether messages that retention removed before they landed end the
            landing of their table.
        master: Spark's master URL.
    """

    server: str
    credentials: Credentials = PLAIN
    available_now: bool = False
    trigger_s: float | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    fail_on_data_loss: bool = True
    master: str = LOCAL_MASTER


class TablesFailed(PenstockError):
    """Raised when some of several tables gave up; others may have landed."""


class TablesRun:
    """One run of the landings. `run` blocks; `stop` may be called from a signal handler.

    They start one after the other: together they would keep each other from starting in the ten
    seconds that Spark gives a planner.
    They are independent: one that fails is restarted (`penstock.spark.jobs.supervision`), and
    one that gives up ends no other.
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
        self._landings: list[SupervisedLanding] = []
        self._unreported: Exception | None = None
        self._log = tables[0].path / CHECKPOINT_NAME / LOG_NAME
        self._stopping = False  # no Event: a signal handler that sets one may wait forever

    def stop(self) -> None:
        """Ask the run to end; current batches finish first."""
        self._stopping = True
        for landing in self._landings:
            landing.stop()

    def run(self) -> None:
        """Land messages until stopped, or until done if `available_now`.

        It ends early if every table has given up.

        Raises:
            TablesFailed: tables have given up; the message says which, and why.
            PenstockError: as `Landing.run` raises, if there is only one table.
        """
        with self._open_spark("penstock tables", self._settings.master, self._log) as spark:
            try:
                self._run_all(spark)
            finally:  # a second Ctrl-C must not leave a table that retries for ever
                self.stop()
        if self._unreported is not None:
            raise self._unreported
        self._raise([landing.error for landing in self._landings])

    def _run_all(self, spark: SparkSession) -> None:
        self._landings = [self._supervised(table, spark) for table in self._tables]
        threads = []
        for landing in self._landings:
            threads.append(threading.Thread(target=landing.run))
            threads[-1].start()
            while landing.is_starting and threads[-1].is_alive() and not self._stopping:
                time.sleep(POLL_S)
        if self._stopping:  # perhaps before the landings existed
            self.stop()
        for thread in threads:
            while thread.is_alive():  # signals are handled between two polls
                thread.join(POLL_S)

    def _raise(self, errors: Sequence[Exception | None]) -> None:
        """Raise the errors with which tables gave up, if any did."""
        failed = [error for error in errors if error is not None]
        if not failed:
            return
        if len(errors) == 1 and isinstance(failed[0], PenstockError):
            raise failed[0]
        names: dict[str, list[str]] = {}
        for table, error in zip(self._tables, errors, strict=True):
            if error is not None:
                names.setdefault(sentence_of(error), []).append(table.name)
        raise TablesFailed(
            "; ".join(
                f"table{'s' if len(of) > 1 else ''} {', '.join(of)} gave up: {sentence}"
                for sentence, of in names.items()
            )
        ) from failed[0]

    def _supervised(self, table: AnyTable, spark: SparkSession) -> SupervisedLanding:
        return SupervisedLanding(
            table.name,
            lambda on_progress: self._landing(table, spark, on_progress),
            table.path / CHECKPOINT_NAME,
            available_now=self._settings.available_now,
            on_progress=lambda progress: self._pass_on(table.name, progress),
            spark_failure=lambda: self._failure_of(spark),
        )

    def _pass_on(self, name: str, progress: Progress) -> None:
        """Pass progress on; end the run if that fails, because its reader has left."""
        try:
            self._on_progress(name, progress)
        except Exception as error:  # such as a broken pipe; raised again by run
            self._unreported = error
            self.stop()

    def _failure_of(self, spark: SparkSession) -> SparkFailed | None:
        if not is_gone(spark):
            return None
        more = f" ({self._log} has what it printed)" if self._log.exists() else ""
        return SparkFailed(f"Spark has ended{more}")

    def _landing(
        self, table: AnyTable, spark: SparkSession, on_progress: Callable[[Progress], None]
    ) -> Landing:
        definition = table.definition
        given_s = self._settings.trigger_s
        is_derived = isinstance(table, DerivedTable)
        is_silence = isinstance(table, DerivedTable) and isinstance(table.derivation, Silence)

        @contextmanager
        def shared(*_: object) -> Iterator[SparkSession]:
            session = spark.newSession()  # a session has only one query of a name
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
                trigger_s=definition.commit_s_min if given_s is None else given_s,
                starting=definition.starting_offsets,
                offsets_per_batch_max=None if is_silence else definition.commit_offsets_max,
                fail_on_data_loss=self._settings.fail_on_data_loss,
                connect_timeout_s=self._settings.connect_timeout_s,
                master=self._settings.master,
                derivation=table.selection("").derivation,
                is_endless=is_silence,
                log=self._log,
            ),
            on_progress,
            shared,
            derived_target(table) if isinstance(table, DerivedTable) else declared_target(table),
        )


def declared_target(table: DeclaredTable) -> Target:
    """Return the target for messages of a table, by the present schema or following new ones."""
    if table.definition.evolve == "add":
        return EvolvingTarget(table, landing_target)
    return landing_target(table)


def landing_target(table: DeclaredTable) -> LandingTarget:
    """Return the tables of a declaration as a target."""
    definition = table.definition
    tables = table.open()
    repeats = None
    if definition.repeats is not None:
        repeats = Repeats(table.split, table.id_column, definition.repeats.within_s)
    upkeep = Upkeep(tables.values(), definition.upkeep)
    return LandingTarget(tables, table.split, repeats, upkeep.after_commit, table.split.columns)


def derived_target(table: DerivedTable) -> Target:
    """Return the table of a derivation as a target."""
    tables = table.open()
    rows, checkpoint = tables[ROWS], table.path / CHECKPOINT_NAME
    upkeep = Upkeep(tables.values(), table.definition.upkeep)
    if isinstance(table.derivation, LastKnown):
        assert isinstance(rows, DeltaMessageTable), "the configuration allows no other format"
        return ReplacedTable(rows, table.derivation, checkpoint, upkeep.after_commit)
    return AppendedTable(rows, table.derivation.derive, checkpoint, upkeep.after_commit)
