"""The request for the flight recorder's events of a client, and its answer."""

from __future__ import annotations

import msgspec


class ShowRecorded(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="recorded", tag_field="do"
):
    """Show the record of one client; ``done`` is ``Recorded``, or null where there is none."""

    client_id: str


class RecordedRun(msgspec.Struct, frozen=True):
    """A run of consecutive events of one kind; times are µs since the Unix epoch.

    Attributes:
        kind: ``received`` from the client; ``queued`` for it, ``sent`` to it, ``acknowledged`` by
            it; ``connected``, ``disconnected``; ``dropped`` on the way from or to the client;
            ``refused``: a message of the client was refused with a reason code.
        detail: the reason of a drop or a refusal.
        first_us, last_us: when the first and the last event happened.
        count: the number of events.
        logged: the number of these events that are about a message in the log.
        first_offset, last_offset: the lowest and the highest offset of such a message; null: none.
        gapless: whether every message between these two offsets belongs to the run.
        text: a few words about the last event: listener, reason or topic.
    """

    kind: str
    detail: str
    first_us: int
    last_us: int
    count: int
    logged: int
    first_offset: int | None
    last_offset: int | None
    gapless: bool
    text: str


class RefusedConnects(msgspec.Struct, frozen=True):
    """A run of refused CONNECT packets with the client's identifier; ``text`` is why the last was
    refused."""

    first_us: int
    last_us: int
    count: int
    text: str


class Recorded(msgspec.Struct, frozen=True):
    """The flight recorder's record of one client.

    Attributes:
        client_id: the client identifier.
        since_us: since when all events are recorded; null: only refused CONNECTs are.
        runs: all runs of events, in the order in which they began.
        refused: refused CONNECTs with this client identifier, from any address.
    """

    client_id: str
    since_us: int | None
    runs: list[RecordedRun]
    refused: list[RefusedConnects]

    def last(self, kind: str) -> RecordedRun | None:
        """Return the last run of this kind; None if none is recorded."""
        runs = [run for run in self.runs if run.kind == kind]
        return max(runs, key=lambda run: run.last_us) if runs else None


class RecordedTime(msgspec.Struct, frozen=True):
    """The time at which something happened to one message.

    Attributes:
        kind: the kind of event, as of a ``RecordedRun``, or ``committed``.
        detail: the reason of a drop or a refusal.
        first_us, last_us: the event happened between these two, µs since the Unix epoch.
        certain: whether it happened to this message; else perhaps only to others of the same run.
    """

    kind: str
    detail: str
    first_us: int
    last_us: int
    certain: bool
