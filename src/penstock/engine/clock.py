"""The moment at which an input reached the engine.

The engine never reads a clock: the shell that owns the socket reads both
clocks once per event-loop turn and passes them in.

* ``monotonic_s`` measures silence (keep alive, connect timeout): it cannot jump.
* ``wall_us`` dates messages and ends what must end even if the broker was down
  meanwhile (message expiry, session expiry, will delay).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

MICROSECONDS: Final = 1_000_000


@mypyc_attr(acyclic=True)
@final
class Now:
    """A pair of clock readings.

    Args:
        monotonic_s: seconds of a clock that never jumps; its zero means nothing.
        wall_us: microseconds since the Unix epoch, UTC.
    """

    def __init__(self, monotonic_s: float, wall_us: int) -> None:
        self.monotonic_s = monotonic_s
        self.wall_us = wall_us

    def __repr__(self) -> str:
        return f"Now({self.monotonic_s}, {self.wall_us})"
