"""The memory a configuration commits to in the worst case.

::

      for each listener   max_connections x ( receive_maximum x max_packet_size_bytes    received
                                            + in-flight window x max_packet_size_bytes   windows
                                            + message queue                              queues
                                            + max_awaiting_rel_bytes, and a packet       held
                                            + write_buffer_bytes_max )                   writing

That is what clients may make of what they were promised, all at the same time and with the
largest packets; a broker at work needs a small part of it. It is not bounded where a queue is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.config.settings import Settings
from penstock.engine.lane import HEAD_LEN_MAX
from penstock.engine.limits import PACKET_IDENTIFIERS, SPILL

UNBOUNDED: Final = -1

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")


@dataclass(frozen=True, slots=True)
class Part:
    """One factor of the sum.

    Attributes:
        name: what holds the memory.
        size_bytes: how much, or ``UNBOUNDED``.
        lower: the settings that make it smaller.
    """

    name: str
    size_bytes: int
    lower: str


@dataclass(frozen=True, slots=True)
class Commitment:
    """The worst case of a configuration."""

    parts: tuple[Part, ...]

    @property
    def size_bytes(self) -> int:
        """All parts, or ``UNBOUNDED``."""
        if any(part.size_bytes == UNBOUNDED for part in self.parts):
            return UNBOUNDED
        return sum(part.size_bytes for part in self.parts)

    @property
    def largest(self) -> Part:
        """The part that weighs most."""
        return max(
            self.parts,
            key=lambda part: (part.size_bytes == UNBOUNDED, part.size_bytes),
        )

    def __str__(self) -> str:
        parts = ", ".join(f"{part.name} {readable(part.size_bytes)}" for part in self.parts)
        return f"{readable(self.size_bytes)} ({parts})"


def commitment(settings: Settings) -> Commitment:
    """What ``settings`` commit to, over all listeners."""
    received = windows = queues = held = writing = 0
    for listener in settings.listener.open_ones():
        limits = settings.limits_of(listener)
        connections = listener.max_connections
        packet_bytes = limits.max_packet_size_bytes
        received += connections * limits.receive_maximum * packet_bytes
        windows += connections * (limits.max_inflight or PACKET_IDENTIFIERS) * packet_bytes
        held += connections * (limits.max_awaiting_rel_bytes + packet_bytes)
        writing += connections * listener.write_buffer_bytes_max
        length = limits.max_mqueue_len
        if limits.mqueue_overflow == SPILL:  # what waits beyond the head lies in the log
            length = max(length, HEAD_LEN_MAX)
        shares = [length * packet_bytes] if length else []
        shares += [limits.max_mqueue_bytes] if limits.max_mqueue_bytes else []
        if not shares:
            queues = UNBOUNDED
        elif queues != UNBOUNDED:
            queues += connections * min(shares)
    connections_too = "listener.max_connections"
    return Commitment(
        (
            Part(
                "received",
                received,
                f"limits.receive_maximum, limits.max_packet_size_bytes or {connections_too}",
            ),
            Part(
                "windows",
                windows,
                f"limits.max_inflight, limits.max_packet_size_bytes or {connections_too}",
            ),
            Part(
                "queues",
                queues,
                f"limits.max_mqueue_bytes, limits.max_mqueue_len or {connections_too}",
            ),
            Part(
                "held",
                held,
                f"limits.max_awaiting_rel_bytes, limits.max_packet_size_bytes or {connections_too}",
            ),
            Part("writing", writing, f"listener.write_buffer_bytes_max or {connections_too}"),
        )
    )


def excess(settings: Settings) -> str:
    """One sentence that refuses ``settings``, or nothing when they keep to their budget."""
    budget_bytes = settings.memory.budget_bytes
    needed = commitment(settings)
    if budget_bytes == 0 or 0 <= needed.size_bytes <= budget_bytes:
        return ""
    largest = needed.largest
    return (
        f"memory.budget_bytes is {budget_bytes} ({readable(budget_bytes)}), but clients may make"
        f" the broker hold {needed}: lower {largest.lower}, or raise the budget"
    )


def readable(size_bytes: int) -> str:
    """A size for people."""
    if size_bytes == UNBOUNDED:
        return "without bound"
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.4g} {unit}"
