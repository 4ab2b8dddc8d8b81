"""The flight recorder: the latest events of each client, always on, in memory only.

::

      CONNECT ─▶ ClientRecord ── its link notes messages received, sent and acknowledged
                     │      ╰─── queues and drops note messages by client identifier
                     ▼ disconnected
                 kept until a client that connects needs its place (longest disconnected first)

Unlike events (``events``), which describe each message and are in the log, the recorder needs no
setting. A record has no topics, and its times become less exact (``client_record``). A client that
connects while connected clients have all places gets no record, nor does a client with a long name.

Refused CONNECTs are recorded separately, because the client identifier in them is only claimed.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.client_record import (
    DROPPED,
    REASON_RUNS_MAX,
    ClientRecord,
    RecordClock,
    Run,
    RunSeries,
    shortened,
)
from penstock.engine.values.clock import Now

NAME_MAX: Final = 256  # characters of a client identifier
REFUSED_NAMES_MAX: Final = 1000  # names in refused CONNECTs; at most a tenth of ``clients_max``
COMMIT_RUNS_MAX: Final = 256


@final
class FlightRecorder:
    """The records of one broker's clients.

    Args:
        clients_max: the number of clients with a record, above 0.
        now: the time at which the broker starts.
    """

    def __init__(self, clients_max: int, now: Now) -> None:
        self.clock = RecordClock(now)
        self.commits = RunSeries(self.clock, COMMIT_RUNS_MAX)  # messages that became durable
        self._clients_max = clients_max
        self._records: dict[str, ClientRecord] = {}
        self._away: dict[str, None] = {}  # disconnected clients, longest disconnected first
        self._refusals: dict[str, RunSeries] = {}  # by claimed name, the latest refusal last

    def note_connected(
        self, client_id: str, listener: str, next_offset: int
    ) -> ClientRecord | None:
        """Note that a client connected through ``listener``; return its record, or None.

        ``next_offset`` is the log offset of the next message, from which a new record is complete.
        """
        self._away.pop(client_id, None)
        record = self._records.get(client_id)
        if record is None:
            record = self._begin(client_id, next_offset)
        if record is not None:
            record.connected_runs.note_text(-1, listener)
        return record

    def add_disconnected(self, client_id: str, next_offset: int) -> None:
        """Begin the record of a disconnected client whose session is in the store, if there is
        room."""
        has_room = len(self._records) < self._clients_max
        if has_room and self._begin(client_id, next_offset) is not None:
            self._away[client_id] = None

    def _begin(self, client_id: str, next_offset: int) -> ClientRecord | None:
        if len(client_id) > NAME_MAX:
            return None
        if len(self._records) >= self._clients_max:
            if not self._away:
                return None
            longest = next(iter(self._away))
            del self._away[longest]
            del self._records[longest]
        record = self._records[client_id] = ClientRecord(self.clock, next_offset)
        return record

    def note_disconnected(self, client_id: str, because: str) -> None:
        """Note that the connection of a client ended, with one sentence about the reason."""
        record = self._records.get(client_id)
        if record is not None:
            record.disconnected_runs.note_text(-1, because)
            self._away[client_id] = None

    def record_of(self, client_id: str) -> ClientRecord | None:
        """Return the record of a client; None if it has none."""
        return self._records.get(client_id)

    def note_queued(self, client_id: str, offset: int) -> None:
        """Note that the message at ``offset`` was queued for a client."""
        record = self._records.get(client_id)
        if record is not None:
            record.queued_runs.note(offset)

    def note_dropped(self, reason: int, client_id: str, topic: str, offset: int) -> None:
        """Note that a message from a client, or for it, was dropped for ``reason``."""
        record = self._records.get(client_id)
        if record is not None:
            record.note_reason(DROPPED, reason, offset, topic)

    def note_refused_connect(self, client_id: str, why: str) -> None:
        """Note that a CONNECT with this client identifier was refused, with the reason ``why``."""
        if not client_id or len(client_id) > NAME_MAX:
            return
        refusals = self._refusals.pop(client_id, None)
        if refusals is None:
            if len(self._refusals) >= min(REFUSED_NAMES_MAX, 1 + self._clients_max // 10):
                del self._refusals[next(iter(self._refusals))]
            refusals = RunSeries(self.clock, REASON_RUNS_MAX)
        self._refusals[client_id] = refusals
        refusals.note_text(-1, shortened(why))

    def refusals_of(self, client_id: str) -> list[Run]:
        """Return the refused CONNECTs with this client identifier, the oldest first."""
        refusals = self._refusals.get(client_id)
        return [] if refusals is None else refusals.runs()
