"""The record of one client in memory: runs of events of one kind, coarser the older they are.

::

      event ─▶ open run ── 20 ms passed, or the clock was set ─▶ closed runs, oldest first
               first and last time          (a new run begins)       │ above ``runs_max``
               lowest, highest offset                                ▼
               count                         neighbours that are short for their age are merged

An event changes a few attributes of the open run; no object is made for it. The time is compared
once for all events of one input. A kind of event has a series from its first event on: most idle
clients have one, of their connection. A series never forgets an event, but its time becomes less
exact: a run from a minute ago may last ten seconds, one from a moment ago is exact.

A run guarantees the following:

1. Each of its events happened between its first and its last time.
2. Its lowest and its highest log offset are offsets of its events. Another offset between them
   certainly belongs to an event only if the offsets ascended and none is missing
   (``Run.verdict_on``).
3. A new run begins when the wall clock is set, so that both times of a run have the same lead.
   Times are those of the steady clock. Runs with different leads are merged only if nothing else
   makes room; the merged run has the newer lead.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.engine.values.clock import Now

WINDOW_US: Final = 20_000  # events within this time after a run's first one join it
FLOW_RUNS_MAX: Final = 32  # closed runs of messages received, queued, sent or acknowledged
CONNECTION_RUNS_MAX: Final = 8  # closed runs of connections, and of their ends
REASON_RUNS_MAX: Final = 4  # closed runs of messages dropped or refused for one reason
REASONS_MAX: Final = 6  # reasons of one client; the least recent one is forgotten first
TEXT_MAX: Final = 64  # characters

RECEIVED: Final = 0  # the client published a message
QUEUED: Final = 1  # a message waits for the client
SENT: Final = 2  # a message was handed to the client's socket, for the first time or again
ACKNOWLEDGED: Final = 3  # by PUBACK or PUBREC
CONNECTED: Final = 4
DISCONNECTED: Final = 5
DROPPED: Final = 6  # see ``drop_counts``
REFUSED: Final = 7  # the client's message was answered with a reason code from 0x80 on

RECORDED_KINDS: Final = (
    "received",
    "queued",
    "sent",
    "acknowledged",
    "connected",
    "disconnected",
    "dropped",
    "refused",
)

NO: Final = 0  # the message is not among a run's events
MAYBE: Final = 1
YES: Final = 2

_FINEST: Final = 1 / 16  # the first fraction of its age that a merged run may last
_ANY_LEAD: Final = 64.0  # from this fraction on, runs before and after a clock jump are merged


@final
class RecordClock:
    """The time of the input that is being handled, for all records of one broker.

    The shell sets it before each input.

    Args:
        now: the time at which the broker starts.
    """

    def __init__(self, now: Now) -> None:
        self.inputs: i64 = 0  # the number of inputs so far
        self.steady_us: i64 = now.steady_us
        self.lead_us: i64 = now.lead_us

    def set(self, now: Now) -> None:
        """Set the time of the input that is handled next."""
        self.inputs += 1
        self.steady_us = now.steady_us
        self.lead_us = now.lead_us


@mypyc_attr(acyclic=True)
@final
class Run:
    """Successive events of one kind.

    Attributes:
        first_us, last_us: times of the first and the last event, on the steady clock.
        lead_us: how far the wall clock was ahead of the steady clock, microseconds.
        count: number of events.
        logged: number of events that have a log offset.
        lowest, highest: the lowest and highest of these offsets; -1 without any.
        ascends: whether each offset was higher than all before it.
        text: a few words about the last event; empty for events of messages.
    """

    def __init__(self) -> None:
        self.first_us: i64 = 0
        self.last_us: i64 = 0
        self.lead_us: i64 = 0
        self.count: i64 = 0
        self.logged: i64 = 0
        self.lowest: i64 = -1
        self.highest: i64 = -1
        self.is_ascending = True
        self.text = ""

    def add(self, offset: i64) -> None:
        """Add an event of the message at ``offset``; -1 = not in the log, or not known."""
        self.count += 1
        if offset > self.highest:
            self.highest = offset
            if self.logged == 0:
                self.lowest = offset
            self.logged += 1
        elif offset >= 0:
            self.is_ascending = False
            self.lowest = min(self.lowest, offset)
            self.logged += 1

    def add_all(self, begin: i64, end: i64) -> None:
        """Add an event of each message from ``begin`` to below ``end``. The run must be empty."""
        assert self.count == 0, "the run has no events yet"
        assert 0 <= begin < end, "there are messages"
        self.lowest = begin
        self.highest = end - 1
        self.count = self.logged = end - begin

    def join(self, later: Run) -> None:
        """Add the events of ``later``; the caller merges the times."""
        if later.logged > 0:
            if self.logged == 0:
                self.lowest = later.lowest
                self.is_ascending = later.is_ascending
            else:
                self.is_ascending = (
                    self.is_ascending and later.is_ascending and later.lowest > self.highest
                )
                self.lowest = min(self.lowest, later.lowest)
            self.highest = max(self.highest, later.highest)
        self.count += later.count
        self.logged += later.logged
        if later.text:
            self.text = later.text

    def is_gapless(self) -> bool:
        """Return whether every offset from the lowest to the highest belongs to an event."""
        return self.is_ascending and 0 < self.logged == self.highest - self.lowest + 1

    def verdict_on(self, offset: i64) -> int:
        """Return whether the run has an event of the message at ``offset``: ``NO``, ``MAYBE`` or
        ``YES``."""
        if self.logged == 0 or not self.lowest <= offset <= self.highest:
            return NO
        if offset == self.lowest or offset == self.highest or self.is_gapless():
            return YES
        return NO if self.is_ascending and self.logged == 2 else MAYBE


@mypyc_attr(acyclic=True)
@final
class RunSeries:
    """The events of one kind, as runs.

    Args:
        clock: the time of each event.
        runs_max: the number of closed runs that are kept, at least 4.
    """

    def __init__(self, clock: RecordClock, runs_max: int) -> None:
        self._clock = clock
        self._runs_max = runs_max
        self._open_run = Run()
        self._open_until_us: i64 = 0  # the open run ends then
        self._noted_in: i64 = -1  # the input of the latest event
        self._closed_runs: list[Run] | None = None
        self._coarseness = _FINEST

    def note(self, offset: i64) -> None:
        """Note an event of the message at ``offset``, at the current time; -1 = no offset."""
        if self._noted_in != self._clock.inputs:
            self._come_to_input()
        self._open_run.add(offset)

    def note_text(self, offset: i64, text: str) -> None:
        """Note an event as ``note`` does, with a text, which is cut to ``TEXT_MAX`` characters."""
        self.note(offset)
        self._open_run.text = shortened(text)

    def take(self, batch: Run) -> None:
        """Note the events of ``batch``, all at the current time.

        The caller must not change ``batch`` afterwards: ``batch`` may become the open run.
        """
        if self._is_open_run_over():
            self._begin(batch)
        else:
            self._open_run.join(batch)
        self._open_run.last_us = self._clock.steady_us

    def _come_to_input(self) -> None:
        """Prepare the open run for events of the present input."""
        if self._is_open_run_over():
            self._begin(Run())
        self._open_run.last_us = self._clock.steady_us
        self._noted_in = self._clock.inputs

    def _is_open_run_over(self) -> bool:
        """Return whether an event at the current time begins a new run."""
        now_us = self._clock.steady_us
        run = self._open_run
        return (
            now_us >= self._open_until_us
            or now_us < run.last_us
            or self._clock.lead_us != run.lead_us
        )

    def runs(self) -> list[Run]:
        """Return all runs, the oldest first. The caller must not change them."""
        closed = self._closed_runs or []
        return [*closed, self._open_run] if self._open_run.count > 0 else list(closed)

    def _begin(self, run: Run) -> None:
        """Close the open run, and make ``run`` the open one from the current time on."""
        clock = self._clock
        if self._open_run.count > 0:
            if self._closed_runs is None:
                self._closed_runs = []
            self._closed_runs.append(self._open_run)
            if len(self._closed_runs) > self._runs_max:
                self._closed_runs = self._with_room(self._closed_runs, clock.steady_us)
        run.first_us = clock.steady_us
        run.lead_us = clock.lead_us
        self._open_until_us = run.first_us + WINDOW_US
        self._open_run = run

    def _with_room(self, runs: list[Run], now_us: i64) -> list[Run]:
        """Return ``runs`` with neighbours merged, until a quarter of ``runs_max`` is free.

        Two neighbours are merged where both together last no longer than a fraction of their age.
        The fraction is doubled until enough are merged; the next call begins with a smaller one.
        """
        coarseness = self._coarseness
        while len(runs) > self._runs_max * 3 // 4:
            merged: list[Run] = []
            for run in runs:
                if merged and _may_merge(merged[-1], run, now_us, coarseness):
                    before = merged[-1]
                    before.join(run)
                    before.last_us = max(before.last_us, run.last_us)
                    before.first_us = min(before.first_us, run.first_us)
                    before.lead_us = run.lead_us
                else:
                    merged.append(run)
            runs = merged
            coarseness *= 2
        self._coarseness = max(_FINEST, coarseness / 4)
        return runs


def _may_merge(before: Run, run: Run, now_us: i64, coarseness: float) -> bool:
    if before.lead_us != run.lead_us and coarseness < _ANY_LEAD:
        return False
    lasts_us = run.last_us - before.first_us
    age_us = now_us - run.last_us + 1
    if age_us < 1:  # a clock that went back: room is made all the same
        age_us = 1
    return float(lasts_us) <= float(age_us) * coarseness


def shortened(text: str) -> str:
    """Return ``text``, cut to ``TEXT_MAX`` characters."""
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


@final
class RecordedRun:
    """One run with its kind.

    Args:
        kind: ``RECEIVED`` … ``REFUSED``.
        detail: the reason of a drop, or the reason code of a refusal; else 0.
        run: the events.
    """

    def __init__(self, kind: int, detail: int, run: Run) -> None:
        self.kind = kind
        self.detail = detail
        self.run = run


@mypyc_attr(acyclic=True)
@final
class ClientRecord:
    """The events of one client since the record began.

    Each kind of event, and each reason of drops and refusals, has a series of its own, so that many
    events of one kind displace none of another. Drops and refusals are complete for the latest
    ``REASONS_MAX`` reasons; all other kinds are complete.

    Args:
        clock: the time of each event.
        next_offset: the log offset of the next message; events of earlier messages may be missing.
    """

    def __init__(self, clock: RecordClock, next_offset: i64) -> None:
        self.since_us: i64 = clock.steady_us
        self.since_lead_us: i64 = clock.lead_us
        self.since_offset = next_offset
        self._received_runs: RunSeries | None = None
        self._queued_runs: RunSeries | None = None
        self._sent_runs: RunSeries | None = None
        self._acknowledged_runs: RunSeries | None = None
        self._connected_runs: RunSeries | None = None
        self._disconnected_runs: RunSeries | None = None
        self._clock = clock
        self._by_reason: dict[tuple[int, int], RunSeries] | None = None  # the latest reason last

    @property
    def received_runs(self) -> RunSeries:
        """Return the series of messages from the client."""
        series = self._received_runs
        if series is None:
            series = self._received_runs = RunSeries(self._clock, FLOW_RUNS_MAX)
        return series

    @property
    def queued_runs(self) -> RunSeries:
        """Return the series of messages that were queued."""
        series = self._queued_runs
        if series is None:
            series = self._queued_runs = RunSeries(self._clock, FLOW_RUNS_MAX)
        return series

    @property
    def sent_runs(self) -> RunSeries:
        """Return the series of messages that were sent."""
        series = self._sent_runs
        if series is None:
            series = self._sent_runs = RunSeries(self._clock, FLOW_RUNS_MAX)
        return series

    @property
    def acknowledged_runs(self) -> RunSeries:
        """Return the series of messages that were acknowledged."""
        series = self._acknowledged_runs
        if series is None:
            series = self._acknowledged_runs = RunSeries(self._clock, FLOW_RUNS_MAX)
        return series

    @property
    def connected_runs(self) -> RunSeries:
        """Return the series of connections."""
        series = self._connected_runs
        if series is None:
            series = self._connected_runs = RunSeries(self._clock, CONNECTION_RUNS_MAX)
        return series

    @property
    def disconnected_runs(self) -> RunSeries:
        """Return the series of ends of connections."""
        series = self._disconnected_runs
        if series is None:
            series = self._disconnected_runs = RunSeries(self._clock, CONNECTION_RUNS_MAX)
        return series

    def note_reason(self, kind: int, detail: int, offset: int, text: str) -> None:
        """Note that a message was dropped or refused (``kind``), with the reason (``detail``)."""
        key = kind, detail
        by_reason = self._by_reason
        if by_reason is None:
            by_reason = self._by_reason = {}
        series = by_reason.pop(key, None)
        if series is None:
            if len(by_reason) >= REASONS_MAX:
                del by_reason[next(iter(by_reason))]
            series = RunSeries(self._clock, REASON_RUNS_MAX)
        by_reason[key] = series
        series.note_text(offset, text)

    def runs(self) -> list[RecordedRun]:
        """Return all runs, in the order in which they began."""
        found: list[RecordedRun] = []
        for kind, series in (
            (CONNECTED, self._connected_runs),
            (RECEIVED, self._received_runs),
            (QUEUED, self._queued_runs),
            (SENT, self._sent_runs),
            (ACKNOWLEDGED, self._acknowledged_runs),
            (DISCONNECTED, self._disconnected_runs),
        ):
            if series is not None:
                found += [RecordedRun(kind, 0, run) for run in series.runs()]
        for (kind, detail), series in (self._by_reason or {}).items():
            found += [RecordedRun(kind, detail, run) for run in series.runs()]
        found.sort(key=_began)
        return found


def _began(entry: RecordedRun) -> int:
    return entry.run.first_us
