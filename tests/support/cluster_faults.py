"""What can happen to the machines of a cluster; each fault is repaired by whoever did it.

================== ================================================================================
``machine``        the primary's machine is lost: its cable, then all its processes (SIGKILL)
``other machine``  the same with the machine of a standby
``cable``          the cable of the primary's machine is pulled
``mute``           what the primary's machine sends is lost
``deaf``           what is sent to the primary's machine is lost
``pause``          all processes of the primary's machine stand still (SIGSTOP)
``broker``         SIGKILL to the primary's broker and its children
``server``         SIGKILL to the NATS server on the primary's machine
``log leader``     SIGKILL to the NATS server that leads the log
``majority``       SIGKILL to two of the three NATS servers; time counts from their return
``slow disk``      the NATS server of the primary's machine stands still nine tenths of the time, in
                   bursts of 90 ms: a disk that takes so long (it has no device of its own to slow)
``full disk``      the disk of one NATS server is full, and has room again; the server is restarted
``flipped bit``    one bit of a block of the log is another one, in the files of a server that does
                   not lead, which is started anew with them while a standby reads what it has
                   missed; then it is replaced by an empty one
``clock``          the wall clock of the primary's broker jumps, and jumps back
``hand over``      the primary is asked to hand over
================== ================================================================================
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from penstock.control.client import ask
from penstock.control.cluster_requests import HandOver, HandOverStarted
from penstock.errors import PenstockError
from tests.support.deadline import let_pass, wait_for
from tests.support.machines import Machine, Machines

Repair = Callable[[], None]

CLOCK_JUMP_S: Final = 300
_BURST_S: Final = 0.09
_BETWEEN_S: Final = 0.01
_FILL: Final = "filled"
_PIECE: Final = bytes(1 << 20)


class Fault(NamedTuple):
    """A kind of fault.

    Attributes:
        name: of the kind.
        strike: does it, and returns what repairs it.
        lasts_s: shortest and longest time until it is repaired.
        needs_network: whether it cannot happen on loopback.
        from_repair: whether the time until acknowledgements come counts from the repair.
    """

    name: str
    strike: Callable[[Machines, random.Random], Repair]
    lasts_s: tuple[float, float]
    needs_network: bool = False
    from_repair: bool = False


def _nothing() -> None:
    pass


def _primary(machines: Machines) -> Machine:
    return wait_for("a primary", machines.primary)


def _standby(machines: Machines, draw: random.Random) -> Machine:
    return draw.choice(machines.others(_primary(machines)))


def _lose(machine: Machine) -> Repair:
    machine.lose()
    return machine.come_back


def _cable(machines: Machines, draw: random.Random) -> Repair:
    del draw
    machine, network = _primary(machines), machines.network
    assert network is not None
    machine.is_away = True
    network.cut(machine.name)

    def repair() -> None:
        network.mend(machine.name)
        machine.is_away = False

    return repair


def _one_way(machines: Machines, is_mute: bool) -> Repair:
    machine, network = _primary(machines), machines.network
    assert network is not None
    machine.is_away = True
    (network.mute if is_mute else network.deafen)(machine.name)

    def repair() -> None:
        network.hear_again(machine.name)
        machine.is_away = False

    return repair


def _pause(machines: Machines, draw: random.Random) -> Repair:
    del draw
    machine = _primary(machines)
    machine.pause()
    return machine.resume


def _kill_broker(machines: Machines, draw: random.Random) -> Repair:
    del draw
    member = _primary(machines).member
    member.kill()
    return member.start


def _kill_server(machine: Machine) -> Repair:
    machine.nats.kill()
    return machine.nats.start


def _kill_majority(machines: Machines, draw: random.Random) -> Repair:
    servers = [machine.nats for machine in draw.sample(list(machines.all.values()), 2)]
    for server in servers:
        server.kill()

    def repair() -> None:
        for server in servers:
            server.start()

    return repair


def _slow_disk(machines: Machines, draw: random.Random) -> Repair:
    server = _primary(machines).nats
    ends_s = time.monotonic() + draw.uniform(3, 6)
    while time.monotonic() < ends_s:
        server.pause()
        let_pass(_BURST_S)
        server.resume()
        let_pass(_BETWEEN_S)
    return _nothing


def _full_disk(machines: Machines, draw: random.Random) -> Repair:
    del draw
    machine = machines.small
    assert machine is not None
    filled = _seen_by(machine) / _FILL
    with filled.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(_PIECE)

    def repair() -> None:
        filled.unlink()
        machine.nats.kill()
        machine.nats.start()

    return repair


def _flip_bit(machines: Machines, draw: random.Random) -> Repair:
    leader = wait_for("a leader of the log", machines.log_leader)
    damaged = draw.choice(machines.others(leader))
    reader = _standby(machines, draw)
    reader.member.kill()
    let_pass(draw.uniform(0.5, 2))  # it misses something
    damaged.nats.kill()
    blocks = sorted(_seen_by(damaged).glob("**/streams/*/msgs/*.blk"))
    block = draw.choice([path for path in blocks if path.stat().st_size])
    size = block.stat().st_size
    place = draw.randrange(max(0, size - (256 << 10)), size)  # of the newest, as a standby reads
    with block.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << draw.randrange(8)]))
    damaged.nats.start()
    reader.member.start()

    def repair() -> None:
        for machine in machines.others(damaged):
            wait_for(
                f"the NATS server of {machine.name}",
                lambda nats=machine.nats: nats.ask("/healthz").get("status") == "ok",  # type: ignore[misc]
            )
        damaged.nats.kill()
        for path in _seen_by(damaged).iterdir():
            shutil.rmtree(path)
        damaged.nats.start()

    return repair


def _jump_clock(machines: Machines, draw: random.Random) -> Repair:
    machine = _primary(machines)
    jump_s = draw.choice((-1, 1)) * CLOCK_JUMP_S
    set_clock(machine, jump_s)
    return lambda: set_clock(machine, 0)


def _hand_over(machines: Machines, draw: random.Random) -> Repair:
    del draw
    with contextlib.suppress(PenstockError):  # no standby was heard: it stays the primary
        ask(_primary(machines).member.data_dir, HandOver(), HandOverStarted)
    return _nothing


def clock_file(machine: Machine) -> Path:
    """Return the file by which the wall clock of a machine's broker is set (libfaketime)."""
    return machine.member.data_dir.parent / "clock"


