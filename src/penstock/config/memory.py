"""The memory that clients can make the broker use, in the worst case, under its settings.

::

      for each connection   bytes read and not parsed yet, 64 KiB to be sent, a window
                            of small messages, and the connection's own objects        connections
      for the broker        packets that have not arrived whole                        half received
                            QoS 1 and 2 in queues and windows, and read for them       waiting
                            bytes to be sent beyond the 64 KiB of each connection      unsent
                            QoS 2 of MQTT 3.1 before its PUBREL                        unreleased
                            QoS 0 in queues                                            QoS 0
                            queues as packed numbers                                   packed
                            sessions, subscriptions, wills                             sessions
                            retained messages                                          retained
                            producers_max x their names and numbers                    producers
                            recorded_clients x their last events                       recorder
                            three commits, and the log where it is in memory           log
                            dead letters that wait                                     dead letters

Everything that could be multiplied by connections or sessions has one limit for all of them, see
``engine/memory/pool.py``; the rest of a connection is small. So the sum is an upper bound
of the memory that clients may make the broker use, and by default it fits: limits that the
configuration does not set are fitted to the memory of the machine::

      available memory ── ¾ ─▶ budget ── ⅔ ── a share for each bound ─▶ fitted bounds of [memory]
                                  ╰───── the rest ─▶ as many connections, if fewer than the default
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.config.available_memory import AvailableMemory
from penstock.config.limits import Limits
from penstock.config.listener import MainListener, OtherListener
from penstock.config.settings import Settings
from penstock.engine.values.limits import FREE_BYTES, SMALL_BYTES
from penstock.engine.values.memory_costs import (
    DEAD_LETTERS_BYTES_MAX,
    DEAD_LETTERS_OF_TICK_BYTES_MAX,
    DELIVERY_BYTES,
    FETCHING_PART,
    LEVEL_BYTES,
    PRODUCER_BYTES,
    RECORD_BYTES,
    UNCOUNTED_MAX,
)

UNBOUNDED: Final = -1

_READ_BYTES: Final = 262_144  # the event loop hands over so much at a time
_BELOW_TLS_BYTES: Final = 65_536  # the event loop's own bound of a transport's write buffer
_PSK_BYTES: Final = 16_384  # of the TLS context that each connection with a pre-shared key has
_CONNECTION_BYTES: Final = 8192  # of an idle connection
_LOWEST_BYTES: Final = 1_048_576  # no bound is fitted below this
_LOWEST_CONNECTIONS: Final = 400  # no listener's max_connections is fitted below this
_COMMITS: Final = 3  # one that is written, and an open one, which doubles while the store fails

_BUDGET_SHARE: Final = 3 / 4  # of available memory; the rest is the broker's own, and the system's
_BOUNDS_SHARE: Final = 2 / 3  # of the budget; the rest is for connections and commits
_BOUND_SHARES: Final = {  # largest share of each bound in the memory for bounds
    "sessions_bytes_max": 1 / 4,
    "retained_bytes_max": 1 / 8,
    "spilled_bytes_max": 1 / 8,
    "waiting_bytes_max": 1 / 8,
    "unsent_bytes_max": 1 / 8,
    "qos0_bytes_max": 1 / 16,
    "half_received_bytes_max": 1 / 16,
    "unreleased_bytes_max": 1 / 16,
}
_PRODUCERS_SHARE: Final = 1 / 32
_RECORDER_SHARE: Final = 1 / 32

_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB")


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """One term of the worst case.

    Attributes:
        name: the use of the memory, such as "retained".
        size_bytes: the size, or ``UNBOUNDED``.
        settings: the settings to lower to make it smaller, in words.
    """

    name: str
    size_bytes: int
    settings: str


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The memory that clients can make the broker use, by what it is used for."""

    uses: tuple[MemoryUse, ...]

    @property
    def size_bytes(self) -> int:
        """The sum of all uses, or ``UNBOUNDED``."""
        if any(use.size_bytes == UNBOUNDED for use in self.uses):
            return UNBOUNDED
        return sum(use.size_bytes for use in self.uses)

    @property
    def largest(self) -> MemoryUse:
        """The largest use; an unbounded one is the largest."""
        return max(
            self.uses,
            key=lambda use: (use.size_bytes == UNBOUNDED, use.size_bytes),
        )

    def __str__(self) -> str:
        uses = ", ".join(
            f"{use.name} {readable_size(use.size_bytes)}" for use in self.uses if use.size_bytes
        )
        return f"{readable_size(self.size_bytes)} ({uses})"


