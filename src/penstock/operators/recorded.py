"""The flight recorder's records, as values for operators.

These functions change nothing. Times are those of the wall clock at the event, microseconds since
the Unix epoch. Each description is a dict of JSON values (docs/why.md).
"""

from __future__ import annotations

from penstock.engine.api import Server
from penstock.engine.values.client_record import (
    DROPPED,
    NO,
    RECORDED_KINDS,
    REFUSED,
    YES,
    RecordedRun,
    Run,
)
from penstock.engine.values.drop_reasons import slug_of
from penstock.operators.listing import JsonObject
from penstock.protocol import reasons


def recorded_events(server: Server, client_id: str) -> JsonObject | None:
    """Return all recorded events of a client; None if there are none."""
    recorder = server.context.recorder
    if recorder is None:
        return None
    record = recorder.record_of(client_id)
    refusals = recorder.refusals_of(client_id)
    if record is None and not refusals:
        return None
    found: JsonObject = {
        "client_id": client_id,
        "since_us": None if record is None else record.since_us + record.since_lead_us,
        "runs": [] if record is None else [_run(entry) for entry in record.runs()],
        "refused": [
            {"first_us": _first_us(run), "last_us": _last_us(run), "count": run.count}
            | {"text": run.text}
            for run in refusals
        ],
    }
    return found


def recorded_events_about(server: Server, client_id: str, offset: int) -> list[JsonObject]:
    """Return the recorded events of a client that may be about the message at ``offset``.

    Each is an object with ``kind``, ``detail``, the times ``first_us`` and ``last_us``, and
    ``certain``: false if the events between these times may all be about other messages.
    """
    recorder = server.context.recorder
    record = None if recorder is None else recorder.record_of(client_id)
    if record is None:
        return []
    return [
        _time(RECORDED_KINDS[entry.kind], _detail(entry), entry.run, offset)
        for entry in record.runs()
        if entry.run.verdict_on(offset) != NO
    ]


def is_recorded(server: Server, client_id: str, offset: int) -> bool:
    """Return whether the record of a client began before the message at ``offset`` was logged."""
    recorder = server.context.recorder
    record = None if recorder is None else recorder.record_of(client_id)
    return record is not None and record.since_offset <= offset


def committed_about(server: Server, offset: int) -> list[JsonObject]:
    """Return the recorded times at which the message at ``offset`` may have become durable, as
    objects like those of ``recorded_events_about``."""
    recorder = server.context.recorder
    if recorder is None:
        return []
    return [
        _time("committed", "", run, offset)
        for run in recorder.commits.runs()
        if run.verdict_on(offset) != NO
    ]


def _time(kind: str, detail: str, run: Run, offset: int) -> JsonObject:
    return {
        "kind": kind,
        "detail": detail,
        "first_us": _first_us(run),
        "last_us": _last_us(run),
        "certain": run.verdict_on(offset) == YES,
    }


def _run(entry: RecordedRun) -> JsonObject:
    run = entry.run
    return {
        "kind": RECORDED_KINDS[entry.kind],
        "detail": _detail(entry),
        "first_us": _first_us(run),
        "last_us": _last_us(run),
        "count": run.count,
        "logged": run.logged,
        "first_offset": run.lowest if run.logged > 0 else None,
        "last_offset": run.highest if run.logged > 0 else None,
        "gapless": run.is_gapless(),
        "text": run.text,
    }


def _detail(entry: RecordedRun) -> str:
    if entry.kind == DROPPED:
        return slug_of(entry.detail)
    return reasons.name_of(entry.detail) if entry.kind == REFUSED else ""


def _first_us(run: Run) -> int:
    return run.first_us + run.lead_us


def _last_us(run: Run) -> int:
    return run.last_us + run.lead_us
