"""Three machines of a cluster that are lost, cut off, stopped and damaged in turn, under load.

``CRASH_SEED=... pytest tests/crash/test_cluster_storm.py`` draws the same faults again (what
happens in them is up to the machine). The long run is ``python -m tests.crash.cluster_torture``.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.support import etcd_cluster, nats_cluster
from tests.support.cluster_storm import kinds_of, play
from tests.support.cluster_verdict import Interruption, Verdict, note, noted, total
from tests.support.machines import RunBy
from tests.support.members import NAMES
from tests.support.networks import Network, obstacle
from tests.support.wall_clock import needs_compiler

SHORT: Final = ("machine", "cable", "hand over")


def play_one(directory: Path, kinds: tuple[str, ...] = ()) -> None:
    """Play one storm, in which each of these kinds has its turn; of all that are possible here
    without."""
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    with contextlib.ExitStack() as stack:
        network = None if obstacle() else stack.enter_context(Network(NAMES))
        faults = kinds_of(network is not None)
        faults = [fault for fault in faults if not kinds or fault.name in kinds]
        verdict = play(directory, network, seed, len(faults), faults, lands=not kinds)
        print(verdict)
    assert {one.fault for one in verdict.interruptions} == {fault.name for fault in faults}


@nats_cluster.needed
@pytest.mark.timeout(1200)
@pytest.mark.torture("the faults that other tests have, under all kinds of load")
@needs_compiler
def test_a_lost_machine_a_pulled_cable_and_a_handover_under_load(tmp_path: Path) -> None:
    play_one(tmp_path, SHORT)


@nats_cluster.needed
@pytest.mark.timeout(1800)
@pytest.mark.torture("every kind of fault once: some minutes")
@needs_compiler
def test_every_kind_of_fault(tmp_path: Path) -> None:
    play_one(tmp_path)


@nats_cluster.needed
@pytest.mark.timeout(7200)
@pytest.mark.torture("each kind of damage to the log's servers once: some minutes")
def test_every_kind_of_damage_to_servers_that_brokers_run(tmp_path: Path) -> None:
    play_damage(tmp_path, "brokers")


@etcd_cluster.needed
@pytest.mark.timeout(7200)
@pytest.mark.torture("each kind of damage to etcd's servers once: some minutes")
def test_every_kind_of_damage_to_servers_of_etcd(tmp_path: Path) -> None:
    play_damage(tmp_path, "etcd")


def play_damage(directory: Path, run_by: RunBy) -> None:
    """Play one storm in which each kind of damage has its turn."""
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    faults = kinds_of(False, run_by)
    verdict = play(directory, None, seed, len(faults), faults, run_by=run_by)
    print(verdict)
    assert len(verdict.interruptions) == len(faults)
    assert sum(one.refills for one in verdict.interruptions) > 0


def test_verdicts_of_storms_are_noted_and_added_up(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    one = Verdict({1: 10, 2: 20}, 1, 2, 33, [Interruption("cable", 1.5)], 60.0)
    other = Verdict({1: 5, 2: 7}, 0, 1, None, [Interruption("cable", 0.0, 1, 1)], 30.0)
    for verdict in (one, None, other):
        note(notes, verdict)
    verdicts, failed = noted(notes)
    assert (verdicts, failed) == ([one, other], 1)
    assert total(verdicts) == Verdict(
        {1: 15, 2: 27}, 1, 3, 33, [*one.interruptions, *other.interruptions], 90.0, 2
    )
    last_line = str(total(verdicts)).splitlines()[-1]
    assert " ".join(last_line.split()) == "cable 2 1 1 1 1.50 1.50 1.50"


def test_nothing_of_a_network_is_left_whatever_happens() -> None:
    if why := obstacle():
        pytest.skip(why)
    holders: list[str] = []

    def fail_within() -> None:
        with Network(["one", "two"]) as network:
            place = network.place("one")
            seen = subprocess.run(
                [*place.command, "ip", "-brief", "link"], capture_output=True, text=True, check=True
            )
            assert "cable" in seen.stdout
            holders.append(str(place.root.parent))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_within()
    assert not Path(holders[0]).exists()
