"""Damage to the machines of a cluster, in which each broker runs the server of the log beside it.

===================== ===========================================================================
``flip FILE``         one bit of a file of a server of the log is another one; it is killed before
``zero FILE``         4 KiB of the file, or what it has, are zeros
``cut FILE``          the file ends earlier, at any place
``failing disk``      each write and each sync of a server fails with EIO (``failing_disk``)
``lost server``       all files of a server are gone
``older server``      a server comes back with the files that it had some seconds ago
``older view``        a standby comes back with the store that it had some seconds ago
``older machine``     a standby's machine comes back as a snapshot of it, some seconds old: view and
                      server
``lost view``         a standby comes back without its store
``lost log``          all files of all servers are gone, and all brokers were killed
``renamed server``    a standby's server comes back empty and under another name, and the former one
                      is removed (`penstock cluster remove`); NATS only
``lying disk``        power is lost on all machines, and the server of one has the files that it
                      had a second ago, although it had synced them since
``replaced machine``  a standby's machine comes back with empty disks: no view, no server
===================== ===========================================================================

FILE is one of ``FILES``. Nobody repairs anything: the members have to, or say what an operator has
to do, which ``cluster_operator`` then does.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from penstock.store.database import STORE_DIRECTORY
from tests.support.child_servers import ChildServer
from tests.support.cluster_faults import Fault, Repair, _flip, _lose_view, _nothing, _standby
from tests.support.deadline import let_pass, wait_for
from tests.support.failing_disk import failing_disk
from tests.support.machines import Machine, Machines

FILES: Final = {
    "stream block": ("**/streams/*/msgs/*.blk",),
    "stream state": ("**/streams/*/meta.*", "**/streams/*/msgs/index.db"),
    "raft block": ("**/_js_/S-*/msgs/*.blk",),
    "raft snapshot": ("**/_js_/S-*/snapshots/*",),
    "raft votes": ("**/_js_/S-*/tav.idx", "**/_js_/S-*/peers.idx"),
    "raft state": ("**/_js_/S-*/meta.*", "**/_js_/S-*/msgs/index.db"),
    "meta block": ("**/_js_/_meta_/msgs/*.blk",),
    "meta snapshot": ("**/_js_/_meta_/snapshots/*",),
    "meta votes": ("**/_js_/_meta_/*.idx",),
    "meta state": ("**/_js_/_meta_/meta.*", "**/_js_/_meta_/msgs/index.db"),
}
"""The kinds of files of a NATS server, as patterns below its directory."""

ETCD_FILES: Final = {
    "database": ("member/snap/db",),
    "write-ahead log": ("member/wal/*.wal",),
    "snapshot": ("member/snap/*.snap",),
}
"""The kinds of files of an etcd server."""

_ZEROS: Final = 4096
_GROWS_S: Final = (1.0, 4.0)


def _any(machines: Machines, draw: random.Random) -> Machine:
    return draw.choice(list(machines.all.values()))


def flip(path: Path, draw: random.Random) -> None:
    """Turn a bit of a file."""
    _flip(path, draw.randrange(path.stat().st_size), draw)


def flip_bit(path: Path) -> None:
    """Turn a bit in the middle of a file."""
    _flip(path, path.stat().st_size // 2, random.Random(4))


def zero(path: Path, draw: random.Random) -> None:
    """Write zeros into a file."""
    size = path.stat().st_size
    place = draw.randrange(size)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes(min(_ZEROS, size - place)))


def cut(path: Path, draw: random.Random) -> None:
    """Let a file end earlier."""
    with path.open("r+b") as file:
        file.truncate(draw.randrange(path.stat().st_size))


HOW: Final[dict[str, Callable[[Path, random.Random], None]]] = {
    "flip": flip,
    "zero": zero,
    "cut": cut,
}


def files_of(directory: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files with content that match."""
    found = {path for pattern in patterns for path in directory.glob(pattern)}
    return sorted(path for path in found if path.is_file() and path.stat().st_size)


def _while_its_server_is_down(machine: Machine, change: Callable[[], None]) -> None:
    """Kill the server, change its files, and start it again, or let its broker do so."""
    machine.member.pause()
    try:
        machine.nats.kill()
        change()
        machine.nats.start()
    finally:
        machine.member.resume()


def _damage(machines: Machines, draw: random.Random, how: str, patterns: tuple[str, ...]) -> Repair:
    machine = _any(machines, draw)
    other = _standby(machines, draw)
    other.member.pause()  # the log keeps what its view lacks
    let_pass(draw.uniform(*_GROWS_S))

    def change() -> None:
        found = files_of(machine.nats.store_dir, patterns)
        machines.has_missed = not found
        if found:
            HOW[how](draw.choice(found), draw)

    try:
        _while_its_server_is_down(machine, change)
    finally:
        other.member.resume()
    return _nothing


def _failing_disk(machines: Machines, draw: random.Random) -> Repair:
    machine = _any(machines, draw)
    failing = failing_disk(machine.nats.pid)
    failing.__enter__()

    def repair() -> None:
        failing.__exit__(None, None, None)

    return repair


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        shutil.rmtree(path)


