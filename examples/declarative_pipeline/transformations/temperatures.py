"""Silver: messages that are temperatures, with a column for each thing that the topic names."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()


@dp.table(comment="Temperatures in degrees Celsius, by line and machine")
def temperatures() -> DataFrame:
    """A payload is a number; what is none stays in `messages` alone."""
    level = F.split("topic", "/")
    # select, not withColumn: that one would hide from Spark that messages come first.
    return (
        spark.readStream.table("messages")
        .select(
            "epoch",
            "offset",
            "received_at",
            level[1].alias("line"),
            level[2].alias("machine"),
            F.expr("try_cast(decode(payload, 'utf-8') AS double)").alias("celsius"),
        )
        .where("celsius IS NOT NULL")
    )
