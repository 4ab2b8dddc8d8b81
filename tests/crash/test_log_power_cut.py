"""The power of all three machines fails at one moment: NATS keeps each acknowledged record.

Three real servers are recorded while a log is written, trimmed, and each of them stopped or killed
and started again; then the three disks are built as the cut may have left them, each machine's by a
style of its own, and three servers start on them (``tests/support/log_power_cut.py``). This is
what ``cluster.log`` at NATS rests on: docs/decisions/cluster.md.

A failing cut is named as POSITION:SEED of a recording, which pytest keeps; to see it again::

      python -m tests.support.log_power_cut DIRECTORY POSITION:SEED
"""

import random
from itertools import islice
from pathlib import Path
from typing import Final

import pytest

from tests.support.budget import budget
from tests.support.log_power_cut import LogPowerCuts, draw_log_cuts
from tests.support.log_recording import NODES, LogRecording, Plan, needed, record_log

RECORDS: Final = 150
CUTS: Final = 4
LONG_RECORDS: Final = 2_000  # so many that servers compact their Raft logs
KILLED_RECORDS: Final = 400
LONG_CUTS: Final = 6
LONG_CUTS_MAX: Final = 300
FAULTY_CUTS_MAX: Final = 12

pytestmark = [*needed, pytest.mark.timeout(1800)]


def cut_and_judge(recording: LogRecording, count: int, seed: int) -> None:
    """Cut the power ``count`` times; no cut may lose a record."""
    outcomes = list(LogPowerCuts(recording).run(draw_log_cuts(recording, count, seed)))
    problems = [f"{one.cut} {one.styles} {one.problem}" for one in outcomes if one.problem]
    assert not problems, f"{recording.directory}:\n" + "\n".join(problems)
    assert len(outcomes) == count


def test_each_acknowledged_record_is_there(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    record_log(tmp_path, Plan(seed, RECORDS))
    cut_and_judge(LogRecording(tmp_path), budget(CUTS), seed)


@pytest.mark.torture("records enough that Raft logs are compacted")
def test_each_acknowledged_record_is_there_after_compactions(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    record_log(tmp_path, Plan(seed, LONG_RECORDS, restarts=NODES))
    cut_and_judge(LogRecording(tmp_path), min(budget(LONG_CUTS), LONG_CUTS_MAX), seed)


@pytest.mark.torture("servers that are killed and have to be level again")
def test_a_record_that_outlived_a_kill_outlives_a_power_cut(tmp_path: Path) -> None:
    """A killed server finds in the page cache what was never synced, and must not trust it."""
    seed = random.randrange(2**32)
    record_log(tmp_path, Plan(seed, KILLED_RECORDS, restarts=2 * NODES, kills=True, trims=False))
    cut_and_judge(LogRecording(tmp_path), min(budget(LONG_CUTS), LONG_CUTS_MAX), seed)


@pytest.mark.torture("the proof that the test can fail")
def test_servers_that_sync_later_lose_records(tmp_path: Path) -> None:
    """With the default, ``sync_interval: 2m``, acknowledged records are gone."""
    seed = random.randrange(2**32)
    record_log(tmp_path, Plan(seed, RECORDS, sync_interval='"2m"'))
    recording = LogRecording(tmp_path)
    cuts = draw_log_cuts(recording, FAULTY_CUTS_MAX, seed)
    found = (one for one in LogPowerCuts(recording).run(cuts) if one.problem)
    assert list(islice(found, 1)), "no cut found it"
