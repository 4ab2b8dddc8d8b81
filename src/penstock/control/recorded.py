"""The request for the flight recorder's events of a client, and its answer."""

from __future__ import annotations

import msgspec


class ShowRecorded(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="recorded", tag_field="do"
):
    """Show the record of one client; ``done`` is ``Recorded``, or null where there is none."""

    client_id: str


class RecordedRun(msgspec.Struct, frozen=True):
    """Some events of one kind, one after the other; times are µs since the Unix epoch.

    Attributes:
        kind: ``received`` from the client; ``queued`` for it, ``sent`` to it, ``acknowledged`` by
            it; ``connected``, ``disconnected``; ``dropped`` on the way from or to it; ``refused``:
            its message was, with a reason code.
        detail: the reason of a drop or a refusal.
        first_us, last_us: when the first and the last happened; the others in between.
        count: how many events.
        logged: how many of them are about a message in the log.
        first_offset, last_offset: the lowest and the highest of these; null: there is none.
        gapless: whether each message between the two is one of them.
        text: a few words about the last: listener, reason or topic.
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
    """CONNECTs under the client's name that were refused, and why the last one was."""

    first_us: int
    last_us: int
    count: int
    text: str


class Recorded(msgspec.Struct, frozen=True):
    """The record of one client.

    Attributes:
        client_id: the client identifier.
        since_us: since when all is recorded; null: only refused CONNECTs are.
        runs: all runs, in the order in which they began.
        refused: refused CONNECTs of whoever used this name.
    """

    client_id: str
    since_us: int | None
    runs: list[RecordedRun]
    refused: list[RefusedConnects]

    def last(self, kind: str) -> RecordedRun | None:
        """Return the last run of this kind, or None."""
        found = [run for run in self.runs if run.kind == kind]
        return max(found, key=lambda run: run.last_us) if found else None


class RecordedTime(msgspec.Struct, frozen=True):
    """The time at which something happened to one message.

    Attributes:
        kind: as of a ``RecordedRun``, or ``committed``.
        detail: the reason of a drop or a refusal.
        first_us, last_us: between these two, µs since the Unix epoch.
        certain: whether it did; else it may have happened to others only.
    """

    kind: str
    detail: str
    first_us: int
    last_us: int
    certain: bool
