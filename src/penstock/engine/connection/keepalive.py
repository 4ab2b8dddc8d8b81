"""Keep alive: the time after which a silent peer is disconnected.

A client promises a packet at least every ``interval_s``; the server closes the
connection after one and a half times that [MQTT-3.1.2-22] (v3.1 §3.1 Keep Alive timer).
An interval of 0 turns it off. Before CONNECT the connect timeout applies instead.
A received packet only stores its time; the deadline is computed when the shell asks for it.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import mypyc_attr

from penstock.engine.values.clock import NO_DEADLINE

GRACE: Final = 1.5


@mypyc_attr(acyclic=True)
@final
class KeepAlive:
    """The deadline of one connection, on the monotonic clock.

    Args:
        timeout_s: the connect timeout, seconds.
        now_s: when the connection began, monotonic seconds.
    """

    def __init__(self, timeout_s: float, now_s: float) -> None:
        self._heard_s = now_s
        self.patience_s = timeout_s
        """Seconds for which the peer may send nothing; 0 = without limit."""

    def set_interval(self, interval_s: int) -> None:
        """Set the keep alive of the accepted CONNECT, 0..65535 seconds."""
        self.patience_s = interval_s * GRACE

    def note_packet(self, now_s: float) -> None:
        """Note that a control packet was received."""
        self._heard_s = now_s

    def deadline_s(self) -> float:
        """Return when to disconnect a peer that sends nothing more, or ``NO_DEADLINE``."""
        if self.patience_s <= 0:
            return NO_DEADLINE
        return self._heard_s + self.patience_s