def set_clock(machine: Machine, offset_s: int) -> None:
    """Set the wall clock of a machine's broker, whole or not at all."""
    path = clock_file(machine)
    draft = path.with_suffix(".draft")
    draft.write_text(f"{offset_s:+d}\n")
    draft.replace(path)


def _seen_by(machine: Machine) -> Path:
    """Return the data of a machine's NATS server as the machine sees it."""
    return machine.place.root / machine.nats.store_dir.relative_to("/")


FAULTS: Final = (
    Fault("machine", lambda machines, _draw: _lose(_primary(machines)), (3, 8)),
    Fault("other machine", lambda machines, draw: _lose(_standby(machines, draw)), (2, 6)),
    Fault("cable", _cable, (3, 10), needs_network=True),
    Fault("mute", lambda machines, _draw: _one_way(machines, is_mute=True), (3, 10), True),
    Fault("deaf", lambda machines, _draw: _one_way(machines, is_mute=False), (3, 10), True),
    Fault("pause", _pause, (2, 12)),
    Fault("broker", _kill_broker, (0, 4)),
    Fault("server", lambda machines, _draw: _kill_server(_primary(machines)), (0, 4)),
    Fault(
        "log leader",
        lambda machines, _draw: _kill_server(wait_for("a leader", machines.log_leader)),
        (0, 4),
    ),
    Fault("majority", _kill_majority, (2, 8), from_repair=True),
    Fault("slow disk", _slow_disk, (0, 0)),
    Fault("full disk", _full_disk, (2, 6), needs_network=True),
    Fault("flipped bit", _flip_bit, (2, 5)),
    Fault("clock", _jump_clock, (11, 14)),
    Fault("hand over", _hand_over, (0, 1)),
)
NAMES: Final = tuple(fault.name for fault in FAULTS)
