"""The moment at which an input reached the engine.

The engine never reads a clock: the shell that owns the socket reads the clocks once per
event-loop turn and passes them in.

* ``monotonic_s`` measures silence (keep alive, connect timeout): it cannot jump.
* ``steady_us`` measures times that also pass while the broker is down (message expiry, session
  expiry, will delay), and every time that is compared with a stored one. It does not jump when the
  wall clock is set: see ``steady_clock``.
* ``wall_us`` dates messages and events, for people and tables. The wall clock may be corrected, so
  no timer depends on it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

NO_DEADLINE: Final = -1.0

MICROSECONDS: Final = 1_000_000


@mypyc_attr(acyclic=True)
@final
class Now:
    """One reading of the three clocks.

    Args:
        monotonic_s: seconds of a clock that never jumps; its zero is arbitrary.
        wall_us: microseconds since the Unix epoch, UTC.
        lead_us: how far ``wall_us`` is ahead of the steady clock, microseconds.
    """

    def __init__(self, monotonic_s: float, wall_us: int, lead_us: int = 0) -> None:
        self.monotonic_s = monotonic_s
        self.wall_us = wall_us
        self.lead_us = lead_us
        self.steady_us = wall_us - lead_us

    def __repr__(self) -> str:
        return f"Now({self.monotonic_s}, {self.wall_us}, {self.lead_us})"
