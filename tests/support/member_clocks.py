"""Wall clocks of the members of a cluster, each of which can be set while its broker runs.

A file of eight bytes says by how many nanoseconds the clock of a member differs from the machine's;
all its processes have it in their memory, and their Python adds it to ``time.time`` and
``time.time_ns``, from which alone a broker takes the date. Clocks that only count on are left as
they are.

libfaketime, which does the same for any program, is not used here: where a broker with several
threads forks (uvloop does, to start its stream service), the child may wait for ever for a lock of
libfaketime that another thread had at that moment.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Final

from tests.support.machines import Machine, Machines

_NS: Final = 1_000_000_000
_OFFSET: Final = struct.Struct("<q")
_SITE: Final = """
import mmap, struct, time
machine_ns = time.time_ns
with open({path!r}, "rb") as file:
    offset = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
def time_ns():
    return machine_ns() + struct.unpack_from("<q", offset)[0]
def seconds():
    return time_ns() / 1_000_000_000
time.time_ns, time.time = time_ns, seconds
"""


def give_clocks(machines: Machines) -> None:
    """Give each member a wall clock of its own, before its first start."""
    for machine in machines.all.values():
        path = _clock_file(machine)
        path.write_bytes(_OFFSET.pack(0))
        site = path.parent / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(_SITE.format(path=str(path)))
        paths = [str(site), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        absolute = [str(Path(path).resolve()) for path in paths if path]
        machine.member.set_environment("PYTHONPATH", os.pathsep.join(absolute))


def clock_of(machine: Machine) -> int:
    """Return by how many seconds the clock of a member differs from the machine's."""
    (offset_ns,) = _OFFSET.unpack(_clock_file(machine).read_bytes())
    return int(offset_ns) // _NS


def set_clock(machine: Machine, offset_s: int) -> None:
    """Set the clock of a member."""
    with _clock_file(machine).open("r+b", buffering=0) as file:  # in place: it is in their memory
        file.write(_OFFSET.pack(offset_s * _NS))


def _clock_file(machine: Machine) -> Path:
    return machine.member.data_dir.parent / "clock"