def _lose_server(machines: Machines, draw: random.Random) -> Repair:
    machine = _any(machines, draw)
    _while_its_server_is_down(machine, lambda: _empty(machine.nats.store_dir))
    return _nothing


def _copied(machine: Machine) -> Path:
    """Copy the files of a server at one moment; return the copy."""
    copy = machine.nats.store_dir.with_name("copy")
    machine.nats.pause()
    try:
        subprocess.run(["cp", "-a", str(machine.nats.store_dir), str(copy)], check=True)
    finally:
        machine.nats.resume()
    return copy


def _put_back(machine: Machine, copy: Path) -> None:
    shutil.rmtree(machine.nats.store_dir)
    copy.rename(machine.nats.store_dir)


def _put_server_back(machines: Machines, draw: random.Random) -> Repair:
    machine = _any(machines, draw)
    copy = _copied(machine)
    let_pass(draw.uniform(*_GROWS_S))
    _while_its_server_is_down(machine, lambda: _put_back(machine, copy))
    return _nothing


def _put_view_back(machines: Machines, draw: random.Random) -> Repair:
    machine = _standby(machines, draw)
    store = machine.member.data_dir / STORE_DIRECTORY
    copy = store.with_name("older")
    machine.member.kill()
    shutil.copytree(store, copy)
    machine.member.start()
    wait_for("its role", machine.member.role)
    let_pass(draw.uniform(*_GROWS_S))
    machine.member.kill()
    shutil.rmtree(store)
    copy.rename(store)
    machine.member.start()
    return _nothing


def _put_machine_back(machines: Machines, draw: random.Random) -> Repair:
    machine = _standby(machines, draw)
    member, server = machine.member, machine.nats
    places = [member.data_dir]
    if not server.store_dir.is_relative_to(member.data_dir):
        places.append(server.store_dir)
    machine.pause()
    try:
        for place in places:
            subprocess.run(["cp", "-a", str(place), f"{place}.older"], check=True)
    finally:
        machine.resume()
    let_pass(draw.uniform(*_GROWS_S))
    member.pause()
    server.kill()
    member.kill()
    for place in places:
        shutil.rmtree(place)
        place.with_name(f"{place.name}.older").rename(place)

    def repair() -> None:
        server.start()
        member.start()

    return repair


def _lose_log(machines: Machines, draw: random.Random) -> Repair:
    del draw
    for one in machines.all.values():
        one.member.pause()
    for one in machines.all.values():
        one.nats.kill()
        one.member.kill()
    machines.lose_log()

    return partial(_start_all, machines)


def _start_all(machines: Machines) -> None:
    for one in machines.all.values():
        one.nats.start()
    for one in machines.all.values():
        one.member.start()


def _rename_server(machines: Machines, draw: random.Random) -> Repair:
    machine = _standby(machines, draw)
    member, server = machine.member, machine.nats
    assert isinstance(server, ChildServer)
    member.pause()
    server.kill()
    member.kill()
    _empty(server.store_dir)
    former = server.name
    member.set_environment("PENSTOCK_CLUSTER__SERVER_NAME", server.rename())

    def repair() -> None:
        member.start()
        machines.operator.remove_server(former)

    return repair


def _lie(machines: Machines, draw: random.Random) -> Repair:
    machine = _any(machines, draw)
    copy = _copied(machine)
    let_pass(draw.uniform(0.2, 1.5))
    for one in machines.all.values():
        one.member.pause()
    for one in machines.all.values():
        one.nats.kill()
        one.member.kill()
    _put_back(machine, copy)

    return partial(_start_all, machines)


def _replace_machine(machines: Machines, draw: random.Random) -> Repair:
    machine = _standby(machines, draw)
    machine.member.pause()
    machine.nats.kill()
    machine.member.kill()
    shutil.rmtree(machine.member.data_dir)
    if machine.nats.store_dir.exists():
        shutil.rmtree(machine.nats.store_dir)

    def repair() -> None:
        machine.nats.start()
        machine.member.start()

    return repair


def _in_files(files: Mapping[str, tuple[str, ...]]) -> list[Fault]:
    return [
        Fault(f"{how} {name}", partial(_damage, how=how, patterns=patterns), (0, 1))
        for name, patterns in files.items()
        for how in HOW
    ]


_ELSE: Final = (
    Fault("failing disk", _failing_disk, (5, 40)),
    Fault("lost server", _lose_server, (0, 1)),
    Fault("older server", _put_server_back, (0, 1)),
    Fault("older view", _put_view_back, (0, 1)),
    Fault("older machine", _put_machine_back, (0, 1)),
    Fault("lost view", _lose_view, (0, 1)),
    Fault("lost log", _lose_log, (0, 1), from_repair=True),
    Fault("lying disk", _lie, (0, 1), from_repair=True),
    Fault("replaced machine", _replace_machine, (0, 2)),
)
DAMAGE: Final = (
    *_in_files(FILES),
    *_ELSE,
    Fault("renamed server", _rename_server, (0, 2)),
)
ETCD_DAMAGE: Final = (*_in_files(ETCD_FILES), *_ELSE)
