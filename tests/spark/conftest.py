"""A log, a stream service over it, and one Spark for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.session import local_spark
from tests.spark.log_writer import LogWriter
from tests.spark.service_process import ServiceProcess

TIMEOUT_S = 900  # a query takes its time on a machine that does much else


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All that runs Spark may take long."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(TIMEOUT_S))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    here = tmp_path_factory.mktemp("spark")
    tables = {"spark_sql_warehouse_dir": str(here / "warehouse")}
    with local_spark(
        "penstock tests", "local[2,4]", here / "spark.log", lambda: False, **tables
    ) as session:
        yield session


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LogWriter]:
    with LogWriter(tmp_path / "data") as writer:
        yield writer


@pytest.fixture
def other_log(tmp_path: Path) -> Iterator[LogWriter]:
    """That of a second broker."""
    with LogWriter(tmp_path / "other-data", "20261121T000000-00000009") as writer:
        yield writer


@pytest.fixture
def other_service(other_log: LogWriter) -> Iterator[ServiceProcess]:
    process = ServiceProcess(other_log.data_dir)
    process.start()
    yield process
    process.stop()


@pytest.fixture
def service(log: LogWriter) -> Iterator[ServiceProcess]:
    process = ServiceProcess(log.data_dir)
    process.start()
    yield process
    process.stop()
