"""The way of one message, as steps between its publisher, the broker and its receivers.

::

      the log's row ─────────────────────╮
      where it is for each receiver now ─┤
      the flight recorder's times ───────┼▶ steps, in the order in which they happened
      how far tables are ────────────────┤
      its events, where there are any ───╯

With events each step has its time. Without them the flight recorder has the times of the last
minutes, the older the vaguer; what may have happened to other messages only is told with *maybe*.
What is neither recorded nor in flight, waiting or dropped is concluded: it has left, if the
receiver was subscribed when the message came.
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

_IMPLIED: Final = {"waiting": "queued", "in_flight": "sent"}  # what must have happened before

_EVENTS: Final = {  # how an event about one receiver reads; True: it goes back to the broker
    "queued": ("queued", False),
    "sent": ("sent", False),
    "resent": ("sent again", False),
    "acknowledged": ("acknowledged", True),
    "completed": ("completed", True),
    "bridged": ("acknowledged by the remote broker", True),
    "moved": ("given to a member", False),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A message as the log has it.

    Attributes:
        offset: its place in the log.
        received_at_us: when the broker received it, µs since the Unix epoch.
        client_id: its publisher.
        topic: its topic.
        qos: with which QoS it was published.
        payload_bytes: the size of its payload.
    """

    offset: int
    received_at_us: int
    client_id: str
    topic: str
    qos: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Landing:
    """A table that takes this topic, and how far it is: it has all before ``offset``."""

    table: str
    offset: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step: ``source`` and ``target`` are the same for a step within one participant.

    Attributes:
        source: the participant that acts.
        target: the participant that is reached.
        text: a few words for the arrow.
        at_us: when, µs since the Unix epoch; None: not known.
        is_lost: whether the message does not arrive by it.
        until_us: the latest that it may have been, in the same unit; None: ``at_us`` is exact.
    """

    source: str
    target: str
    text: str
    at_us: int | None = None
    is_lost: bool = False
    until_us: int | None = None


def steps_of(
    row: Row,
    receivers: Sequence[Receiver],
    landings: Sequence[Landing],
    events: Sequence[tuple[str, Mapping[str, Any]]],
    committed: Sequence[RecordedTime] = (),
) -> list[Step]:
    """Return the steps of one message.

    Args:
        row: the message.
        receivers: the clients and groups that its topic reaches now, and where it is for each.
        landings: tables that take its topic.
        events: its events by kind, in the order in which they happened; none where none are kept.
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
        on_disk = [_at(BROKER, BROKER, _ON_DISK, time) for time in committed if time.certain]
        steps += on_disk[:1] or [Step(BROKER, BROKER, _ON_DISK)]
    for kind, event in events:
        step = _of_event(kind, event)
        if step is not None:
            steps.append(step)
            reached.add(step.target if step.source == BROKER else step.source)
    recorded: list[Step] = []
    concluded: list[Step] = []
    for receiver in receivers:
        if receiver.name not in reached:
            happened = _of_record(receiver)
            recorded += happened
            concluded += _of_receiver(row, receiver, happened)
        elif receiver.state in ("waiting", "in_group"):
            concluded += _of_receiver(row, receiver, [])
    recorded.sort(key=lambda step: step.at_us or 0)
    return [*steps, *recorded, *concluded, *(_of_landing(row, landing) for landing in landings)]


def _of_event(kind: str, event: Mapping[str, Any]) -> Step | None:
    client = str(event.get("client", ""))
    if kind == "committed":
        return Step(BROKER, BROKER, _ON_DISK, event.get("at"))
    if kind in ("dropped", "expired"):
        reason = str(event.get("reason", kind)).replace("_", " ")
        return Step(BROKER, client, f"dropped: {reason}", event.get("at"), is_lost=True)
    if kind not in _EVENTS or not client:
        return None
    text, goes_back = _EVENTS[kind]
    source, target = (client, BROKER) if goes_back else (BROKER, client)
    return Step(source, target, text, event.get("at"))


def _of_record(receiver: Receiver) -> list[Step]:
    """Return the steps that the flight recorder has of the message for one receiver.

    A record that may be of another message is left out, unless the receiver's state implies it.
    """
    steps: list[Step] = []
    for time in receiver.times:
        alike = [other for other in receiver.times if other.kind == time.kind]
        implied = _IMPLIED.get(receiver.state) == time.kind and len(alike) == 1
        if not (time.certain or implied):
            continue
        if time.kind == "dropped":
            text = f"dropped: {time.detail.replace('_', ' ')}"
            steps.append(_at(BROKER, receiver.name, text, time, is_lost=True))
        elif time.kind in _EVENTS:
            text, goes_back = _EVENTS[time.kind]
            if time.kind == "sent" and any(step.text == "sent" for step in steps):
                text = _EVENTS["resent"][0]
            ends = (receiver.name, BROKER) if goes_back else (BROKER, receiver.name)
            steps.append(_at(*ends, text, time))
    return steps


def _at(source: str, target: str, text: str, time: RecordedTime, is_lost: bool = False) -> Step:
    until_us = time.last_us if time.last_us > time.first_us else None
    return Step(source, target, text, time.first_us, is_lost, until_us)


def _of_receiver(row: Row, receiver: Receiver, happened: Sequence[Step]) -> list[Step]:
    """Return a step with the message's state for this receiver; none if ``happened`` has it."""
    qos = min(row.qos, receiver.qos)
    if receiver.state.startswith("dropped:"):
        reason = receiver.state.removeprefix("dropped:").replace("_", " ")
        dropped = Step(BROKER, receiver.name, f"dropped: {reason}", is_lost=True)
        return [] if any(step.text == dropped.text for step in happened) else [dropped]
    text = _STATES.get(receiver.state, receiver.state)
    if receiver.state:
        return [Step(BROKER, receiver.name, f"QoS {qos}, {text}")]
    if any(step.is_lost or step.text.startswith(("sent", "acknowledged")) for step in happened):
        return []
    maybe = [time for time in receiver.times if time.kind == "sent"]
    if maybe:
        span = maybe[0].first_us, maybe[-1].last_us
        return [Step(BROKER, receiver.name, f"QoS {qos}, maybe sent", span[0], until_us=span[1])]
    if receiver.is_recorded and not happened:
        return [Step(BROKER, receiver.name, _NOT_SENT, is_lost=True)]
    text = _SENT_QOS_0 if qos == 0 else text
    return [Step(BROKER, receiver.name, f"QoS {qos}, {text}")]


def _of_landing(row: Row, landing: Landing) -> Step:
    name = f"table {landing.table}"
    if row.offset < landing.offset:
        return Step(BROKER, name, "its row is there")
    return Step(BROKER, name, f"not yet: the table is at offset {landing.offset:,}", is_lost=True)
