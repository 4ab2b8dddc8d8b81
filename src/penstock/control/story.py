"""The story of one message, as steps between its publisher, the broker and its receivers.

::

      the log's row ─────────────────────╮
      its state for each receiver now ───┤
      the flight recorder's times ───────┼▶ steps, in the order in which they happened
      the offsets of tables ─────────────┤
      its events, where there are any ───╯

With events each step has its time. Without them the flight recorder has the times of the last
minutes, the older the less exact; a step that may have happened to other messages only is told with
*maybe*. A message of which nothing is recorded, and which is neither in flight, waiting nor
dropped, was sent and acknowledged, if the receiver was subscribed when the broker received it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.control.explanation import Receiver
from penstock.control.recorded import RecordedTime

BROKER: Final = "Penstock"

_STATES: Final = {
    "in_flight": "in flight: sent, not acknowledged yet",
    "waiting": "waits in its queue",
    "in_group": "waits in the queue of the group",
    "": "sent and acknowledged, if it was subscribed",
}
_ON_DISK: Final = "on disk"
_SENT_QOS_0: Final = "sent, if it was subscribed"
_NOT_SENT: Final = "not sent: it subscribed later, or it was not for it"

_IMPLIED_EVENTS: Final = {"waiting": "queued", "in_flight": "sent"}  # by state of the message

_EVENTS: Final = {  # the text of an event about one receiver; whether the broker is its target
    "queued": ("queued", False),
    "sent": ("sent", False),
    "resent": ("sent again", False),
    "acknowledged": ("acknowledged", True),
    "completed": ("completed", True),
    "bridged": ("acknowledged by the remote broker", True),
    "moved": ("given to a member", False),
}


@dataclass(frozen=True, slots=True)
class LogRow:
    """The row of a message in the log.

    Attributes:
        offset: its offset in the log.
        received_at_us: when the broker received it, µs since the Unix epoch.
        client_id: the client identifier of its publisher; empty if unknown.
        topic: its topic.
        qos: the QoS with which it was published.
        payload_bytes: the size of its payload.
    """

    offset: int
    received_at_us: int
    client_id: str
    topic: str
    qos: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class TablePosition:
    """A table in which messages of this topic land; all of them before ``offset`` have landed."""

    table: str
    offset: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a sequence diagram; ``source`` and ``target`` are the same for a step within the
    broker.

    Attributes:
        source: the participant that acts.
        target: the participant to which the arrow points.
        text: a few words for the arrow.
        at_us: the time, µs since the Unix epoch; None: not known.
        is_lost: whether the message does not arrive at the target.
        until_us: the latest possible time, in the same unit; None: ``at_us`` is exact.
    """

    source: str
    target: str
    text: str
    at_us: int | None = None
    is_lost: bool = False
    until_us: int | None = None


def message_steps(
    row: LogRow,
    receivers: Sequence[Receiver],
    tables: Sequence[TablePosition],
    events: Sequence[tuple[str, Mapping[str, Any]]],
    committed: Sequence[RecordedTime] = (),
) -> list[Step]:
    """Return the steps of one message.

    Args:
        row: the message.
        receivers: the clients and groups that its topic reaches now, and its state for each.
        tables: tables in which messages of its topic land.
        events: kind and content of its events, in the order in which they happened; empty where
            the broker writes no events.
        committed: when it became durable, if that is recorded.
    """
    steps = [
        Step(
            row.client_id or "?",
            BROKER,
            f"PUBLISH QoS {row.qos}, {row.payload_bytes:,} B",
            row.received_at_us,
        )
    ]
    reached: set[str] = set()
    if all(kind != "committed" for kind, _ in events):
        on_disk = [
            _timed_step(BROKER, BROKER, _ON_DISK, time) for time in committed if time.certain
        ]
        steps += on_disk[:1] or [Step(BROKER, BROKER, _ON_DISK)]
    for kind, event in events:
        step = _event_step(kind, event)
        if step is not None:
            steps.append(step)
            reached.add(step.target if step.source == BROKER else step.source)
    recorded: list[Step] = []
    inferred: list[Step] = []
    for receiver in receivers:
        if receiver.name not in reached:
            recorded_here = _recorded_steps(receiver)
            recorded += recorded_here
            inferred += _state_steps(row, receiver, recorded_here)
        elif receiver.state in ("waiting", "in_group"):
            inferred += _state_steps(row, receiver, [])
    recorded.sort(key=lambda step: step.at_us or 0)
    return [*steps, *recorded, *inferred, *(_table_step(row, table) for table in tables)]


