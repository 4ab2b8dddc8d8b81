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
``view bit``       one bit of a standby's view is another one: of a file of its store, while it is
                   stopped; half of them are made the primary next. Either it does not matter, or
                   it is refused: an operator's ``store check`` finds it, and ``cluster reseed``
                   mends it
``lost view``      the store of a standby is removed while it is stopped; it is seeded by itself
``clock``          the wall clock of the primary's broker jumps by five minutes, and jumps elsewhere
                   when it is its turn again, while other faults happen
``hand over``      the primary is asked to hand over
================== ================================================================================
"""

from __future__ import annotations

import contextlib
import random
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from penstock.control.client import ask
from penstock.control.cluster_requests import HandOver, HandOverStarted
from penstock.errors import PenstockError
from penstock.store.database import STORE_DIRECTORY
from tests.support.deadline import let_pass, wait_for
from tests.support.machines import Machine, Machines

Repair = Callable[[], None]

CLOCKS_S: Final = (-300, 0, 300)
"""Offsets, seconds, of a broker's wall clock from the machine's."""

_BURST_S: Final = 0.09
_BETWEEN_S: Final = 0.01
_FILL: Final = "filled"
_PIECE: Final = bytes(1 << 20)
_NO_DATA: Final = ("LOG", "LOCK")  # how names of files begin that say nothing of the view
_SETTLED_S: Final = 45.0


class Fault(NamedTuple):
    """A kind of fault.

    Attributes:
        name: of the kind.
        strike: does it, and returns what repairs it.
        lasts_s: shortest and longest time until it is repaired.
        needs_network: whether it cannot happen on loopback.
        from_repair: whether the time until acknowledgements come counts from the repair.
        others_serve: whether clients are served before it is repaired, by another machine if need
            be.
    """

    name: str
    strike: Callable[[Machines, random.Random], Repair]
    lasts_s: tuple[float, float]
    needs_network: bool = False
    from_repair: bool = False
    others_serve: bool = False


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


def _one_way(machines: Machines, draw: random.Random, is_mute: bool) -> Repair:
    del draw
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
    ends_s = time.monotonic() + draw.uniform(2, 4)
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
    _flip(block, place, draw)
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


def _flip(path: Path, place: int, draw: random.Random) -> None:
    """Turn a bit of a byte of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1 << draw.randrange(8)]))


def _flip_view_bit(machines: Machines, draw: random.Random) -> Repair:
    machine = _standby(machines, draw)
    member = machine.member
    member.kill()
    store = member.data_dir / STORE_DIRECTORY
    files = [path for path in sorted(store.iterdir()) if not path.name.startswith(_NO_DATA)]
    path = draw.choice([path for path in files if path.stat().st_size])
    _flip(path, draw.randrange(path.stat().st_size), draw)
    member.start()
    wait_for("its role, or its end", lambda: member.role() or not member.is_running, _SETTLED_S)
    if draw.random() < 0.5:
        with contextlib.suppress(PenstockError):
            ask(_primary(machines).member.data_dir, HandOver(machine.name), HandOverStarted)

    def repair() -> None:
        if member.is_running:
            member.kill()
        if member.penstock("store", "check").returncode:
            told = member.penstock("cluster", "reseed")
            assert told.returncode == 0, told.stderr
            for kept in member.data_dir.glob(f"{STORE_DIRECTORY}.kept-*"):
                shutil.rmtree(kept)
        member.start()

    return repair


def _lose_view(machines: Machines, draw: random.Random) -> Repair:
    member = _standby(machines, draw).member
    member.kill()
    shutil.rmtree(member.data_dir / STORE_DIRECTORY)
    member.start()
    return _nothing


def _jump_clock(machines: Machines, draw: random.Random) -> Repair:
    clock = _primary(machines).wall_clock
    assert clock is not None
    clock.set(draw.choice([jump_s for jump_s in CLOCKS_S if jump_s != clock.offset_s]))
    return _nothing


def _hand_over(machines: Machines, draw: random.Random) -> Repair:
    del draw
    with contextlib.suppress(PenstockError):  # no standby was heard: it stays the primary
        ask(_primary(machines).member.data_dir, HandOver(), HandOverStarted)
    return _nothing


def _seen_by(machine: Machine) -> Path:
    """Return the data of a machine's NATS server as the machine sees it."""
    return machine.place.root / machine.nats.store_dir.relative_to("/")


FAULTS: Final = (
    Fault("machine", lambda machines, _draw: _lose(_primary(machines)), (0, 3), others_serve=True),
    Fault(
        "other machine",
        lambda machines, draw: _lose(_standby(machines, draw)),
        (0, 3),
        others_serve=True,
    ),
    Fault("cable", _cable, (0, 3), needs_network=True, others_serve=True),
    Fault("mute", partial(_one_way, is_mute=True), (0, 3), needs_network=True, others_serve=True),
    Fault("deaf", partial(_one_way, is_mute=False), (0, 3), needs_network=True, others_serve=True),
    Fault("pause", _pause, (0, 4), others_serve=True),
    Fault("broker", _kill_broker, (0, 2), others_serve=True),
    Fault(
        "server",
        lambda machines, _draw: _kill_server(_primary(machines)),
        (0, 2),
        others_serve=True,
    ),
    Fault(
        "log leader",
        lambda machines, _draw: _kill_server(wait_for("a leader", machines.log_leader)),
        (0, 2),
        others_serve=True,
    ),
    Fault("majority", _kill_majority, (1, 5), from_repair=True),
    Fault("slow disk", _slow_disk, (0, 0)),
    Fault("full disk", _full_disk, (2, 4), needs_network=True),
    Fault("flipped bit", _flip_bit, (1, 3)),
    Fault("view bit", _flip_view_bit, (0, 2)),
    Fault("lost view", _lose_view, (0, 1)),
    Fault("clock", _jump_clock, (0, 1)),
    Fault("hand over", _hand_over, (0, 1)),
)
NAMES: Final = tuple(fault.name for fault in FAULTS)
