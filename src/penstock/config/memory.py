"""The memory a configuration commits to in the worst case.

::

      for each connection   what was read and is not understood yet, 64 KiB to be sent,
                            a window of small messages, and itself                     connections
      for the broker        packets that have not arrived whole                        half received
                            QoS 1 and 2 in queues and windows, and read for them       waiting
                            what is to be sent beyond 64 KiB of each                   unsent
                            QoS 2 of MQTT 3.1 before its PUBREL                        unreleased
                            QoS 0 in queues                                            QoS 0
                            queues as packed numbers                                   packed
                            sessions, subscriptions, wills                             sessions
                            retained messages                                          retained
                            producers_max x their names and numbers                    producers
                            recorded_clients x their last events                       recorder
                            three commits, and the log where it is in memory           log
                            dead letters that wait                                     dead letters

Everything that could be multiplied by connections or sessions has one limit for all, see ``budget``
and ``link`` of the engine; the rest of a connection is small. So the sum is an upper bound of what
clients may make the broker hold, and by default it fits: limits that the configuration does not set
are fitted to the memory of the machine::

      memory there is ── ¾ ─▶ budget ── ⅔ ── a part for each bound ─▶ fitted bounds of [memory]
                                 ╰───── the rest ─▶ as many connections, if fewer than the default
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.config.available_memory import AvailableMemory
from penstock.config.limits import Limits
from penstock.config.listener import MainListener, OtherListener
from penstock.config.settings import Settings
from penstock.engine.client_record import RECORD_BYTES
from penstock.engine.limits import FREE_BYTES, SMALL_BYTES
from penstock.engine.memory.budget import DELIVERY_BYTES, FETCHING_PART, LEVEL_BYTES
from penstock.engine.publishing.producers import PRODUCER_BYTES
from penstock.engine.routing.dead_letters import PENDING_BYTES_MAX, PER_TICK_BYTES_MAX
from penstock.engine.session.window import UNCOUNTED_MAX

UNBOUNDED: Final = -1

_READ_BYTES: Final = 262_144  # the event loop hands over so much at a time
_BELOW_TLS_BYTES: Final = 65_536  # the event loop's own bound of a transport's write buffer
_CONNECTION_BYTES: Final = 8192  # of one that does nothing
_LOWEST_BYTES: Final = 1_048_576  # no bound is fitted below this
_LOWEST_CONNECTIONS: Final = 400  # nor the connections
_COMMITS: Final = 3  # one is written, the next fills, and twice while the store cannot write

_BUDGET: Final = 3 / 4  # of the memory there is; the rest is the broker's own, and the system's
_BOUNDS: Final = 2 / 3  # of the budget; the rest is for connections and commits
_PARTS: Final = {  # of those, at most
    "sessions_bytes_max": 1 / 4,
    "retained_bytes_max": 1 / 8,
    "spilled_bytes_max": 1 / 8,
    "waiting_bytes_max": 1 / 8,
    "unsent_bytes_max": 1 / 8,
    "qos0_bytes_max": 1 / 16,
    "half_received_bytes_max": 1 / 16,
    "unreleased_bytes_max": 1 / 16,
}
_PRODUCERS: Final = 1 / 32
_RECORDER: Final = 1 / 32

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")


@dataclass(frozen=True, slots=True)
class Part:
    """One term of the sum.

    Attributes:
        name: the use of the memory.
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
        parts = ", ".join(
            f"{part.name} {readable(part.size_bytes)}" for part in self.parts if part.size_bytes
        )
        return f"{readable(self.size_bytes)} ({parts})"


