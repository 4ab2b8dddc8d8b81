"""``python -m tests.support.sink_program``: a query that publishes to Penstock, killed at will.

``rows`` reads files, ``messages`` reads the messages of ``ledger/#``, transforms and publishes
them below ``out``: source, transformation and sink in one query.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from penstock.spark.session import local_spark


def rows(spark: SparkSession, directory: str) -> DataFrame:
    """Rows to publish, a file a batch."""
    read = spark.readStream.schema("topic string, payload string")
    return read.option("maxFilesPerTrigger", 1).parquet(directory).repartition(2)


def messages(spark: SparkSession, server: str, offsets_max: int) -> DataFrame:
    """The devices' messages with their sender, on other topics, shuffled on the way."""
    read = spark.readStream.format("penstock").option("server", server).option("topics", "ledger/#")
    frame = read.option("maxOffsetsPerTrigger", offsets_max).load().repartition(2, "client_id")
    return frame.selectExpr(
        "concat('out', substring(topic, 7)) topic",
        "concat(cast(payload as string), ' ', client_id) payload",
        "struct(array(struct('offset' key, cast(offset as string) value)) user_properties)"
        " properties",
    )


def main() -> None:
    """As the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["rows", "messages"])
    parser.add_argument("--server", required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--rows", default="", help="directory of the files")
    parser.add_argument("--offsets-max", type=int, default=1, help="of one batch")
    parser.add_argument("--available-now", action="store_true")
    asked = parser.parse_args()
    log = asked.checkpoint.with_suffix(".log")
    with local_spark(f"publish {asked.what}", asked.master, log) as spark:
        if asked.what == "rows":
            frame = rows(spark, asked.rows)
        else:
            frame = messages(spark, asked.server, asked.offsets_max)
        write = frame.writeStream.format("penstock").option("server", asked.server)
        write = write.option("checkpointLocation", str(asked.checkpoint))
        if asked.available_now:
            write = write.trigger(availableNow=True)
        else:
            write = write.trigger(processingTime="0 seconds")
        write.start().awaitTermination()


if __name__ == "__main__":
    main()
