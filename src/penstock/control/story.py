"""The way of one message, as steps between those who had part in it.

::

      the log's row ─────────────────────╮
      where it is for each receiver now ─┤
      how far tables are ────────────────┴▶ steps, in the order in which they happened
      its events, where there are any ───╯

Without events the end of a delivery is concluded: what is neither in flight nor waiting nor dropped
has left, if the receiver was subscribed when the message came. With events each step has its time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from penstock.control.explanation import Receiver

BROKER: Final = "Penstock"

_STATES: Final = {
    "in_flight": "in flight: sent, not acknowledged yet",
    "waiting": "waits in its queue",
    "in_group": "waits in the queue of the group",
    "": "sent and acknowledged, if it was subscribed",
}
_ON_DISK: Final = "on disk"
_SENT_QOS_0: Final = "sent, if it was subscribed"

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
    """One step: ``source`` and ``target`` are the same for what happens at one place.

    Attributes:
        source: the participant that acts.
        target: the participant that is reached.
        text: a few words for the arrow.
        at_us: when, µs since the Unix epoch; None: not known.
        is_lost: whether the message does not arrive by it.
    """

    source: str
    target: str
    text: str
    at_us: int | None = None
    is_lost: bool = False


def steps_of(
    row: Row,
    receivers: Sequence[Receiver],
    landings: Sequence[Landing],
    events: Sequence[tuple[str, Mapping[str, Any]]],
) -> list[Step]:
    """Return the steps of one message.

    Args:
        row: the message.
        receivers: the clients and groups that its topic reaches now, and where it is for each.
        landings: tables that take its topic.
        events: its events by kind, in the order in which they happened; none where none are kept.
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
        steps.append(Step(BROKER, BROKER, _ON_DISK))
    for kind, event in events:
        step = _of_event(kind, event)
        if step is not None:
            steps.append(step)
            reached.add(step.target if step.source == BROKER else step.source)
    steps += [
        _of_receiver(row, receiver)
        for receiver in receivers
        if receiver.name not in reached or receiver.state in ("waiting", "in_group")
    ]
    return steps + [_of_landing(row, landing) for landing in landings]


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


def _of_receiver(row: Row, receiver: Receiver) -> Step:
    if receiver.state.startswith("dropped:"):
        reason = receiver.state.removeprefix("dropped:").replace("_", " ")
        return Step(BROKER, receiver.name, f"dropped: {reason}", is_lost=True)
    text = _STATES.get(receiver.state, receiver.state)
    qos = min(row.qos, receiver.qos)
    if receiver.state == "" and qos == 0:
        text = _SENT_QOS_0
    return Step(BROKER, receiver.name, f"QoS {qos}, {text}")


def _of_landing(row: Row, landing: Landing) -> Step:
    name = f"table {landing.table}"
    if row.offset < landing.offset:
        return Step(BROKER, name, "its row is there")
    return Step(BROKER, name, f"not yet: the table is at offset {landing.offset:,}", is_lost=True)
