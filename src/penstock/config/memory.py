"""The memory a configuration commits to in the worst case.

::

      for each listener   max_connections x ( receive_maximum x max_packet_size_bytes    received
                                            + what is read before it is understood       reading
                                            + in-flight window x max_packet_size_bytes   windows
                                            + message queue                              queues
                                            + max_awaiting_rel_bytes, and a packet       held
                                            + what waits to be sent; with TLS twice )    writing
      for the broker      sessions_max x ( what waits for one, without the messages,
                                            + its packet identifiers )                   away
                          producers_max x their names and numbers              producers
                          the bounds of [memory]     QoS 0, spilled, sessions, retained
                          commit_bytes_max, and the log where it is in memory  log
                          dead letters that wait                         dead letters

That is what clients may make of what they were promised, all at the same time and with the
largest packets; a broker at work needs a small part of it. It is not bounded where a queue is not.

What clients leave behind, all together, is another matter: that fills up. Its bounds, ``[memory]``,
are fitted to the memory there is where the configuration does not name them::

      memory there is ── half ─▶ budget ── a part for each bound ─▶ fitted settings
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.config.limits import Limits
from penstock.config.listener import MainListener, OtherListener
from penstock.config.machine import Available
from penstock.config.settings import Settings
from penstock.engine.connection import EARLY_BYTES_MAX
from penstock.engine.dead_letters import PENDING_MAX
from penstock.engine.kept import DELIVERY_BYTES, IDENTIFIER_BYTES, LEVEL_BYTES, PACKED_BYTES
from penstock.engine.lane import HEAD_LEN_MAX
from penstock.engine.limits import PACKET_IDENTIFIERS, SPILL
from penstock.engine.message import SMALLEST_MESSAGE_BYTES
from penstock.engine.producers import PRODUCER_BYTES

UNBOUNDED: Final = -1

_READ_BYTES: Final = 262_144  # the event loop hands over so much at a time
_BELOW_TLS_BYTES: Final = 65_536  # the event loop's own bound of a transport's write buffer
_LOWEST_BYTES: Final = 1_048_576  # no bound is fitted below this
_COMMITS: Final = 3  # one is written, the next fills, and twice while the store cannot write

_BUDGET: Final = 0.5  # of the memory there is; the rest is the broker's own and its connections
_PARTS: Final = {  # of the budget, at most
    "sessions_bytes_max": 1 / 4,
    "retained_bytes_max": 1 / 8,
    "spilled_bytes_max": 1 / 8,
    "qos0_bytes_max": 1 / 16,
    "half_received_bytes_max": 1 / 16,
    "unreleased_bytes_max": 1 / 16,
}

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
    """What ``settings`` commit to: its listeners' connections, and what all sessions share."""
    return Commitment((*_of_connections(settings), *_of_the_broker(settings)))


def _of_connections(settings: Settings) -> tuple[Part, ...]:
    received = reading = windows = queues = held = writing = early = 0
    for listener in settings.listener.open_ones():
        limits = settings.limits_of(listener)
        connections = listener.max_connections
        packet_bytes = limits.max_packet_size_bytes
        received += connections * limits.receive_maximum * packet_bytes
        reading += connections * (max(EARLY_BYTES_MAX, packet_bytes) + _READ_BYTES)
        early = max(early, EARLY_BYTES_MAX, packet_bytes)
        windows += connections * (limits.max_inflight or PACKET_IDENTIFIERS) * packet_bytes
        waiting_bytes = connections * limits.max_awaiting_rel_bytes
        if settings.memory.unreleased_bytes_max:
            waiting_bytes = min(waiting_bytes, settings.memory.unreleased_bytes_max)
        held += waiting_bytes + connections * packet_bytes
        writing += connections * _writing(settings, listener)
        length = _length(limits)
        shares = [length * packet_bytes] if length else []
        shares += [limits.max_mqueue_bytes] if limits.max_mqueue_bytes else []
        if not shares:
            queues = UNBOUNDED
        elif queues != UNBOUNDED:
            queues += connections * min(shares)
    if settings.asks_for_users:  # who left before its verdict is no connection any more
        reading += settings.access.checks_waiting_max * early
    packets = "limits.max_packet_size_bytes or listener.max_connections"
    connections_too = "or listener.max_connections"
    commits = "durability.commit_bytes_max"
    return (
        Part("received", received, f"limits.receive_maximum, {packets}"),
        Part("reading", reading, packets),
        Part("windows", windows, f"limits.max_inflight, {packets}"),
        Part("queues", queues, f"limits.max_mqueue_bytes, limits.max_mqueue_len {connections_too}"),
        Part("held", held, f"limits.max_awaiting_rel_bytes, {packets}"),
        Part("writing", writing, f"listener.write_buffer_bytes_max, {commits} {connections_too}"),
    )


def _writing(settings: Settings, listener: MainListener | OtherListener) -> int:
    """What waits to be sent to one client: in its link, and in the buffers of its wire.

    The wire's buffer lacks a byte to be full; then comes all that a turn makes for the client:
    QoS 0, which waits for nobody, is bounded by what all may leave unsent in one turn. After that
    only answers to its own packets are added. With TLS all of it may lie in the transport below,
    which has just room enough to take it, while as much is made once more.
    """
    buffer_bytes = listener.write_buffer_bytes_max
    packet_bytes = settings.limits_of(listener).max_packet_size_bytes
    turn_bytes = max(buffer_bytes, settings.durability.commit_bytes_max) + packet_bytes
    plain_bytes = buffer_bytes + turn_bytes + buffer_bytes + packet_bytes
    return 2 * plain_bytes + _BELOW_TLS_BYTES if listener.is_encrypted else plain_bytes


