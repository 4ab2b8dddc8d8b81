"""Lands several declared and derived tables at once: one Spark, and a landing for each table.

Each table has its own query. The service filters by topic, so each message is sent once for each
table whose topics match. A table can fall behind, be restarted, or begin later, without effect on
the others.

Spark is started for the first table that has the lock of its checkpoint and knows its log. A second
run of the same tables waits without one: on a cluster that gives its cores to whoever comes first,
the run that lands would get none, and wait for ever.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.spark.derived.appending import STATE_SETTINGS, AppendTarget
from penstock.spark.derived.derived_table import DerivedTable
from penstock.spark.derived.last_known import LastKnown
from penstock.spark.derived.replacing import ReplaceTarget
from penstock.spark.derived.silence import Silence
from penstock.spark.failures import error_sentence
from penstock.spark.jobs.job import TableJob
from penstock.spark.jobs.landing import Landing
from penstock.spark.jobs.progress import Progress
from penstock.spark.jobs.settings import LOG_NAME, LandingSettings
from penstock.spark.jobs.stateful import StatefulLanding
from penstock.spark.jobs.steps import MessagesTarget
from penstock.spark.jobs.supervision import SupervisedLanding
from penstock.spark.ranges import MessageRanges
from penstock.spark.session import LOCAL_MASTER, SparkFailed, has_ended, local_spark
from penstock.spark.table_selection import AnyTable
from penstock.spark.tables.births import keep_births
from penstock.spark.tables.declared import DeclaredTable
from penstock.spark.tables.delta import DeltaMessageTable
from penstock.spark.tables.evolving import EvolvingTarget
from penstock.spark.tables.landed_table import ROWS
from penstock.spark.tables.landing_target import LandingTarget
from penstock.spark.tables.repeats import Repeats
from penstock.spark.tables.upkeep import Upkeep
from penstock.stream.client import CONNECT_TIMEOUT_S, StreamClient
from penstock.stream.credentials import PLAIN, Credentials

POLL_S: Final = 0.25
"""Seconds between two polls of the landings."""


@dataclass(frozen=True)
class RunSettings:
    """The settings of a run that lands declared and derived tables.

    Attributes:
        server: HOST:PORT of the stream service; in a cluster of each, separated by commas.
        credentials: the credentials for the stream service; a token only by its file.
        available_now: whether the run ends when the messages present at its start have landed.
        trigger_s: shortest time from one commit to the next, in seconds; None for the setting of
            each table.
        connect_timeout_s: seconds for which the stream service may be unreachable before a table
            fails.
        fail_on_data_loss: whether a table gives up if the log loses messages before they land.
        master: Spark's master URL.
    """

    server: str
    credentials: Credentials = PLAIN
    available_now: bool = False
    trigger_s: float | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    fail_on_data_loss: bool = True
    master: str = LOCAL_MASTER

    def connect(self) -> StreamClient:
        """Return a new client of the stream service."""
        return StreamClient(self.server, self.connect_timeout_s, self.credentials)


class TablesFailed(PenstockError):
    """Raised when one table or more gave up; others may have landed."""


class _SharedSpark:
    """The Spark of a run, which is started when the first landing asks for it.

    Args:
        open_spark: opens a session; it is called by the thread that calls `start_if_wanted`, which
            may be the one that gets signals.
        log: the file with Spark's output.
    """

    def __init__(
        self, open_spark: Callable[[], AbstractContextManager[SparkSession]], log: Path
    ) -> None:
        self._open_spark = open_spark
        self._log = log
        self._is_wanted = False
        self._session: Future[SparkSession] = Future()

    def session(self) -> SparkSession:
        """Wait until Spark runs, and return its session. Any thread may call this.

        Raises:
            PenstockError: Spark did not start.
        """
        self._is_wanted = True
        return self._session.result()

    def start_if_wanted(self, stack: ExitStack) -> None:
        """Start Spark if a landing waits for it; ``stack`` ends it.

        Raises:
            PenstockError: Spark did not start.
        """
        if not self._is_wanted or self._session.done():
            return
        try:
            self._session.set_result(stack.enter_context(self._open_spark()))
        except Exception as error:  # after Ctrl-C the landings are told by `give_up`
            self._session.set_exception(error)
            raise

    def give_up(self) -> None:
        """Let no landing wait for a Spark that was not started; none will be."""
        if not self._session.done():
            self._session.set_exception(SparkFailed("the run ended before Spark was started"))

    def failure(self) -> SparkFailed | None:
        """Return the error of a Spark that did not start, or has ended; None while it runs."""
        if not self._session.done():
            return None
        error = self._session.exception()
        if error is not None:
            return SparkFailed(str(error))
        if not has_ended(self._session.result()):
            return None
        more = f" (its output is in {self._log})" if self._log.exists() else ""
        return SparkFailed(f"Spark has ended{more}")


class TablesRun:
    """One run of the landings of tables. `run` blocks; `stop` may be called from a signal handler.

    Landings start one after the other, and then land side by side: if all started at once, their
    planners might exceed the ten seconds that Spark allows for a start. They are independent: a
    landing that fails is restarted (`penstock.spark.jobs.supervision`), and one that gives up ends
    no other.

    Args:
        tables: the tables, at least one.
        settings: the settings of the run.
        on_progress: called with the name of a table and its progress.
        open_spark: opens a Spark session, as `local_spark` does.
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
        self._progress_error: Exception | None = None
        self._log = tables[0].job_dir / LOG_NAME
        self._stopping = False  # no Event: a signal handler that sets one may block forever

    def stop(self) -> None:
        """Ask the run to end; current batches finish first."""
        self._stopping = True
        for landing in self._landings:
            landing.stop()

    def run(self) -> None:
        """Land messages until stopped; with `available_now`, until the present ones have landed.

        The run ends early if every table has given up.

        Raises:
            TablesFailed: tables have given up, or the run was stopped before those present had
                landed; the message names them and their errors.
            SparkFailed: Spark did not start, or did not end after `stop`.
            PenstockError: the error of `Landing.run`, if there is only one table.
        """
        spark = _SharedSpark(
            lambda: self._open_spark(
                "penstock tables", self._settings.master, self._log, lambda: self._stopping
            ),
            self._log,
        )
        with ExitStack() as stack:
            self._run_all(spark, stack)
        if self._progress_error is not None:
            raise self._progress_error
        self._raise_failures([landing.error for landing in self._landings])
        left = [
            table.name
            for table, landing in zip(self._tables, self._landings, strict=True)
            if not landing.is_complete
        ]
        if left and self._settings.available_now:
            raise TablesFailed(
                f"stopped before all messages had landed in {', '.join(left)}: run it again to land"
                " the rest"
            )

    def _run_all(self, spark: _SharedSpark, stack: ExitStack) -> None:
        self._landings = [self._supervise(table, spark) for table in self._tables]
        threads: list[threading.Thread] = []
        try:
            for landing in self._landings:
                threads.append(threading.Thread(target=landing.run))
                threads[-1].start()
                while landing.is_starting and threads[-1].is_alive() and not self._stopping:
                    spark.start_if_wanted(stack)
                    time.sleep(POLL_S)
            if self._stopping:  # `stop` may have been called before the landings existed
                self.stop()
            for thread in threads:
                while thread.is_alive():  # polled, so that Python handles signals
                    spark.start_if_wanted(stack)
                    thread.join(POLL_S)
        finally:  # without Spark, or after a second Ctrl-C, no table may wait or retry for ever
            self.stop()
            spark.give_up()

    def _raise_failures(self, errors: Sequence[Exception | None]) -> None:
        """Raise TablesFailed, or the error of the only table, if tables gave up."""
        failed = [error for error in errors if error is not None]
        if not failed:
            return
        if len(errors) == 1 and isinstance(failed[0], PenstockError):
            raise failed[0]
        names: dict[str, list[str]] = {}
        for table, error in zip(self._tables, errors, strict=True):
            if error is not None:
                names.setdefault(error_sentence(error), []).append(table.name)
        raise TablesFailed(
            "; ".join(
                f"table{'s' if len(tables) > 1 else ''} {', '.join(tables)} gave up: {sentence}"
                for sentence, tables in names.items()
            )
        ) from failed[0]

    def _supervise(self, table: AnyTable, spark: _SharedSpark) -> SupervisedLanding:
        numbers = itertools.count()
        return SupervisedLanding(
            table.name,
            lambda on_progress: self._make_landing(table, spark, on_progress, numbers),
            table.job_dir,
            available_now=self._settings.available_now,
            on_progress=lambda progress: self._report_progress(table.name, progress),
            spark_failure=spark.failure,
        )

    def _report_progress(self, name: str, progress: Progress) -> None:
        """Report progress; stop the run if that fails."""
        try:
            self._on_progress(name, progress)
        except Exception as error:  # such as a broken pipe; `run` raises it
            self._progress_error = error
            self.stop()

    def _make_landing(
        self,
        table: AnyTable,
        spark: _SharedSpark,
        on_progress: Callable[[Progress], None],
        numbers: Iterator[int],
    ) -> TableJob:
        definition = table.definition
        trigger_s = self._settings.trigger_s
        is_silence = isinstance(table, DerivedTable) and isinstance(table.derivation, Silence)

        @contextmanager
        def open_session(*_: object) -> Iterator[SparkSession]:
            session = spark.session().newSession()  # a session allows only one query of a name
            for name, value in STATE_SETTINGS.items():
                session.conf.set(name, value)
            yield session

        settings = LandingSettings(
            table=table.location,
            checkpoint=table.job_dir,
            server=self._settings.server,
            credentials=self._settings.credentials,
            group=table.group,
            group_lease_s=definition.group_lease_s,
            stream=table.stream,
            topics=(table.topic_filter,),
            available_now=self._settings.available_now,
            trigger_s=definition.commit_s_min if trigger_s is None else trigger_s,
            starting_offsets=definition.starting_offsets,
            offsets_per_batch_max=None if is_silence else definition.commit_offsets_max,
            fail_on_data_loss=self._settings.fail_on_data_loss,
            connect_timeout_s=self._settings.connect_timeout_s,
            master=self._settings.master,
            derivation=table.selection("").derivation,
            is_endless=is_silence,
            log=self._log,
        )
        if isinstance(table, DerivedTable) and not isinstance(table.derivation, LastKnown):
            return StatefulLanding(
                settings, append_target(table, self._settings), on_progress, open_session
            )
        target = (
            last_known_target(table, self._settings)
            if isinstance(table, DerivedTable)
            else declared_target(table, self._settings)
        )
        return Landing(settings, on_progress, open_session, target, numbers)


