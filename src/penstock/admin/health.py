"""The judgement whether a broker is alive, and whether it is ready for clients.

=========  =====  =====  ====================================================================
check      alive  ready  fails when
=========  =====  =====  ====================================================================
loop       yes    yes    the broker does not answer in time: its event loop is stuck, or gone
store             yes    the store cannot write, or the commit under way takes too long
disk              yes    less is free on the file system of the data directory than asked for
accepting         yes    the broker is being emptied, or is shutting down
=========  =====  =====  ====================================================================

A supervisor restarts what is not alive; a store that cannot write is no reason for that, because a
restart would not mend it and would end every connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from penstock.admin.broker import Broker, BrokerAnswer
from penstock.admin.disk import disk_bytes
from penstock.control.metric_requests import Health
from penstock.errors import PenstockError

COMMIT_S_MAX: Final = 10.0
"""A commit that takes longer than this counts as a store that cannot write, seconds."""


class Check(NamedTuple):
    """The outcome of one check.

    Attributes:
        name: its name.
        passes: whether it passes.
        why: the reason, one sentence, also where it passes.
    """

    name: str
    passes: bool
    why: str


async def alive(broker: Broker) -> list[Check]:
    """Return the checks of a broker that must be alive."""
    found = await _ask(broker)
    return [found if isinstance(found, Check) else _loop(found)]


async def ready(broker: Broker, disk_free_bytes_min: int) -> list[Check]:
    """Return the checks of a broker that must be ready for clients."""
    found = await _ask(broker)
    disk = _disk(broker.data_dir, disk_free_bytes_min)
    if isinstance(found, Check):
        return [found, disk]
    return [_loop(found), _store(found.answer), disk, _accepting(found.answer)]


async def _ask(broker: Broker) -> BrokerAnswer[Health] | Check:
    try:
        return await broker.health()
    except PenstockError as error:
        return Check("loop", False, str(error))


def _loop(found: BrokerAnswer[Health]) -> Check:
    return Check("loop", True, f"the broker answered within {found.took_s * 1000:.0f} ms")


def _store(health: Health) -> Check:
    if health.store_failure:
        return Check("store", False, health.store_failure)
    if health.commit_waits_s > COMMIT_S_MAX:
        return Check(
            "store", False, f"a commit has waited for the disk for {health.commit_waits_s:.0f} s"
        )
    return Check("store", True, "the store can write")


def _disk(data_dir: Path, free_bytes_min: int) -> Check:
    try:
        free_bytes, _ = disk_bytes(data_dir)
    except OSError as error:
        return Check("disk", False, f"{data_dir} cannot be looked at: {error.strerror or error}")
    passes = free_bytes >= free_bytes_min
    text = f"{free_bytes:,} bytes are free for the data directory"
    if not passes:
        text += f", fewer than admin.disk_free_bytes_min ({free_bytes_min:,})"
    return Check("disk", passes, text)


def _accepting(health: Health) -> Check:
    if health.shutting_down:
        return Check("accepting", False, "the broker is shutting down")
    if health.draining:
        return Check("accepting", False, "the broker is being emptied: it accepts no clients")
    return Check("accepting", True, "the broker accepts clients")
