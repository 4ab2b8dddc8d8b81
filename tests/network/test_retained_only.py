"""`penstock sub --retained-only` ends where nothing else comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.bridged import client
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S


@pytest.mark.parametrize("qos", ["0", "1"])
def test_sub_ends_after_the_retained_messages_of_a_quiet_topic(
    shared_broker: Broker, name: str, qos: str
) -> None:
    with client(shared_broker, name) as setting:
        for number in range(100):
            setting.publish(f"{name}/{number}", b"%d" % number, 1, retain=True)
        setting.settle()
    host, port = shared_broker.address
    command = [sys.executable, "-m", "penstock", "sub", "-h", host, "-p", str(port), "-q", qos]
    for wanted, count in (("#", 100), ("nothing", 0)):
        told = subprocess.run(
            [*command, "-t", f"{name}/{wanted}", "--retained-only"],
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE_S,
            check=False,
        )
        assert told.returncode == 0, told.stderr
        assert sorted(told.stdout.split(), key=int) == [str(n) for n in range(count)]
