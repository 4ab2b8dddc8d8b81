"""A Spark program over the broker's log: means by line, without a table in between.

python averages.py STREAM_HOST:PORT
"""

import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.spark.java import find_java_home


def main(server: str) -> None:
    os.environ.setdefault("JAVA_HOME", find_java_home())
    # Spark finds the format in the Python that has Penstock; else it would take the PATH's.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.master("local[2]").appName("averages").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # The pattern becomes columns; a condition on one of them is a filter of the log.
    messages = (
        spark.read.format("penstock")
        .option("server", server)
        .option("topicPattern", "plant/{line}/{machine}/temp")
        .load()
    )
    readings = messages.where("line = 'a'").selectExpr(
        "line", "from_json(cast(payload AS string), 'celsius DOUBLE').celsius AS celsius"
    )
    means = readings.groupBy("line").agg(F.count("*"), F.avg("celsius")).orderBy("line")
    for row in means.collect():
        print(*row)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
