"""Which PySpark the Python processes have that Spark starts."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.spark import worker_python as under_test
from penstock.spark.arrow_maps import map_in_arrow
from penstock.spark.worker_python import worker_python

PRINT_PATH = "import os; print(os.environ['PYTHONPATH'])"


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the script is made."""
    monkeypatch.setattr(under_test, "private_directory", lambda: tmp_path / "with space")
    return tmp_path / "with space"


def path_in(python: str, *paths: str) -> list[str]:
    environment = os.environ | {"PYTHONPATH": ":".join(paths)}
    said = subprocess.run(
        [python, "-c", PRINT_PATH], env=environment, capture_output=True, text=True, check=True
    )
    return said.stdout.strip().split(":")


def test_a_task_has_the_pyspark_that_is_installed_and_not_the_zip(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            import pyspark as found

            yield pa.RecordBatch.from_pydict({"path": [found.__file__]})

    rows = map_in_arrow(spark.range(1, numPartitions=1), where, "path string").collect()
    assert [row.path for row in rows] == [pyspark.__file__]


def test_the_zips_are_taken_out_and_nothing_else(directory: Path) -> None:
    python = worker_python("local[2,4]")
    assert Path(python).parent == directory
    zips = ["/opt/my spark/python/lib/pyspark.zip", "/opt/my spark/python/lib/py4j-0.10-src.zip"]
    assert path_in(python, *zips, "/mine", "/theirs.zip") == ["/mine", "/theirs.zip"]
    assert path_in(python, "/mine", "/theirs.zip") == ["/mine", "/theirs.zip"]


@pytest.mark.usefixtures("directory")
def test_a_worker_has_the_very_python_that_runs_this() -> None:
    said = subprocess.run(
        [worker_python("local"), "-c", "import sys; print(sys.executable)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == sys.executable


def test_a_cluster_gets_its_own_python(directory: Path) -> None:
    assert worker_python("spark://somewhere:7077") == sys.executable
    assert not directory.exists()


def test_python_is_taken_as_it_is_where_nothing_can_be_written(directory: Path) -> None:
    directory.write_text("a file is in the way", encoding="utf-8")
    assert worker_python("local[*]") == sys.executable
