"""A Spark program over the broker's log: as a batch, and as a stream into a table of its own.

python averages.py STREAM_HOST:PORT TABLE

The batch computes means by line of what is in the log now. The stream writes each reading to TABLE,
a directory of Parquet files, once, also when program or broker are killed: run again it goes on
where it was, and the broker keeps for a week what it has not read.
"""

import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from penstock.spark.java import find_java_home


def readings(reader: DataFrameReader | DataStreamReader, server: str) -> DataFrame:
    """The readings of the log; a message that is none has nulls."""
    # The pattern becomes columns; a condition on one of them is a filter of the log.
    pattern = "plant/{line}/{machine}/temp"
    source = reader.format("penstock").options(server=server, topicPattern=pattern)
    value = "from_json(cast(payload AS string), 'n BIGINT, celsius DOUBLE')"
    columns = ("epoch", "offset", "received_at", "line", "machine", f"{value} AS value")
    messages = source.load().selectExpr(*columns)
    return messages.select("*", "value.*").drop("value")


def averages(spark: SparkSession, server: str) -> list[tuple[object, ...]]:
    """Line, readings and mean of line a: a batch."""
    of_line = readings(spark.read, server).where("line = 'a'").groupBy("line")
    means = of_line.agg(F.count("celsius"), F.avg("celsius")).orderBy("line")
    return [tuple(row) for row in means.collect()]


def keep(spark: SparkSession, server: str, table: str) -> None:
    """Write what is new to the table: a stream. Without the trigger it goes on for ever."""
    reader = spark.readStream.options(groupId="averages", groupLeaseSeconds=7 * 86_400)
    writer = readings(reader, server).writeStream.format("parquet").trigger(availableNow=True)
    # How far it is, is beside the rows: both stay together, or both go.
    query = writer.start(table, checkpointLocation=f"{table}/_checkpoint")
    query.awaitTermination()


if __name__ == "__main__":
    os.environ.setdefault("JAVA_HOME", find_java_home())
    # Spark finds the format in the Python that has Penstock; else it would take the PATH's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("averages").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for row in averages(spark, sys.argv[1]):
        print(*row)
    keep(spark, *sys.argv[1:3])
    print(spark.read.parquet(sys.argv[2]).count(), "rows")
