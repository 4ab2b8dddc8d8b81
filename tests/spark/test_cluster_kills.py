"""Declared tables on a real standalone cluster, whose worker, driver and broker are killed.

``CRASH_SEED=... pytest tests/spark/test_cluster_kills.py`` draws the same moments again (what
happens in them is up to the machine). The long run, of sinks too, is ``python -m
tests.crash.pipeline_torture``.
"""

import os
import random
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.support.fixtures import running_broker
from tests.support.pipeline_storm import KINDS, play, prepared
from tests.support.pipelines import LogToTable, compare
from tests.support.spark_cluster import SparkCluster
from tests.support.table_readers import read_back

MESSAGES: Final = 3000
NAME: Final = "log-to-table"


@pytest.mark.torture("starts a Spark cluster")
def test_rows_equal_acknowledgements_after_a_kill_of_each(
    tmp_path: Path, spark: SparkSession
) -> None:
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    (tmp_path / "broker").mkdir()
    with (
        running_broker(tmp_path / "broker", {"log.level": "info"}, stream=True) as broker,
        SparkCluster(tmp_path / "cluster") as cluster,
        prepared(NAME, tmp_path / "pipeline", broker, seed, MESSAGES // len(KINDS)) as pipeline,
    ):
        log = tmp_path / "driver.log"
        verdict = play(pipeline, NAME, cluster, broker, log, seed, MESSAGES, len(KINDS))
        print(f"{verdict}\n{log.read_text()}")
        assert set(verdict.killed.values()) == {1}
        assert verdict.outcome.acknowledged == MESSAGES
        assert verdict.is_kept, verdict
        assert isinstance(pipeline, LogToTable)
        assert read_back(pipeline.table, spark).num_rows == MESSAGES


def test_the_comparison_finds_what_is_lost_repeated_and_invented() -> None:
    found = [("a", 0), ("a", 2), ("a", 2), ("b", 0), ("c", 7)]
    outcome = compare({"a": {0, 1, 2}, "b": {0}}, found)
    assert (outcome.acknowledged, outcome.rows) == (4, 5)
    assert (outcome.lost, outcome.duplicated, outcome.unknown) == (1, 1, 1)
    assert not outcome.is_kept
    assert compare({"a": {0, 1}}, [("a", 1), ("a", 0)]).is_kept