def worst_case(settings: Settings) -> WorstCase:
    """Return the memory that clients can make the broker use under ``settings``, with as many
    connections as its listeners take."""
    memory = settings.memory
    zones = [settings.limits_of(listener) for listener in settings.listener.enabled_listeners()]
    packet_bytes = max(limits.max_packet_size_bytes for limits in zones)
    waiting = memory.waiting_bytes_max
    connections = sum(
        listener.max_connections * _connection_bytes(settings, listener)
        for listener in settings.listener.enabled_listeners()
    )
    if settings.authenticates_users:  # clients that leave during their check count as no connection
        connections += settings.access.checks_waiting_max * _READ_BYTES
    producers = settings.durability.producers_max * PRODUCER_BYTES
    recorded = settings.events.recorded_clients * RECORD_BYTES
    letters = DEAD_LETTERS_BYTES_MAX + DEAD_LETTERS_OF_TICK_BYTES_MAX + packet_bytes
    return WorstCase(
        (
            MemoryUse("connections", connections, "listener.max_connections"),
            _use_of_limit(settings, "half received", "half_received_bytes_max", packet_bytes),
            MemoryUse(
                "waiting",
                _or_unbounded(waiting and waiting + waiting // FETCHING_PART + packet_bytes),
                "memory.waiting_bytes_max",
            ),
            _use_of_limit(
                settings,
                "unsent",
                "unsent_bytes_max",
                settings.durability.commit_bytes_max + packet_bytes,
            ),
            _use_of_limit(settings, "unreleased", "unreleased_bytes_max", packet_bytes),
            _use_of_limit(settings, "QoS 0", "qos0_bytes_max", packet_bytes),
            _use_of_limit(settings, "packed", "spilled_bytes_max", 0),
            _use_of_limit(settings, "sessions", "sessions_bytes_max", 0),
            MemoryUse(
                "retained", _retained_bytes(settings, packet_bytes), "memory.retained_bytes_max"
            ),
            MemoryUse("producers", _or_unbounded(producers), "durability.producers_max"),
            MemoryUse("recorder", recorded, "events.recorded_clients"),
            MemoryUse(
                "log",
                _log_bytes(settings, packet_bytes),
                "durability.commit_bytes_max or durability.retention_bytes_max",
            ),
            MemoryUse(
                "dead letters",
                letters if settings.dead_letters.topic else 0,
                "limits.max_packet_size_bytes",
            ),
        )
    )


def _use_of_limit(settings: Settings, name: str, setting: str, over_bytes: int) -> MemoryUse:
    """Return the memory used up to a limit of ``[memory]``, and by ``over_bytes`` beyond it, the
    most that the last message admitted may exceed it."""
    bound_bytes = getattr(settings.memory, setting)
    return MemoryUse(
        name, bound_bytes + over_bytes if bound_bytes else UNBOUNDED, f"memory.{setting}"
    )


def _connection_bytes(settings: Settings, listener: MainListener | OtherListener) -> int:
    """Return the bytes that one connection may take, beside the memory that all connections share.

    That is a packet that has not arrived whole, or a CONNECT, with the bytes read behind it; a
    window of small messages; the bytes that wait to be sent, with TLS also in the transport below.
    """
    limits: Limits = settings.limits_of(listener)
    early_bytes = min(limits.connect_packet_size_bytes_max, limits.max_packet_size_bytes)
    reading_bytes = max(FREE_BYTES, early_bytes) + _READ_BYTES
    below_bytes = _BELOW_TLS_BYTES if listener.is_encrypted else 0
    below_bytes += _PSK_BYTES if listener.psk_file else 0
    window_bytes = UNCOUNTED_MAX * (DELIVERY_BYTES + SMALL_BYTES)
    return _CONNECTION_BYTES + reading_bytes + window_bytes + FREE_BYTES + below_bytes


def _retained_bytes(settings: Settings, packet_bytes: int) -> int:
    if settings.memory.retained_bytes_max:
        return settings.memory.retained_bytes_max
    largest = packet_bytes + settings.limits.topic_levels_max * LEVEL_BYTES
    return settings.limits.retained_messages_max * largest


def _log_bytes(settings: Settings, packet_bytes: int) -> int:
    log = _COMMITS * (settings.durability.commit_bytes_max + packet_bytes)
    if settings.durability.persistence != "memory":
        return log
    retention_bytes = settings.durability.retention_bytes_max
    return log + retention_bytes if retention_bytes else UNBOUNDED


def _or_unbounded(bound_bytes: int) -> int:
    return bound_bytes or UNBOUNDED


def budget_bytes(settings: Settings, system_memory: AvailableMemory) -> int:
    """Return the memory that clients may make the broker use, in bytes: memory.budget_bytes, or
    where that is 0 three quarters of the available memory."""
    return settings.memory.budget_bytes or int(system_memory.size_bytes * _BUDGET_SHARE)


def fit_to_memory(settings: Settings, system_memory: AvailableMemory) -> Settings:
    """Return ``settings``, with limits that are not set lowered to fit the budget.

    So the worst case fits into the budget on a small machine, too; defaults that fit stay.
    """
    budget = budget_bytes(settings, system_memory)
    lowered: dict[str, int] = {}
    for name, share in _BOUND_SHARES.items():
        fitting = max(_LOWEST_BYTES, int(budget * _BOUNDS_SHARE * share))
        if (
            name not in settings.memory.model_fields_set
            and getattr(settings.memory, name) > fitting
        ):
            lowered[name] = fitting
    durability = settings.durability
    producers = int(budget * _BOUNDS_SHARE * _PRODUCERS_SHARE) // PRODUCER_BYTES
    if "producers_max" not in durability.model_fields_set and durability.producers_max > producers:
        durability = durability.model_copy(update={"producers_max": producers})
    events = settings.events
    recorded = int(budget * _BOUNDS_SHARE * _RECORDER_SHARE) // RECORD_BYTES
    if "recorded_clients" not in events.model_fields_set and events.recorded_clients > recorded:
        events = events.model_copy(update={"recorded_clients": recorded})
    memory = settings.memory.model_copy(update=lowered)
    settings = settings.model_copy(
        update={"memory": memory, "durability": durability, "events": events}
    )
    return _fit_connections(settings, budget)


def _fit_connections(settings: Settings, budget: int) -> Settings:
    """Return ``settings``, with max_connections of listeners that do not set it lowered to the
    budget."""
    main = settings.listener
    adjustable = [
        listener
        for listener in main.enabled_listeners()
        if "max_connections" not in listener.model_fields_set
    ]
    total_bytes = worst_case(settings).size_bytes
    if not adjustable or 0 <= total_bytes <= budget or total_bytes == UNBOUNDED:
        return settings
    adjustable_bytes = sum(
        listener.max_connections * _connection_bytes(settings, listener) for listener in adjustable
    )
    share_bytes = max(0, budget - (total_bytes - adjustable_bytes)) // len(adjustable)
    connections: dict[str, int] = {}
    for listener in adjustable:
        fitting = share_bytes // _connection_bytes(settings, listener)
        connections[listener.name] = min(
            listener.max_connections, max(_LOWEST_CONNECTIONS, fitting)
        )
    others = tuple(
        listener.model_copy(
            update={"max_connections": connections.get(listener.name, listener.max_connections)}
        )
        for listener in main.others
    )
    update: dict[str, object] = {"others": others}
    if main.enabled:
        update["max_connections"] = connections.get(main.name, main.max_connections)
    return settings.model_copy(update={"listener": main.model_copy(update=update)})


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """The report on memory at a start and by ``penstock doctor``.

    Attributes:
        text: one line with the worst case and the budget.
        warning: one sentence if the worst case exceeds the budget; else empty.
    """

    text: str
    warning: str


def report_memory(settings: Settings, system_memory: AvailableMemory) -> MemoryReport:
    """Compare the worst case with the budget; return the report."""
    budget = budget_bytes(settings, system_memory)
    source = "memory.budget_bytes"
    if settings.memory.budget_bytes == 0:
        source = (
            f"three quarters of {system_memory.source}, {readable_size(system_memory.size_bytes)}"
        )
    worst = worst_case(settings)
    connections = sum(
        listener.max_connections for listener in settings.listener.enabled_listeners()
    )
    text = (
        f"memory: {connections:,} connections and what all clients together may leave behind take"
        f" at most {worst}; the budget is {readable_size(budget)} ({source})"
    )
    if 0 <= worst.size_bytes <= budget:
        return MemoryReport(text, "")
    warning = (
        f"clients may make the broker hold {readable_size(worst.size_bytes)}, but the budget is"
        f" {readable_size(budget)} ({source}): lower {worst.largest.settings}"
    )
    return MemoryReport(text, warning)


def share_note(settings: Settings) -> str:
    """Return one sentence if limits.sessions_max is set and one user may have fewer; else empty.

    Who chose the limit may know only one user, or not know of memory.share_max.
    """
    limits, share = settings.limits, settings.memory.share_max
    is_chosen = "sessions_max" in limits.model_fields_set
    if not is_chosen or limits.sessions_per_user_max > 0 or share >= 1:
        return ""
    return (
        f"limits.sessions_max is {limits.sessions_max:,}, of which one user, or the anonymous"
        f" clients of one address, may have {max(1, int(limits.sessions_max * share)):,}"
        f" (memory.share_max is {share:g}): limits.sessions_per_user_max changes that"
    )


def budget_mistake(settings: Settings) -> str:
    """Return one sentence that says why ``settings`` exceed memory.budget_bytes; empty if they do
    not, or if no budget is set."""
    budget_bytes = settings.memory.budget_bytes
    worst = worst_case(settings)
    if budget_bytes == 0 or 0 <= worst.size_bytes <= budget_bytes:
        return ""
    return (
        f"memory.budget_bytes is {budget_bytes} ({readable_size(budget_bytes)}), but clients may"
        f" make the broker hold {worst}: lower {worst.largest.settings}, or raise the budget"
    )


def readable_size(size_bytes: int) -> str:
    """Return a size with a unit, such as "1.5 GiB"; "without bound" for ``UNBOUNDED``."""
    if size_bytes == UNBOUNDED:
        return "without bound"
    size = float(size_bytes)
    for unit in _UNITS:
        if size < 1024 or unit == _UNITS[-1]:
            break
        size /= 1024
    return f"{size:.4g} {unit}"
