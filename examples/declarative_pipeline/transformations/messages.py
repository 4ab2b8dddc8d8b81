"""Bronze: every message as it came, once."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(comment="What machines published, as it came")
def messages() -> DataFrame:
    """A streaming table: each run goes on after the last offset of the run before."""
    return (
        spark.readStream.format("penstock")
        .option("server", spark.conf.get("spark.penstock.server", "127.0.0.1:8815"))
        .option("topics", "plant/+/+/temperature")
        .load()
    )
