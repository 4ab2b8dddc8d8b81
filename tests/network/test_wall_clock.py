"""The wall clock of a running broker is set, by libfaketime: its intervals are elapsed time.

That its steady clocks go on as they are is what the machine does, so libfaketime leaves them alone.
A broker believes a jump once it has lasted for ten seconds, hence the lengths of intervals here:
they begin before the jump and end after it.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.protocol.packets import Will
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import let_pass, wait_for
from tests.support.fixtures import Clients

LIBRARY: Final = next(iter(sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))), None)
INTERVAL_S: Final = 14
LONG_S: Final = 3600

pytestmark = pytest.mark.skipif(
    LIBRARY is None or shutil.which("faketime") is None,
    reason="libfaketime is not installed: apt-get install faketime",
)


@pytest.fixture
def offset_file(tmp_path: Path) -> Path:
    """Where the wall clock is set: by how much it differs from the machine's."""
    path = tmp_path / "offset"
    path.write_text("+0\n")
    return path


@pytest.fixture
def broker(tmp_path: Path, offset_file: Path) -> Iterator[Broker]:
    """A broker with a wall clock of its own, not started."""
    made = Broker(tmp_path)
    made.set_environment("LD_PRELOAD", str(LIBRARY))
    made.set_environment("FAKETIME_TIMESTAMP_FILE", str(offset_file))
    made.set_environment("FAKETIME_NO_CACHE", "1")
    made.set_environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    made.set_environment("DONT_FAKE_MONOTONIC", "1")
    made.set_environment("NO_FAKE_STAT", "1")
    yield made
    made.close()


def set_clock(offset_file: Path, offset: str) -> None:
    """Set the wall clock, whole or not at all."""
    draft = offset_file.with_suffix(".draft")
    draft.write_text(f"{offset}\n")
    draft.replace(offset_file)


def leave_all(clients: Clients, broker: Broker, interval_s: int = INTERVAL_S) -> None:
    """Leave a will, two sessions and two messages, each with a time of its own."""
    will = Will("w", b"gone", properties=Properties(will_delay_interval=interval_s))
    clients.join(broker, "willed", will=will, expiry_s=LONG_S).drop()
    clients.join(broker, "short", clean_start=False, expiry_s=interval_s).drop()
    away = clients.join(broker, "long", clean_start=False, expiry_s=LONG_S)
    away.subscribe("m")
    away.drop()
    publisher = clients.join(broker, "publisher")
    for payload, expiry_s in ((b"short", interval_s), (b"long", LONG_S)):
        properties = Properties(message_expiry_interval=expiry_s)
        publisher.publish("m", payload, 1, properties=properties)


def find_all(clients: Clients, broker: Broker, interval_s: int = INTERVAL_S) -> None:
    """What had a short time is over, and what had a long one is not."""
    clients.join(broker, "short", clean_start=False, expiry_s=0, present=False)
    back = clients.join(broker, "long", clean_start=False, expiry_s=LONG_S, present=True)
    message = back.take()
    assert message.payload == b"long"
    assert message.properties is not None
    left_s = message.properties.message_expiry_interval
    assert left_s is not None
    assert LONG_S - 120 < left_s <= LONG_S - interval_s
    assert back.settle() == []


@pytest.mark.parametrize(
    ("offset", "said"),
    [
        pytest.param("-7200", "the wall clock jumped back by 7200.0 s", id="back"),
        pytest.param(
            "+30d",
            "the wall clock jumped forward by 2592000.0 s",
            id="forward",
            marks=pytest.mark.torture("waits for eighteen seconds"),
        ),
        pytest.param("", "", id="glitch", marks=pytest.mark.torture("waits for eighteen seconds")),
    ],
)
def test_the_wall_clock_is_set(
    broker: Broker, clients: Clients, offset_file: Path, offset: str, said: str
) -> None:
    broker.start()
    watcher = clients.join(broker, "watcher")
    watcher.subscribe("w")
    began_s = time.monotonic()
    leave_all(clients, broker)
    left_s = time.monotonic()
    if offset:
        set_clock(offset_file, offset)
        wait_for("the jump", lambda: said in broker.log_path.read_text())
    else:
        for glitch in ("+30d", "-7200", "+0"):
            set_clock(offset_file, glitch)
            let_pass(2.5)
    assert watcher.take().payload == b"gone"
    assert time.monotonic() - began_s >= INTERVAL_S
    let_pass(max(0.0, left_s + INTERVAL_S + 1.5 - time.monotonic()))  # and a tick
    find_all(clients, broker)
    assert broker.log_path.read_text().count("the wall clock jumped") == (1 if said else 0)


@pytest.mark.parametrize(
    "offset", ["-7200", pytest.param("+30d", marks=pytest.mark.torture("the other direction"))]
)
def test_the_wall_clock_is_set_while_the_broker_is_down(
    broker: Broker, clients: Clients, offset_file: Path, offset: str
) -> None:
    """The time it was down counts, as the clock of the machine's boot has it."""
    broker.start()
    leave_all(clients, broker, 4)
    broker.kill()
    set_clock(offset_file, offset)
    let_pass(3)
    broker.start()
    let_pass(2.5)
    find_all(clients, broker, 4)
    assert "while the broker was down" in broker.log_path.read_text()


def test_an_unset_clock_is_told(broker: Broker, clients: Clients, offset_file: Path) -> None:
    set_clock(offset_file, "-40y")
    broker.start()
    assert "the clock of this machine is not set" in broker.log_path.read_text()
    clients.join(broker, "c").publish("t", b"", 1)
