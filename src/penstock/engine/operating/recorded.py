"""The flight recorder's records, as values for operators.

Nothing is changed here. Times are dates of the wall clock, with the lead it had then. Each
description is a dict of JSON values (docs/why.md).
"""

from __future__ import annotations

from penstock.engine.client_record import (
    DROPPED,
    NO,
    RECORDED_KINDS,
    REFUSED,
    YES,
    RecordedRun,
    Run,
)
from penstock.engine.operating.listing import JsonObject
from penstock.engine.reporting.drop_counts import slug_of
from penstock.engine.server.server import Server
from penstock.protocol import reasons


def recorded(server: Server, client_id: str) -> JsonObject | None:
    """Return all that is recorded of a client; None where nothing is."""
    recorder = server.context.recorder
    if recorder is None:
        return None
    record = recorder.of(client_id)
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


def recorded_about(server: Server, client_id: str, offset: int) -> list[JsonObject]:
    """Return when something was recorded of a client about the message at ``offset``.

    Where ``certain`` is false, the message may be one of others in that time, or none of them.
    """
    recorder = server.context.recorder
    record = None if recorder is None else recorder.of(client_id)
    if record is None:
        return []
    return [
        _time(RECORDED_KINDS[entry.kind], _detail(entry), entry.run, offset)
        for entry in record.runs()
        if entry.run.verdict_on(offset) != NO
    ]


def is_recorded(server: Server, client_id: str, offset: int) -> bool:
    """Return whether a client is recorded since before the message at ``offset`` came."""
    recorder = server.context.recorder
    record = None if recorder is None else recorder.of(client_id)
    return record is not None and record.since_offset <= offset


def committed_about(server: Server, offset: int) -> list[JsonObject]:
    """Return when the message at ``offset`` became durable, if that is recorded."""
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
