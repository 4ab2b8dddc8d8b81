"""What an idle connection and an idle session cost: allocated bytes, not resident memory.

All objects are allocated by the C library (``PYTHONMALLOC=malloc``), compiled classes among them,
and ``mallinfo2`` has the sum of what is allocated, with what the allocator adds. Resident memory
would have what was freed meanwhile, too, and what Python's arenas keep. The event loop's transport
and the socket are not counted: they are the same for any broker on the loop.
"""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from benchmarks.hot_paths import connect, feed, subscribe
from benchmarks.turned_broker import Transport, TurnedBroker, stop_clocks

_CLIENTS: Final = 1000
_WARM_UP: Final = 1000  # before the first reading: tables that grow by steps have grown


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def allocated_bytes() -> int:
    """Return the bytes that this process has allocated."""
    gc.collect()
    read = ctypes.CDLL(None).mallinfo2
    read.restype = _MallocInfo
    info = read()
    return int(info.uordblks + info.hblkhd)


def _connections(broker: TurnedBroker, transports: list[Transport], first: int) -> None:
    """Connect clients that subscribe."""
    for number, transport in enumerate(transports, first):
        broker.connect(transport)
        feed(broker, [transport], [[(0, connect(f"client-{number:06}"))]])
        feed(broker, [transport], [[(0, subscribe(f"commands/{number:06}", 1))]])


def _sessions(broker: TurnedBroker, transports: list[Transport], first: int) -> None:
    """Connect clients that subscribe and leave, but for their sessions."""
    for number, transport in enumerate(transports, first):
        broker.connect(transport)
        feed(broker, [transport], [[(0, connect(f"client-{number:06}", is_persistent=True))]])
        feed(broker, [transport], [[(0, subscribe(f"commands/{number:06}", 1))], [(0, b"")]])
        del transport.wire


IDLE: Final[dict[str, Callable[[TurnedBroker, list[Transport], int], None]]] = {
    "bytes of an idle connection": _connections,
    "bytes of an idle session": _sessions,
}
"""What is counted, by the names of the figures."""


def count_bytes(name: str) -> float:
    """Return a figure, counted in a process of its own."""
    environment = dict(os.environ, PYTHONMALLOC="malloc", PYTHONHASHSEED="0")
    command = (sys.executable, "-m", "benchmarks.idle_bytes", name)
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(answer.stdout)


def main() -> None:
    """Count and print one figure."""
    stop_clocks()
    make = IDLE[sys.argv[1]]
    broker = TurnedBroker()
    transports = [Transport() for _ in range(_WARM_UP + _CLIENTS)]
    make(broker, transports[:_WARM_UP], 0)
    before_bytes = allocated_bytes()
    make(broker, transports[_WARM_UP:], _WARM_UP)
    print((allocated_bytes() - before_bytes) / _CLIENTS)


if __name__ == "__main__":
    main()