def _event_step(kind: str, event: Mapping[str, Any]) -> Step | None:
    client = str(event.get("client", ""))
    if kind == "committed":
        return Step(BROKER, BROKER, _ON_DISK, event.get("at"))
    if kind in ("dropped", "expired"):
        reason = str(event.get("reason", kind)).replace("_", " ")
        return Step(BROKER, client, f"dropped: {reason}", event.get("at"), is_lost=True)
    if kind not in _EVENTS or not client:
        return None
    text, is_inbound = _EVENTS[kind]
    source, target = (client, BROKER) if is_inbound else (BROKER, client)
    return Step(source, target, text, event.get("at"))


def _recorded_steps(receiver: Receiver) -> list[Step]:
    """Return the steps of the message that the flight recorder has for one receiver.

    A record that may be of another message is left out, unless the receiver's state implies it.
    """
    steps: list[Step] = []
    for time in receiver.times:
        same_kind = [other for other in receiver.times if other.kind == time.kind]
        implied = _IMPLIED_EVENTS.get(receiver.state) == time.kind and len(same_kind) == 1
        if not (time.certain or implied):
            continue
        if time.kind == "dropped":
            text = f"dropped: {time.detail.replace('_', ' ')}"
            steps.append(_timed_step(BROKER, receiver.name, text, time, is_lost=True))
        elif time.kind in _EVENTS:
            text, is_inbound = _EVENTS[time.kind]
            if time.kind == "sent" and any(step.text == "sent" for step in steps):
                text = _EVENTS["resent"][0]
            ends = (receiver.name, BROKER) if is_inbound else (BROKER, receiver.name)
            steps.append(_timed_step(*ends, text, time))
    return steps


def _timed_step(
    source: str, target: str, text: str, time: RecordedTime, is_lost: bool = False
) -> Step:
    until_us = time.last_us if time.last_us > time.first_us else None
    return Step(source, target, text, time.first_us, is_lost, until_us)


def _state_steps(row: LogRow, receiver: Receiver, recorded: Sequence[Step]) -> list[Step]:
    """Return a step with the message's state for one receiver, or nothing if the ``recorded`` steps
    already show it."""
    qos = min(row.qos, receiver.qos)
    if receiver.state.startswith("dropped:"):
        reason = receiver.state.removeprefix("dropped:").replace("_", " ")
        dropped = Step(BROKER, receiver.name, f"dropped: {reason}", is_lost=True)
        return [] if any(step.text == dropped.text for step in recorded) else [dropped]
    text = _STATES.get(receiver.state, receiver.state)
    if receiver.state:
        return [Step(BROKER, receiver.name, f"QoS {qos}, {text}")]
    if any(step.is_lost or step.text.startswith(("sent", "acknowledged")) for step in recorded):
        return []
    sent_times = [time for time in receiver.times if time.kind == "sent"]
    if sent_times:
        span = sent_times[0].first_us, sent_times[-1].last_us
        return [Step(BROKER, receiver.name, f"QoS {qos}, maybe sent", span[0], until_us=span[1])]
    if receiver.is_recorded and not recorded:
        return [Step(BROKER, receiver.name, _NOT_SENT, is_lost=True)]
    text = _SENT_QOS_0 if qos == 0 else text
    return [Step(BROKER, receiver.name, f"QoS {qos}, {text}")]


def _table_step(row: LogRow, position: TablePosition) -> Step:
    name = f"table {position.table}"
    if row.offset < position.offset:
        return Step(BROKER, name, "its row is there")
    return Step(BROKER, name, f"not yet: the table is at offset {position.offset:,}", is_lost=True)
