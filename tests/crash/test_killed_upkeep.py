"""A job that is killed while it looks after its table: nothing is lost, nothing is there twice."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.landed_tables import SCHEMA, offsets, opener

KILLS = 5
ALIVE_S_MAX = 0.5


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
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
    files = table.live_files()
    assert files is not None
    assert len(files) < len(found) / 3 / 2, "it was looked after"
