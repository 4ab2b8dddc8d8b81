"""Two brokers and a bridge over a link that is cut, while brokers and publisher are killed in turn.

``CRASH_SEED=... pytest tests/crash/test_bridge_storm.py`` draws the same faults again (what happens
in them is up to the machine). The long run is ``python -m tests.crash.bridge_torture``.
"""

import os
import random
import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import pytest

from tests.support.bridge_storm import KINDS, judge, play
from tests.support.namespaces import Link, Namespaces, Proxied, obstacle
from tests.support.outbox_publisher import AT_LEAST_ONCE, ONCE

MESSAGES: Final = 2000
ROUNDS: Final = len(KINDS) + 2  # so each kind of fault has its turn


def play_and_judge(directory: Path, link: AbstractContextManager[Link], messages: int) -> None:
    """One storm."""
    seed = int(os.environ.get("CRASH_SEED") or random.randrange(2**32))
    print(f"CRASH_SEED={seed}")
    with link as joined:
        verdict = play(directory, joined, seed, messages, ROUNDS, ROUNDS)
    print(verdict)
    assert min(verdict.faults.values()) > 0
    assert verdict.is_kept, f"\n{verdict}"


@pytest.mark.timeout(1200)
@pytest.mark.torture("the same storm over a link of network namespaces")
def test_qos_2_arrives_once_and_in_order_and_qos_1_arrives(tmp_path: Path) -> None:
    if why := obstacle():
        pytest.skip(why)
    play_and_judge(tmp_path, Namespaces(), MESSAGES)


@pytest.mark.timeout(1200)
@pytest.mark.torture("a storm of half a minute")
def test_the_same_over_a_proxy_that_ends_connections(tmp_path: Path) -> None:
    play_and_judge(tmp_path, Proxied(), MESSAGES // 2)


def test_namespaces_are_removed_whatever_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    if why := obstacle():
        pytest.skip(why)

    def known() -> set[str]:
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True)
        return {name for name in names.stdout.split() if name.startswith(f"penstock-{os.getpid()}")}

    def fail_within() -> None:
        with Namespaces():
            assert len(known()) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_within()
    assert known() == set()
    monkeypatch.setattr("tests.support.namespaces._CABLE", "a name that is no interface's")
    with pytest.raises(OSError, match="ip link add"):
        Namespaces().__enter__()
    assert known() == set()


def test_the_judge_finds_what_is_wrong() -> None:
    record = {ONCE: [1, 3, 2, 2, 5], AT_LEAST_ONCE: [1, 2, 1, 2, 4, 3]}
    assert judge(record, 5) == {
        "lost": 1,
        "duplicated": 1,
        "disordered": 1,
        "lost_of_qos1": 1,
        "disordered_of_qos1": 1,
        "repeated_of_qos1": 2,
    }
