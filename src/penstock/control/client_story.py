"""The last minutes between one client and the broker, as steps.

The flight recorder knows runs of like events, not each message: a step is a run, with the time of
its first event and of its last.
"""

from __future__ import annotations

from typing import Final

from penstock.control.recorded import Recorded, RecordedRun, RefusedConnects
from penstock.control.story import BROKER, Step

_FLOWS: Final = {  # how a run of messages reads; True: they go to the broker
    "received": ("published", True),
    "queued": ("queued", False),
    "sent": ("sent", False),
    "acknowledged": ("acknowledged", True),
}


def steps_of_client(recorded: Recorded, last: int) -> list[Step]:
    """Return the ``last`` steps that are recorded of a client, in the order in which they began."""
    client = recorded.client_id
    steps = [_of_run(client, run) for run in recorded.runs]
    if recorded.refused:
        steps += [_of_refusal(client, refused) for refused in recorded.refused]
        steps.sort(key=lambda step: step.at_us or 0)
    return steps[-last:]


def _of_run(client: str, run: RecordedRun) -> Step:
    times = "" if run.count == 1 else f" {run.count:,} times"
    if run.kind in _FLOWS:
        text, goes_in = _FLOWS[run.kind]
        ends = (client, BROKER) if goes_in else (BROKER, client)
        return _step(*ends, f"{text} {_messages(run)}", run)
    if run.kind == "dropped":
        topic = f" of {run.text}" if run.text else ""
        text = f"dropped {_messages(run)}{topic}: {run.detail.replace('_', ' ')}"
        return _step(BROKER, client, text, run, is_lost=True)
    if run.kind == "refused":
        topic = f" ({run.text})" if run.text else ""
        return _step(BROKER, client, f"refused {_messages(run)}: {run.detail}{topic}", run)
    about = f": {run.text}" if run.text else ""
    return _step(client, BROKER, f"{run.kind}{times}{about}", run)


def _of_refusal(client: str, refused: RefusedConnects) -> Step:
    times = "" if refused.count == 1 else f" {refused.count:,} times"
    return _step(BROKER, client, f"CONNECT refused{times}: {refused.text}", refused, is_lost=True)


def _step(
    source: str, target: str, text: str, run: RecordedRun | RefusedConnects, is_lost: bool = False
) -> Step:
    until_us = run.last_us if run.last_us > run.first_us else None
    return Step(source, target, text, run.first_us, is_lost, until_us)


def _messages(run: RecordedRun) -> str:
    """Return the messages of a run, in words that claim no more than is known."""
    if run.first_offset is None or run.last_offset is None:
        return "1 message" if run.count == 1 else f"{run.count:,} messages"
    if run.count == 1:
        return f"offset {run.first_offset:,}"
    span = f"{run.first_offset:,} to {run.last_offset:,}"
    if run.gapless and run.logged == run.count:
        return f"offsets {span}"
    of_them = "" if run.logged == run.count else f"{run.logged:,} "
    return f"{run.count:,} messages, {of_them}at offsets {span}"
