"""The wall clock of a broker is set, and its machine boots: its intervals are elapsed time.

That its steady clocks go on as they are is what the machine does, so only the wall clock is set
(``tests/support/wall_clock.py``). A broker believes a jump once it has lasted for ten seconds,
hence the lengths of intervals here: they begin before the jump and end after it.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from penstock.engine.values.steady_clock import ClockRecord
from penstock.protocol.packets import Will
from penstock.protocol.properties import Properties
from penstock.store.database import open_database
from penstock.store.identity import CLOCK
from penstock.store.records import decode_clock, encode_clock
from tests.support.broker import Broker
from tests.support.deadline import let_pass, wait_for, wait_until_logged
from tests.support.fixtures import Clients
from tests.support.wall_clock import WallClock, needs_compiler

INTERVAL_S: Final = 14
LONG_S: Final = 3600
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S

pytestmark = needs_compiler


@pytest.fixture
def wall_clock(tmp_path: Path) -> WallClock:
    """The clock of the broker, which nobody synchronizes."""
    return WallClock(tmp_path / "wall_clock", synchronized=False)


@pytest.fixture
def broker(tmp_path: Path, wall_clock: WallClock) -> Iterator[Broker]:
    """A broker with a wall clock of its own, not started."""
    made = Broker(tmp_path)
    for name, value in wall_clock.environment.items():
        made.set_environment(name, value)
    yield made
    made.close()


def boot(broker: Broker) -> None:
    """Let the store be of another boot of the machine."""
    database = open_database(broker.data_dir)
    value = database.families["meta"].get(CLOCK)
    assert value is not None
    kept = decode_clock(value)
    former = ClockRecord(kept.steady_us, kept.wall_us, kept.boot_us, "another boot", kept.leads)
    batch = database.new_batch()
    batch.put(CLOCK, encode_clock(former), database.handles["meta"])
    database.write(batch)
    database.close()


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
    ("offset_s", "said"),
    [
        pytest.param(-2 * HOUR_S, "the wall clock jumped back by 7200.0 s", id="back"),
        pytest.param(
            30 * DAY_S,
            "the wall clock jumped forward by 2592000.0 s",
            id="forward",
            marks=pytest.mark.torture("waits for eighteen seconds"),
        ),
        pytest.param(0, "", id="glitch", marks=pytest.mark.torture("waits for eighteen seconds")),
    ],
)
def test_the_wall_clock_is_set(
    broker: Broker, clients: Clients, wall_clock: WallClock, offset_s: int, said: str
) -> None:
    broker.start()
    watcher = clients.join(broker, "watcher")
    watcher.subscribe("w")
    began_s = time.monotonic()
    leave_all(clients, broker)
    left_s = time.monotonic()
    if offset_s:
        wall_clock.set(offset_s)
        wait_for("the jump", lambda: said in broker.log_path.read_text())
    else:
        for glitch_s in (30 * DAY_S, -2 * HOUR_S, 0):
            wall_clock.set(glitch_s)
            let_pass(2.5)
    assert watcher.take().payload == b"gone"
    assert time.monotonic() - began_s >= INTERVAL_S
    let_pass(max(0.0, left_s + INTERVAL_S + 1.5 - time.monotonic()))  # and a tick
    find_all(clients, broker)
    assert broker.log_path.read_text().count("the wall clock jumped") == (1 if said else 0)


@pytest.mark.parametrize(
    "offset_s",
    [-2 * HOUR_S, pytest.param(30 * DAY_S, marks=pytest.mark.torture("the other direction"))],
)
def test_the_wall_clock_is_set_while_the_broker_is_down(
    broker: Broker, clients: Clients, wall_clock: WallClock, offset_s: int
) -> None:
    """The time it was down counts, as the clock of the machine's boot has it."""
    broker.start()
    leave_all(clients, broker, 4)
    broker.kill()
    wall_clock.set(offset_s)
    let_pass(3)
    broker.start()
    let_pass(2.5)
    find_all(clients, broker, 4)
    wait_until_logged(broker, "while the broker was down")


@pytest.mark.parametrize("off_s", [INTERVAL_S, 30 * DAY_S])
def test_a_machine_without_ntp_that_was_off_expires_what_was_due(
    broker: Broker, clients: Clients, wall_clock: WallClock, off_s: int
) -> None:
    """And a session that had more than a week left is there after a month, by such a clock."""
    broker.start()
    leave_all(clients, broker)
    clients.join(broker, "fortnight", clean_start=False, expiry_s=14 * DAY_S).drop()
    assert broker.stop() == 0
    boot(broker)
    wall_clock.set(off_s)
    broker.start()
    let_pass(1.5)  # a tick
    clients.join(broker, "short", clean_start=False, expiry_s=0, present=False)
    clients.join(broker, "long", clean_start=False, expiry_s=0, present=off_s < LONG_S)
    clients.join(broker, "fortnight", clean_start=False, expiry_s=0, present=True)
    said = (
        "its clock is not synchronized: of the time that the broker was down by this clock, 7 days"
    )
    assert (said in broker.log()) == (off_s > 7 * DAY_S)


def test_a_clock_that_went_back_while_the_machine_was_off_ends_nothing(
    broker: Broker, clients: Clients, wall_clock: WallClock
) -> None:
    broker.start()
    leave_all(clients, broker)
    assert broker.stop() == 0
    boot(broker)
    wall_clock.set(-DAY_S)
    broker.start()
    clients.join(broker, "short", clean_start=False, expiry_s=0, present=True)
    wait_until_logged(broker, "the machine was restarted, and its clock went back")


def test_an_unset_clock_is_told(broker: Broker, clients: Clients, wall_clock: WallClock) -> None:
    wall_clock.set(-40 * 365 * DAY_S)
    broker.start()
    wait_until_logged(broker, "the clock of this machine is not set")
    clients.join(broker, "c").publish("t", b"", 1)
