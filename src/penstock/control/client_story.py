"""The last minutes of traffic between one client and the broker, as steps of a sequence diagram.

The flight recorder keeps runs of similar events, not each message: a step is a run, with the times
of its first and its last event.
"""

from __future__ import annotations

from typing import Final

from penstock.control.recorded import Recorded, RecordedRun, RefusedConnects
from penstock.control.story import BROKER, Step

_MESSAGE_RUNS: Final = {  # the text of a run of messages; whether the broker receives them
    "received": ("published", True),
    "queued": ("queued", False),
    "sent": ("sent", False),
    "acknowledged": ("acknowledged", True),
}


def client_steps(recorded: Recorded, last: int) -> list[Step]:
    """Return the last ``last`` steps that are recorded of a client, in the order of their start."""
    client = recorded.client_id
    steps = [_run_step(client, run) for run in recorded.runs]
    if recorded.refused:
        steps += [_refusal_step(client, refused) for refused in recorded.refused]
        steps.sort(key=lambda step: step.at_us or 0)
    return steps[-last:]


def _run_step(client: str, run: RecordedRun) -> Step:
    times = "" if run.count == 1 else f" {run.count:,} times"
    if run.kind in _MESSAGE_RUNS:
        text, is_inbound = _MESSAGE_RUNS[run.kind]
        ends = (client, BROKER) if is_inbound else (BROKER, client)
        return _step(*ends, f"{text} {_messages_text(run)}", run)
    if run.kind == "dropped":
        topic = f" of {run.text}" if run.text else ""
        text = f"dropped {_messages_text(run)}{topic}: {run.detail.replace('_', ' ')}"
        return _step(BROKER, client, text, run, is_lost=True)
    if run.kind == "refused":
        topic = f" ({run.text})" if run.text else ""
        return _step(BROKER, client, f"refused {_messages_text(run)}: {run.detail}{topic}", run)
    detail = f": {run.text}" if run.text else ""
    return _step(client, BROKER, f"{run.kind}{times}{detail}", run)


def _refusal_step(client: str, refused: RefusedConnects) -> Step:
    times = "" if refused.count == 1 else f" {refused.count:,} times"
    return _step(BROKER, client, f"CONNECT refused{times}: {refused.text}", refused, is_lost=True)


def _step(
    source: str, target: str, text: str, run: RecordedRun | RefusedConnects, is_lost: bool = False
) -> Step:
    until_us = run.last_us if run.last_us > run.first_us else None
    return Step(source, target, text, run.first_us, is_lost, until_us)


def _messages_text(run: RecordedRun) -> str:
    """Return how many messages a run has and at which offsets, as far as that is recorded."""
    if run.first_offset is None or run.last_offset is None:
        return "1 message" if run.count == 1 else f"{run.count:,} messages"
    if run.count == 1:
        return f"offset {run.first_offset:,}"
    span = f"{run.first_offset:,} to {run.last_offset:,}"
    if run.gapless and run.logged == run.count:
        return f"offsets {span}"
    logged = "" if run.logged == run.count else f"{run.logged:,} "
    return f"{run.count:,} messages, {logged}at offsets {span}"