def declared_target(table: DeclaredTable, settings: RunSettings) -> MessagesTarget[MessageRanges]:
    """Return the target of a declared table; one with `evolve` follows its subject's schema."""
    if table.definition.evolve == "add":
        return EvolvingTarget(table, lambda newest: landing_target(newest, settings))
    return landing_target(table, settings)


def landing_target(table: DeclaredTable, settings: RunSettings) -> LandingTarget:
    """Return the target of a declared table with its present schema."""
    definition = table.definition
    tables = table.open()
    repeats = None
    if definition.repeats is not None:
        repeats = Repeats(table.split, table.id_column, definition.repeats.within_s)
    upkeep = Upkeep(tables.values(), definition.upkeep)
    update_births = keep_births(table, table.births_dir, settings.connect)
    return LandingTarget(
        tables, table.split, repeats, upkeep.after_commit, table.split.columns, update_births
    )


def last_known_target(table: DerivedTable, settings: RunSettings) -> ReplaceTarget:
    """Return the target of a table of last rows, which is the whole state."""
    tables = table.open()
    rows, upkeep = tables[ROWS], Upkeep(tables.values(), table.definition.upkeep)
    assert isinstance(table.derivation, LastKnown)
    assert isinstance(rows, DeltaMessageTable), "the configuration allows no other format"
    update_births = keep_births(table.source, table.births_dir, settings.connect)
    return ReplaceTarget(rows, table.derivation, upkeep.after_commit, update_births)


def append_target(table: DerivedTable, settings: RunSettings) -> AppendTarget:
    """Return the target of a table whose query has state."""
    tables = table.open()
    upkeep = Upkeep(tables.values(), table.definition.upkeep)
    checkpoint = table.job_dir
    update_births = keep_births(table.source, table.births_dir, settings.connect)
    derive = table.derivation.derive
    return AppendTarget(tables[ROWS], derive, checkpoint, upkeep.after_commit, update_births)