def commitment(settings: Settings) -> Commitment:
    """Return the memory that ``settings`` commit to: for its listeners' connections, and for what
    all clients share."""
    memory = settings.memory
    zones = [settings.limits_of(listener) for listener in settings.listener.open_ones()]
    packet_bytes = max(limits.max_packet_size_bytes for limits in zones)
    waiting = memory.waiting_bytes_max
    connections = sum(
        listener.max_connections * _of_a_connection(settings, listener)
        for listener in settings.listener.open_ones()
    )
    if settings.asks_for_users:  # clients that left before their verdict count as no connection
        connections += settings.access.checks_waiting_max * _READ_BYTES
    producers = settings.durability.producers_max * PRODUCER_BYTES
    recorded = settings.events.recorded_clients * RECORD_BYTES
    letters = PENDING_BYTES_MAX + PER_TICK_BYTES_MAX + packet_bytes
    return Commitment(
        (
            Part("connections", connections, "listener.max_connections"),
            _part(settings, "half received", "half_received_bytes_max", packet_bytes),
            Part(
                "waiting",
                _or_unbounded(waiting and waiting + waiting // FETCHING_PART + packet_bytes),
                "memory.waiting_bytes_max",
            ),
            _part(
                settings,
                "unsent",
                "unsent_bytes_max",
                settings.durability.commit_bytes_max + packet_bytes,
            ),
            _part(settings, "unreleased", "unreleased_bytes_max", packet_bytes),
            _part(settings, "QoS 0", "qos0_bytes_max", packet_bytes),
            _part(settings, "packed", "spilled_bytes_max", 0),
            _part(settings, "sessions", "sessions_bytes_max", 0),
            Part("retained", _retained(settings, packet_bytes), "memory.retained_bytes_max"),
            Part("producers", _or_unbounded(producers), "durability.producers_max"),
            Part("recorder", recorded, "events.recorded_clients"),
            Part(
                "log",
                _log(settings, packet_bytes),
                "durability.commit_bytes_max or durability.retention_bytes_max",
            ),
            Part(
                "dead letters",
                letters if settings.dead_letters.topic else 0,
                "limits.max_packet_size_bytes",
            ),
        )
    )


def _part(settings: Settings, name: str, setting: str, over_bytes: int) -> Part:
    """Return the term of a limit of ``[memory]``, and the ``over_bytes`` by which the last message
    admitted may exceed it."""
    bound_bytes = getattr(settings.memory, setting)
    return Part(name, bound_bytes + over_bytes if bound_bytes else UNBOUNDED, f"memory.{setting}")


def _of_a_connection(settings: Settings, listener: MainListener | OtherListener) -> int:
    """Return the bytes that one connection may take, beside what all connections share.

    A packet that has not arrived whole, or one CONNECT, with what was read behind it; a window of
    small messages; what waits to be sent, with TLS also in the transport below.
    """
    limits: Limits = settings.limits_of(listener)
    early_bytes = min(limits.connect_packet_size_bytes_max, limits.max_packet_size_bytes)
    reading_bytes = max(FREE_BYTES, early_bytes) + _READ_BYTES
    below_bytes = _BELOW_TLS_BYTES if listener.is_encrypted else 0
    window_bytes = UNCOUNTED_MAX * (DELIVERY_BYTES + SMALL_BYTES)
    return _CONNECTION_BYTES + reading_bytes + window_bytes + FREE_BYTES + below_bytes


def _retained(settings: Settings, packet_bytes: int) -> int:
    if settings.memory.retained_bytes_max:
        return settings.memory.retained_bytes_max
    largest = packet_bytes + settings.limits.topic_levels_max * LEVEL_BYTES
    return settings.limits.retained_messages_max * largest


def _log(settings: Settings, packet_bytes: int) -> int:
    log = _COMMITS * (settings.durability.commit_bytes_max + packet_bytes)
    if settings.durability.persistence != "memory":
        return log
    kept = settings.durability.retention_bytes_max
    return log + kept if kept else UNBOUNDED


def _or_unbounded(bound_bytes: int) -> int:
    return bound_bytes or UNBOUNDED


def budget_bytes(settings: Settings, system_memory: AvailableMemory) -> int:
    """Return the memory that clients may make the broker hold: as set, or a part of what there
    is."""
    return settings.memory.budget_bytes or int(system_memory.size_bytes * _BUDGET)


def fitted(settings: Settings, system_memory: AvailableMemory) -> Settings:
    """Return ``settings`` with the limits lowered that they do not set.

    So the worst case fits into the budget on a small machine, too; defaults that fit stay.
    """
    budget = budget_bytes(settings, system_memory)
    lowered: dict[str, int] = {}
    for name, part in _PARTS.items():
        fitting = max(_LOWEST_BYTES, int(budget * _BOUNDS * part))
        if (
            name not in settings.memory.model_fields_set
            and getattr(settings.memory, name) > fitting
        ):
            lowered[name] = fitting
    durability = settings.durability
    producers = int(budget * _BOUNDS * _PRODUCERS) // PRODUCER_BYTES
    if "producers_max" not in durability.model_fields_set and durability.producers_max > producers:
        durability = durability.model_copy(update={"producers_max": producers})
    events = settings.events
    recorded = int(budget * _BOUNDS * _RECORDER) // RECORD_BYTES
    if "recorded_clients" not in events.model_fields_set and events.recorded_clients > recorded:
        events = events.model_copy(update={"recorded_clients": recorded})
    memory = settings.memory.model_copy(update=lowered)
    settings = settings.model_copy(
        update={"memory": memory, "durability": durability, "events": events}
    )
    return _with_fitting_connections(settings, budget)


def _with_fitting_connections(settings: Settings, budget: int) -> Settings:
    """Return ``settings`` with as many connections as the budget allows, of listeners that set
    none."""
    main = settings.listener
    free = [one for one in main.open_ones() if "max_connections" not in one.model_fields_set]
    total_bytes = commitment(settings).size_bytes
    if not free or 0 <= total_bytes <= budget or total_bytes == UNBOUNDED:
        return settings
    theirs = [one.max_connections * _of_a_connection(settings, one) for one in free]
    left_bytes = max(0, budget - (total_bytes - sum(theirs))) // len(free)
    fewer: dict[str, int] = {}
    for one in free:
        fitting = left_bytes // _of_a_connection(settings, one)
        fewer[one.name] = min(one.max_connections, max(_LOWEST_CONNECTIONS, fitting))
    others = tuple(
        one.model_copy(update={"max_connections": fewer.get(one.name, one.max_connections)})
        for one in main.others
    )
    update: dict[str, object] = {"others": others}
    if main.enabled:
        update["max_connections"] = fewer.get(main.name, main.max_connections)
    return settings.model_copy(update={"listener": main.model_copy(update=update)})


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement on memory at a start and by ``penstock doctor``.

    Attributes:
        text: one line: the worst case, and the budget.
        warning: one sentence where it does not fit; else empty.
    """

    text: str
    warning: str


def statement(settings: Settings, system_memory: AvailableMemory) -> Statement:
    """Compare the worst case with the budget."""
    budget = budget_bytes(settings, system_memory)
    why = "memory.budget_bytes"
    if settings.memory.budget_bytes == 0:
        why = f"three quarters of {system_memory.by}, {readable(system_memory.size_bytes)}"
    needed = commitment(settings)
    connections = sum(listener.max_connections for listener in settings.listener.open_ones())
    text = (
        f"memory: {connections:,} connections and what all clients together may leave behind take"
        f" at most {needed}; the budget is {readable(budget)} ({why})"
    )
    if 0 <= needed.size_bytes <= budget:
        return Statement(text, "")
    warning = (
        f"clients may make the broker hold {readable(needed.size_bytes)}, but the budget is"
        f" {readable(budget)} ({why}): lower {needed.largest.lower}"
    )
    return Statement(text, warning)


def excess(settings: Settings) -> str:
    """Return one sentence that refuses ``settings``; empty when they keep to their budget."""
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
    """Return a size for people."""
    if size_bytes == UNBOUNDED:
        return "without bound"
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.4g} {unit}"
