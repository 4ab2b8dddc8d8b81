"""A broker whose log has a damaged block: it says so, counts it, and its commands work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.stream.client import StreamClient
from tests.contract.test_examination import END, flip, with_incompressible_chunks
from tests.network.test_admin import SETTINGS, scrape, value
from tests.support.deadline import wait_for
from tests.support.environment import environment
from tests.support.fixtures import running_broker
from tests.unit.cli.test_skip_damaged import HIDDEN

KEEPING = {**SETTINGS, "durability.retention_s": 0}


def penstock(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = ["penstock", *map(str, words)]
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, env=environment()
    )


def test_the_broker_logs_a_damaged_block_once_and_counts_it_until_the_remedy_is_done(
    tmp_path: Path,
) -> None:
    """Nobody but the reader learned of it."""
    data_dir = tmp_path / "data"
    with_incompressible_chunks(data_dir)
    flip(data_dir, 0.5)
    with running_broker(tmp_path, KEEPING, stream=True) as broker:
        server = ("--server", "{}:{}".format(*broker.stream_address))
        assert value(scrape(broker), "log_damaged_blocks") == 0
        assert penstock("tail", "--last", "2", *server).returncode == 0
        for _ in range(2):
            told = penstock("tail", "--from", "earliest", "--output", tmp_path / "all.csv", *server)
            assert told.returncode == 1
            assert not (tmp_path / "all.csv").exists()
        found = HIDDEN.search(told.stderr)
        assert found is not None
        wait_for("the metric", lambda: value(scrape(broker), "log_damaged_blocks") == 1)
        (line,) = (line for line in broker.log().splitlines() if found[0] in line)
        assert " ERROR " in line
        assert f"run 'penstock store repair --data-dir {data_dir}'" in line
        words = ("tail", "--from", "earliest", "--skip-damaged", "--output", tmp_path / "all.csv")
        told = penstock(*words, *server)
        assert told.returncode == 0
        assert f"offsets {found[1]} to {found[2]} are left out" in told.stderr
        rows = (tmp_path / "all.csv").read_text().count("\n")
        assert rows == 1 + END - (int(found[2]) + 1 - int(found[1]))
    assert penstock("store", "check", "--data-dir", data_dir).returncode == 1
    assert penstock("store", "repair", "--data-dir", data_dir).returncode == 0
    with running_broker(tmp_path, KEEPING, stream=True) as broker:
        with StreamClient("{}:{}".format(*broker.stream_address)) as client:
            assert client.offsets("messages").given_up == ((int(found[1]), int(found[2]) + 1),)
        told = penstock(
            "tail", "--last", str(END), "--server", "{}:{}".format(*broker.stream_address)
        )
        assert told.returncode == 0
        assert value(scrape(broker), "log_damaged_blocks") == 0
