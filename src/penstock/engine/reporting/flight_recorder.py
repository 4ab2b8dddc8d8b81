"""The flight recorder: the latest events of each client, always there, in memory only.

::

      CONNECT ─▶ ClientRecord ── its link notes what is received, sent and acknowledged
                     │      ╰─── queues and drops note by client identifier
                     ▼ disconnected
                 away: stays, until a client that connects needs the place (longest away first)

No setting has to be switched on before, unlike events (``events``), which tell of each message and
are kept in the log. A record knows no topics and forgets how exactly it knew (``client_record``). A
client that connects while all places are taken by connected ones has no record, nor has one with a
long name.

Refused CONNECTs are recorded apart, because the name in them is only claimed.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.client_record import (
    DROPPED,
    REASON_RUNS_MAX,
    ClientRecord,
    RecordClock,
    Run,
    RunSeries,
    shortened,
)
from penstock.engine.clock import Now

NAME_MAX: Final = 256  # characters of a client identifier
REFUSED_NAMES_MAX: Final = 1000  # claimed names of refused CONNECTs, or a tenth of the clients
COMMIT_RUNS_MAX: Final = 256


@final
class FlightRecorder:
    """The records of one broker's clients.

    Args:
        clients_max: how many clients, above 0.
        now: the time of the start.
    """

    def __init__(self, clients_max: int, now: Now) -> None:
        self.clock = RecordClock(now)
        self.commits = RunSeries(self.clock, COMMIT_RUNS_MAX)  # messages that became durable
        self._clients_max = clients_max
        self._records: dict[str, ClientRecord] = {}
        self._away: dict[str, None] = {}  # client identifiers, the longest away first
        self._refusals: dict[str, RunSeries] = {}  # by claimed name, the latest name last

    def connected(self, client_id: str, listener: str, next_offset: int) -> ClientRecord | None:
        """Note that a client connected, when the log's next message has ``next_offset``; return its
        record, None if it has none."""
        self._away.pop(client_id, None)
        record = self._records.get(client_id)
        if record is None:
            record = self._begin(client_id, next_offset)
        if record is not None:
            record.connected.note_text(-1, listener)
        return record

    def begin_away(self, client_id: str, next_offset: int) -> None:
        """Record a client that was found in the store, and is not connected, if there is room."""
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

    def disconnected(self, client_id: str, because: str) -> None:
        """Note that the connection of a client ended, and why."""
        record = self._records.get(client_id)
        if record is not None:
            record.disconnected.note_text(-1, because)
            self._away[client_id] = None

    def of(self, client_id: str) -> ClientRecord | None:
        """Return the record of a client, or None."""
        return self._records.get(client_id)

    def queued(self, client_id: str, offset: int) -> None:
        """Note that a message waits for a client."""
        record = self._records.get(client_id)
        if record is not None:
            record.queued.note(offset)

    def dropped(self, reason: int, client_id: str, topic: str, offset: int) -> None:
        """Note that a message of, or for, a client was dropped."""
        record = self._records.get(client_id)
        if record is not None:
            record.note_reason(DROPPED, reason, offset, topic)

    def connect_refused(self, client_id: str, why: str) -> None:
        """Note that a CONNECT with this client identifier was refused, and why."""
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
