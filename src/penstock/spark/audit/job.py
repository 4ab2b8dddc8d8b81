"""`penstock audit`: reads events once, then writes tables or a report, or traces one message."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError, PenstockError
from penstock.spark.audit.events import STREAM, read_events
from penstock.spark.audit.measures import Measures, measure
from penstock.spark.audit.report import render
from penstock.spark.audit.tables import (
    TABLE_NAMES,
    join_connections,
    join_deliveries,
    read_landings,
    select_drops,
    with_landings,
    write_tables,
)
from penstock.spark.audit.trace import TraceStep, trace
from penstock.spark.failures import translate_spark_error
from penstock.spark.option_values import SERVER
from penstock.spark.options import service_options
from penstock.spark.session import LOCAL_MASTER, SparkFailed, local_spark
from penstock.stream.client import CONNECT_TIMEOUT_S
from penstock.stream.credentials import PLAIN, Credentials

LOG_NAME: Final = "penstock-audit-spark.log"

_STORAGE_LEVEL: Final = StorageLevel.MEMORY_AND_DISK


@dataclass(frozen=True)
class AuditSettings:
    """The settings of an audit: its events and its output.

    Attributes:
        server: HOST:PORT of the stream service; in a cluster of each, separated by commas.
        since: the time of the first events, UTC; None for the earliest.
        until: the time from which events are left out, UTC; None for no limit.
        output: HTML file of the report; None for no report.
        tables: directory for the tables; None for no tables.
        table_format: the format of these tables.
        landed_table: directory of a table of `penstock table run`, to measure when messages landed
            in it.
        connect_timeout_s: seconds for which the stream service may be unreachable.
        credentials: the credentials for the stream service; a token only by its file.
        master: Spark's master URL.
    """

    server: str = SERVER
    since: datetime | None = None
    until: datetime | None = None
    output: Path | None = None
    tables: Path | None = None
    table_format: Literal["delta", "parquet"] = "delta"
    landed_table: Path | None = None
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    credentials: Credentials = PLAIN
    master: str = LOCAL_MASTER


OpenSpark = Callable[..., AbstractContextManager[SparkSession]]


def audit(settings: AuditSettings, open_spark: OpenSpark = local_spark) -> Measures:
    """Write the tables and the report that the settings name, and return the measures.

    Raises:
        ConfigError: there is no stream of events, no table at `landed_table`, or no directory for
            the report, or the tables' directory has tables that no audit has written.
        StreamUnavailable: the stream service does not answer.
        SparkFailed: Spark did not start, or the query failed.
    """
    landings = read_landings(settings.landed_table) if settings.landed_table is not None else []
    if settings.output is not None and not settings.output.absolute().parent.is_dir():
        raise ConfigError(f"{settings.output.parent} is no directory to write the report to")
    with _open_session(settings, open_spark) as spark:
        events = _events(spark, settings).persist(_STORAGE_LEVEL)
        delivery_frame = join_deliveries(events)
        if landings:
            delivery_frame = with_landings(delivery_frame, landings)
        frames = dict(
            zip(
                TABLE_NAMES,
                (delivery_frame, join_connections(events), select_drops(events)),
                strict=True,
            )
        )
        for frame in frames.values():
            frame.persist(_STORAGE_LEVEL)
        if settings.tables is not None:
            write_tables(settings.tables.absolute(), frames, settings.table_format)
        measures = measure(events, *frames.values())
        for frame in (*frames.values(), events):
            frame.unpersist()
    if settings.output is not None:
        page = render(measures, f"{STREAM} of {settings.server}")
        settings.output.write_text(page, encoding="utf-8")
    return measures


def trace_message(
    settings: AuditSettings, offset: int, open_spark: OpenSpark = local_spark
) -> list[TraceStep]:
    """Return the events of the message at `offset`, in order of time.

    Raises:
        ConfigError: there is no stream of events.
        StreamUnavailable: the stream service does not answer.
        SparkFailed: Spark did not start, or the query failed.
    """
    with _open_session(settings, open_spark) as spark:
        return trace(_events(spark, settings), offset)


def _events(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    service = service_options(settings.server, settings.credentials)
    return read_events(spark, service, settings.since, settings.until, settings.connect_timeout_s)


@contextmanager
def _open_session(settings: AuditSettings, open_spark: OpenSpark) -> Iterator[SparkSession]:
    """Open a Spark whose exceptions become Penstock's; remove its log unless it failed."""
    log = Path(tempfile.mkdtemp(prefix="penstock-audit-")) / LOG_NAME
    keeps_log = False
    try:
        with open_spark("penstock audit", settings.master, log) as spark:
            yield spark
    except PySparkException as error:
        keeps_log = True
        raise translate_spark_error(error, log) from error
    except Exception as error:
        keeps_log = isinstance(error, SparkFailed) or not isinstance(error, PenstockError)
        raise
    finally:
        if not keeps_log:
            log.unlink(missing_ok=True)
            log.parent.rmdir()
