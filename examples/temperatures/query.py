"""The table through Spark SQL, as its owner would use it.

Spark 4.3 has no Delta jar yet. The table's own log, read by `deltalake`, says which Parquet files
are the table; Spark reads those. (Not the whole directory: a killed job leaves files that are no
part of it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deltalake import DeltaTable
from pyspark.errors import PySparkException

from examples.temperatures.programs import DemoFailed
from penstock.spark.session import local_spark

READINGS: Final = """\
SELECT offset, received_at, qos, topic, reading.*
FROM (SELECT *, from_json(CAST(payload AS STRING), 'device STRING, sequence INT,
                          observed_at TIMESTAMP, temperature_f DOUBLE') AS reading
      FROM messages)"""

ONCE_EACH: Final = """\
SELECT * EXCEPT (copy)
FROM (SELECT *, row_number() OVER (PARTITION BY device, sequence ORDER BY offset) AS copy
      FROM readings)
WHERE copy = 1"""
"""Removes what resends repeated: the first row of each reading stays."""

CITIES: Final = """\
SELECT split_part(topic, '/', 2) AS city, count(DISTINCT device) AS devices,
       min(temperature_f) AS lowest_f, round(avg(temperature_f), 1) AS mean_f,
       max(temperature_f) AS highest_f, max_by(observed_at, temperature_f) AS hottest_hour
FROM once_each GROUP BY city ORDER BY city"""

NEWEST: Final = """\
SELECT offset, received_at, qos, device, sequence, observed_at, temperature_f
FROM (SELECT *, row_number() OVER (PARTITION BY device ORDER BY offset DESC) AS age
      FROM readings)
WHERE age = 1 ORDER BY device LIMIT 8"""

_COUNT: Final = "SELECT qos, count(*) AS rows FROM {view} GROUP BY qos"


@dataclass(frozen=True, slots=True)
class Listing:
    """Column names and rows of a small result."""

    names: list[str]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Answers:
    """What Spark found.

    Attributes:
        rows: rows of the table by QoS.
        once_each: rows that `ONCE_EACH` leaves, by QoS.
        newest: the last row of each device.
        cities: a summary by city.
    """

    rows: dict[int, int]
    once_each: dict[int, int]
    newest: Listing
    cities: Listing


def ask(path: Path, log: Path) -> Answers:
    """Start a Spark session and put the questions.

    Raises:
        DemoFailed: Spark cannot answer.
    """
    files = DeltaTable(path).file_uris()
    with local_spark("penstock demo", log=log) as spark:

        def listing(sql: str) -> Listing:
            answer = spark.sql(sql)
            return Listing(answer.columns, [tuple(row) for row in answer.collect()])

        try:
            messages = spark.read.option("basePath", str(path)).parquet(*files)
            messages.createOrReplaceTempView("messages")
            spark.sql(READINGS).createOrReplaceTempView("readings")
            spark.sql(ONCE_EACH).createOrReplaceTempView("once_each")
            return Answers(
                rows=dict(listing(_COUNT.format(view="readings")).rows),
                once_each=dict(listing(_COUNT.format(view="once_each")).rows),
                newest=listing(NEWEST),
                cities=listing(CITIES),
            )
        except PySparkException as error:
            raise DemoFailed(f"Spark could not query the table: {error}") from error