def _of_the_broker(settings: Settings) -> tuple[Part, ...]:
    memory = settings.memory
    zones = [settings.limits_of(listener) for listener in settings.listener.open_ones()]
    packet_bytes = max(limits.max_packet_size_bytes for limits in zones)
    away = 0  # a session may have come through any listener
    for limits in zones:
        one = _waiting(limits)
        away = UNBOUNDED if UNBOUNDED in (one, away) else max(away, one)
    if away != UNBOUNDED:
        away *= settings.limits.sessions_max
    bridges = [settings.limits_of_bridge(remote) for remote in settings.bridge.remotes]
    spills = any(limits.mqueue_overflow == SPILL for limits in (*zones, *bridges))
    spilled = _or_unbounded(memory.spilled_bytes_max) if spills else 0
    retained = memory.retained_bytes_max
    if retained == 0:
        largest = packet_bytes + settings.limits.topic_levels_max * LEVEL_BYTES
        retained = settings.limits.retained_messages_max * largest
    log = _COMMITS * (settings.durability.commit_bytes_max + packet_bytes)
    if settings.durability.persistence == "memory":
        kept = settings.durability.retention_bytes_max
        log = log + kept if kept else UNBOUNDED
    producers = settings.durability.producers_max * PRODUCER_BYTES
    letters = PENDING_MAX * packet_bytes if settings.dead_letters.topic else 0
    lengths = "limits.max_mqueue_len, limits.max_awaiting_rel, limits.max_inflight"
    return (
        Part("away", away, f"{lengths} or limits.sessions_max"),
        Part("producers", _or_unbounded(producers), "durability.producers_max"),
        Part("spilled", spilled, "memory.spilled_bytes_max"),
        Part("QoS 0", _or_unbounded(memory.qos0_bytes_max), "memory.qos0_bytes_max"),
        Part("sessions", _or_unbounded(memory.sessions_bytes_max), "memory.sessions_bytes_max"),
        Part("retained", retained, "memory.retained_bytes_max"),
        Part("log", log, "durability.commit_bytes_max or durability.retention_bytes_max"),
        Part("dead letters", letters, "limits.max_packet_size_bytes"),
    )


def _length(limits: Limits) -> int:
    """Messages that may wait in one queue with their bodies; 0 = no limit."""
    if limits.mqueue_overflow == SPILL:  # what waits beyond the head lies in the log
        return max(limits.max_mqueue_len, HEAD_LEN_MAX)
    return limits.max_mqueue_len


def _waiting(limits: Limits) -> int:
    """What waits for one client that is away, without the messages; or ``UNBOUNDED``."""
    length = _length(limits)
    if limits.max_mqueue_bytes:
        fitting = limits.max_mqueue_bytes // SMALLEST_MESSAGE_BYTES + 1
        length = min(length, fitting) if length else fitting
    if length == 0:
        return UNBOUNDED
    entries = min(length, HEAD_LEN_MAX) + (limits.max_inflight or PACKET_IDENTIFIERS)
    identifiers = limits.max_awaiting_rel or PACKET_IDENTIFIERS
    packed = max(0, length - HEAD_LEN_MAX)
    return entries * DELIVERY_BYTES + packed * PACKED_BYTES + identifiers * IDENTIFIER_BYTES


def _or_unbounded(bound_bytes: int) -> int:
    return bound_bytes or UNBOUNDED


def budget_bytes(settings: Settings, there_is: Available) -> int:
    """The memory that clients may make the broker hold: as set, or half of what there is."""
    return settings.memory.budget_bytes or int(there_is.size_bytes * _BUDGET)


def fitted(settings: Settings, there_is: Available) -> Settings:
    """``settings`` with those bounds of ``[memory]`` lowered that they do not name.

    So what clients leave behind fits into the budget on a small machine, too; where the defaults
    fit they stay.
    """
    budget = budget_bytes(settings, there_is)
    lowered: dict[str, int] = {}
    for name, part in _PARTS.items():
        fitting = max(_LOWEST_BYTES, int(budget * part))
        if (
            name not in settings.memory.model_fields_set
            and getattr(settings.memory, name) > fitting
        ):
            lowered[name] = fitting
    memory = settings.memory.model_copy(update=lowered)
    return settings.model_copy(update={"memory": memory})


@dataclass(frozen=True, slots=True)
class Statement:
    """What is said of memory at a start and by ``penstock doctor``.

    Attributes:
        text: one line: budget, what clients may leave behind, and the worst case.
        warning: one sentence where what they may leave behind does not fit; else empty.
    """

    text: str
    warning: str


def statement(settings: Settings, there_is: Available) -> Statement:
    """Compare the bounds of ``[memory]`` with the budget, and tell the worst case beside it."""
    budget = budget_bytes(settings, there_is)
    why = "memory.budget_bytes"
    if settings.memory.budget_bytes == 0:
        why = f"half of {there_is.by}, {readable(there_is.size_bytes)}"
    bounds = [getattr(settings.memory, name) or UNBOUNDED for name in _PARTS]
    left = UNBOUNDED if UNBOUNDED in bounds else sum(bounds)
    text = (
        f"memory: budget {readable(budget)} ({why}); what all clients together may leave behind"
        f" {readable(left)}; worst case with all their connections {commitment(settings)}"
    )
    warning = ""
    if not 0 <= left <= budget:
        warning = (
            f"clients may leave behind {readable(left)} in memory, but the budget is"
            f" {readable(budget)} ({why}): lower the largest bound of [memory]"
        )
    return Statement(text, warning)


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
