"""The request for all facts about one client and a topic, and its answer.

The conclusions from the facts are drawn in ``diagnosis``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from penstock.control.recorded import Recorded, RecordedTime

OFFSETS_MAX: Final = 100
"""Most messages of one request."""


class Explain(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="explain", tag_field="do"
):
    """Return all facts about one client and a topic; ``done`` is an ``Explanation``.

    Attributes:
        client_id: the client identifier; it need not be known.
        topic: a topic name; empty: only facts about the client.
        offsets: messages of that topic whose state for this client is wanted.
    """

    client_id: str
    topic: str = ""
    offsets: tuple[int, ...] = ()


class FindReceivers(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="receivers", tag_field="do"
):
    """Return the state of one message for each client, bridge and group that its topic reaches now;
    ``done`` is ``Receivers``."""

    topic: str
    offset: int


class Receiver(msgspec.Struct, frozen=True):
    """A client, bridge or group that a message is for.

    Attributes:
        name: client identifier, or the filter of the group.
        kind: ``client``, ``bridge`` or ``group``.
        qos: the QoS of the subscription.
        state: as in ``Explanation.states``; empty: the message was delivered, or was not for this
            receiver.
        times: when the message was queued, sent and so on, as far as that is recorded.
        is_recorded: whether the flight recorder has recorded this client since before the broker
            received the message.
    """

    name: str
    kind: str
    qos: int
    state: str
    times: list[RecordedTime] = []
    is_recorded: bool = False


class Receivers(msgspec.Struct, frozen=True):
    """The receivers that a message is for now, ``count`` in all; the first hundred in full.

    ``committed`` has the time at which the message became durable, if that is recorded.
    """

    receivers: list[Receiver]
    count: int
    committed: list[RecordedTime] = []


class ReachedLimit(msgspec.Struct, frozen=True):
    """A limit that the client is at: ``window``, ``write_buffer``, ``queue`` or ``inbound``; for
    how many seconds, and how often it has reached the limit."""

    limit: str
    lasts_s: float
    times: int


class MatchingSubscription(msgspec.Struct, frozen=True):
    """A subscription of the client whose filter matches the topic."""

    filter: str
    qos: int
    no_local: bool


class ExplainedGroup(msgspec.Struct, frozen=True):
    """A shared subscription of the client that matches the topic, and its members."""

    filter: str
    members: int
    connected: int
    connected_members: list[str]
    queue: int


class GroupDrops(msgspec.Struct, frozen=True):
    """The drops from the queue of a shared subscription of the client, as ``drops`` and
    ``last_drops`` of an ``Explanation``."""

    filter: str
    drops: dict[str, int]
    last_drops: list[dict[str, Any]]


class Explanation(msgspec.Struct, frozen=True):
    """The facts about a client and a topic (``operators.explaining``); from ``session`` on
    only those of a client with a session.

    Attributes:
        banned_because: the ban that keeps this client out, with its reason; None: no ban does.
        store_fails: whether the store cannot write.
        draining: whether the broker is being emptied.
        session: as in the list of sessions; None: the broker has no session of this client.
        reads: whether its socket takes more bytes; None: it is not connected.
        recorded: the flight recorder's last minutes of the client; None: nothing is recorded.
        drops: how many messages were dropped for the client, by reason; last_drops: the latest.
        group_drops: the drops of its shared subscriptions, of the first hundred with any.
        in_flight, waiting: the first messages in its window, and in its queue.
        filters: the filters of its subscriptions, the first hundred.
        may_receive, may_publish: whether its permissions allow the topic; receive_rule and
            publish_rule: the line of the access list that says so.
        states: by offset: ``in_flight``, ``waiting``, ``in_group`` or ``dropped:`` and a reason.
    """

    client_id: str
    banned_because: str | None
    store_fails: bool
    draining: bool
    topic: str
    recorded: Recorded | None = None
    session: dict[str, Any] | None = None
    disconnected_because: str = ""
    limits: list[ReachedLimit] = []
    reads: bool | None = None
    max_packet_size: int = 0
    drops: dict[str, int] = {}
    last_drops: list[dict[str, Any]] = []
    group_drops: list[GroupDrops] = []
    in_flight: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    filters: list[str] = []
    subscriptions: list[MatchingSubscription] = []
    groups: list[ExplainedGroup] = []
    may_receive: bool = True
    may_publish: bool = True
    receive_rule: str = ""
    publish_rule: str = ""
    retained: dict[str, Any] | None = None
    states: dict[str, str] = {}


MessageRequest = Explain | FindReceivers
