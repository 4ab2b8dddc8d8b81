"""A job that is killed while it looks after its table: nothing is lost, nothing is there twice."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.spark.tables.landed_table import LandedTable
from penstock.spark.tables.tiers import groups_to_merge
from penstock.spark.tables.upkeep import Upkeep
from tests.support.landed_tables import SCHEMA, offsets, opener
from tests.support.upkeep_program import KEPT_UP

KILLS = 4
ALIVE_S_MAX = 0.5
LOOKS_MAX = 10
"""Each tier that is put together may fill the next one."""


@pytest.mark.parametrize(
    "kind",
    ["delta", pytest.param("iceberg", marks=pytest.mark.torture("the same in another format"))],
)
def test_a_job_that_is_killed_in_the_middle_of_upkeep_has_lost_nothing(
    kind: str, tmp_path: Path
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    acknowledged = 0
    command = [sys.executable, "-m", "tests.support.upkeep_program", kind, str(tmp_path)]
    for _ in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
            assert job.stdout is not None
            first = job.stdout.readline()
            assert first, "it has landed something"
            time.sleep(chance.uniform(0, ALIVE_S_MAX))  # any moment
            job.kill()
            said = [first, *job.stdout.read().splitlines()]
        acknowledged = max(acknowledged, *(int(line) for line in said if line.strip()))
        table = opener(kind, tmp_path)(SCHEMA, ())
        found = offsets(kind, table)
        assert found == list(range(len(found))), "each once"
        assert len(found) >= acknowledged
    looked_after(table)
    assert offsets(kind, table) == found


def looked_after(table: LandedTable) -> None:
    """The killed jobs have left nothing behind that is in the way of one that is let live."""
    upkeep = Upkeep([table], KEPT_UP, clock_s=lambda: 0.0)  # no pause between two looks
    for _ in range(LOOKS_MAX):
        for _ in range(KEPT_UP.merge_files):
            upkeep.after_commit()
        files = table.live_files()
        assert files is not None
        if not groups_to_merge(files, KEPT_UP.merge_files, KEPT_UP.file_bytes, time.time()):
            return
    raise AssertionError(f"still to be put together: {files}")
