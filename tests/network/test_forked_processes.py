"""A broker that the tests fork is as one with an interpreter of its own."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.support.broker import SERVE, Broker
from tests.support.deadline import wait_for
from tests.support.processes import ForkedProcess

OWN = ("env", *SERVE)
"""A command that is not forked."""


def seen(broker: Broker) -> dict[str, object]:
    """Return what the kernel knows of a broker that has begun to serve."""
    process = Path(f"/proc/{broker.process.pid}")
    descriptors: list[str] = []
    for path in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            descriptors.append(str(path.readlink()))
    signals = (process / "status").read_text().split("SigBlk:")[1].split("CapInh:")[0]
    return {
        "session": os.getsid(broker.process.pid) == broker.process.pid,
        "directory": (process / "cwd").readlink(),
        "descriptors": sorted(one.split(":")[0].split("/")[-1] for one in descriptors),
        "signals": signals,
        "limits": (process / "limits").read_text(),
    }


@pytest.mark.parametrize("command", [SERVE, OWN], ids=["forked", "own"])
def test_a_process_that_is_forked_looks_and_ends_as_one_of_its_own(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Two brokers, so that the second could have what the fork server knows of the first."""
    brokers = [Broker(tmp_path / name) for name in "ab"]
    brokers.append(Broker(tmp_path / "c", command=command))
    for broker in brokers:
        broker.log_path.parent.mkdir()
        broker.start()
    is_forked = [isinstance(broker.process, ForkedProcess) for broker in brokers]
    assert is_forked == [True, True, command == SERVE]
    # At times the store has one more file open for a moment.
    wait_for("the same sight", lambda: seen(brokers[1]) == seen(brokers[2]))
    brokers[0].kill()
    assert [broker.process.poll() for broker in brokers] == [-signal.SIGKILL, None, None]
    assert brokers[1].stop() == brokers[2].stop() == 0
    for broker in brokers:
        broker.close()
