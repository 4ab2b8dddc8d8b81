"""The judgement whether a broker is alive, and whether it is ready for clients.

=========  =====  =====  ====================================================================
check      alive  ready  fails when
=========  =====  =====  ====================================================================
loop       yes    yes    the broker does not answer in time: its event loop is stuck, or gone
store             yes    the store cannot write, or the commit under way takes too long
disk              yes    less is free on the file system of the data directory than asked for
accepting         yes    the broker is being emptied, or is shutting down
=========  =====  =====  ====================================================================

A member of a cluster has the check ``role``, too: only the primary is ready for clients, unless a
standby is asked for.

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


PRIMARY: Final = "primary"
STANDBY: Final = "standby"
ANY: Final = "any"
LAG_MAX: Final = 10_000
"""Entries that a standby may be behind to be ready, unless it is asked otherwise."""


class RequiredRole(NamedTuple):
    """The role that a member of a cluster must have to be ready.

    Attributes:
        role: ``PRIMARY``, ``STANDBY`` or ``ANY`` of both.
        lag_max: entries that the view of a standby may be behind.
    """

    role: str
    lag_max: int = LAG_MAX


SERVES: Final = RequiredRole(PRIMARY)
"""The member that serves clients."""


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


async def ready(
    broker: Broker, disk_free_bytes_min: int, required: RequiredRole = SERVES
) -> tuple[list[Check], Health | None]:
    """Return the checks of a broker that must be ready, and its health if it answered.

    Args:
        broker: asks the broker.
        disk_free_bytes_min: free bytes of the disk below which it is not ready.
        required: the role that a member of a cluster must have.
    """
    found = await _ask(broker)
    disk = _disk(broker.data_dir, disk_free_bytes_min)
    if isinstance(found, Check):
        return [found, disk], None
    health = found.answer
    checks = [_loop(found), _store(health), disk, _accepting(health)]
    if health.role or required.role == STANDBY:
        checks.append(role_check(health, required))
    return checks, health


def role_check(health: Health, required: RequiredRole) -> Check:
    """Return whether a member of a cluster has the required role, with a view new enough."""
    role = health.role or PRIMARY
    told = f"this member is the {role}" if role == PRIMARY else f"the role of this member is {role}"
    if role != PRIMARY:
        told += f", {health.lag:,} entries behind; the primary is {health.primary or 'not known'}"
    passes = role == required.role or (required.role == ANY and role in (PRIMARY, STANDBY))
    if passes and role == STANDBY:
        passes = bool(health.primary) and health.lag <= required.lag_max
    return Check("role", passes, told)


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
