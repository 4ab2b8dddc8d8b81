"""examples/declarative_pipeline, as its README has it: twice, against a running broker."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import penstock
from penstock.spark.java import find_java_home
from tests.spark.conftest import TIMEOUT_S
from tests.support import left_behind
from tests.support.broker import Broker
from tests.support.environment import environment
from tests.support.fixtures import Clients, running_broker

EXAMPLE = Path(__file__).parents[2] / "examples" / "declarative_pipeline"
HIVE = ("--conf", "spark.sql.catalogImplementation=hive")
SMALL = ("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy = tmp_path / "plant"
    shutil.copytree(EXAMPLE, copy)
    return copy


def point(project: Path, broker: Broker) -> None:
    """What the README does with sed, and the address of the broker."""
    spec = project / "spark-pipeline.yml"
    host, port = broker.stream_address
    text = re.sub("(?m)^storage:.*$", f"storage: file://{project}/storage", spec.read_text())
    spec.write_text(text.replace("127.0.0.1:8815", f"{host}:{port}"))


def pipelines(project: Path, *words: str) -> None:
    """`spark-pipelines`, of the PySpark and with the Penstock that this test has."""
    command = Path(sys.executable).with_name("spark-pipelines")
    process = subprocess.Popen(
        [str(command), *words, *SMALL],
        cwd=project,
        env={
            **environment(),
            "JAVA_HOME": find_java_home(),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(Path(penstock.__file__).parents[1]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    left_behind.watch(process.pid)
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, output[-10_000:]
    finally:  # it starts two Java and some Python
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        left_behind.forget(process.pid)


def rows(project: Path, table: str) -> list[dict[str, Any]]:
    """What is in a table, as it lies in the warehouse."""
    found: list[dict[str, Any]] = pq.read_table(project / "spark-warehouse" / table).to_pylist()
    return found


@pytest.mark.torture("starts Spark three times")
def test_each_run_goes_on_after_the_last(project: Path, tmp_path: Path, clients: Clients) -> None:
    with running_broker(tmp_path, stream=True) as broker:
        point(project, broker)
        publisher = clients.join(broker, "press")
        for payload in (b"21.5", b"22.5", b"warm"):
            publisher.publish("plant/a/press/temperature", payload)
        publisher.publish("plant/a/press/pressure", b"3")
        pipelines(project, "dry-run")
        assert not (project / "spark-warehouse" / "messages").exists()
        pipelines(project, "run", *HIVE)
        assert [bytes(row["payload"]) for row in rows(project, "messages")] == [
            b"21.5",
            b"22.5",
            b"warm",
        ]
        publisher.publish("plant/b/oven/temperature", b"180")
        pipelines(project, "run", *HIVE)
    assert sorted(row["offset"] for row in rows(project, "messages")) == [0, 1, 2, 4]
    assert sorted(row["celsius"] for row in rows(project, "temperatures")) == [21.5, 22.5, 180.0]
    hottest = {row["machine"]: row for row in rows(project, "hottest")}
    assert (hottest["press"]["readings"], hottest["press"]["latest"]) == (2, 22.5)
    assert (hottest["oven"]["line"], hottest["oven"]["hottest"]) == ("b", 180.0)
