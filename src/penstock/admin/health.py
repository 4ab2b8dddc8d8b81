"""Health checks of a broker: whether it is alive, and whether it is ready for clients.

=========  =====  =====  =======================================================================
check      alive  ready  fails when
=========  =====  =====  =======================================================================
loop       yes    yes    the broker does not answer in time: its event loop is blocked, or ended
store             yes    the store cannot write, or the commit under way takes too long
disk              yes    the file system of the data directory has too few free bytes
accepting         yes    the broker is starting, draining, or is shutting down
stream            yes    the stream service gives no sign of life; the broker is about to restart it
=========  =====  =====  =======================================================================

A member of a cluster has the check ``role``, too: only the primary is ready for clients, unless the
request names another role.

A supervisor restarts a broker that is not alive. A store that cannot write does not count for that:
a restart would not repair it, and would close every connection.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from penstock.admin.broker import BrokerAnswer, BrokerRequests
from penstock.admin.disk import disk_bytes
from penstock.control.metric_requests import Health
from penstock.errors import PenstockError

COMMIT_S_MAX: Final = 10.0
"""Time after which a commit under way fails the check of the store, seconds."""


PRIMARY: Final = "primary"
STANDBY: Final = "standby"
ANY: Final = "any"
LAG_MAX: Final = 10_000
"""Entries that the view of a ready standby may be behind, if the request does not say."""


class RequiredRole(NamedTuple):
    """The role that a member of a cluster must have to be ready.

    Attributes:
        role: ``PRIMARY``, ``STANDBY``, or ``ANY`` for either.
        lag_max: entries that the view of a standby may be behind.
    """

    role: str
    lag_max: int = LAG_MAX


REQUIRE_PRIMARY: Final = RequiredRole(PRIMARY)
"""Only the member that serves clients is ready."""


class Check(NamedTuple):
    """The outcome of one check.

    Attributes:
        name: the name of the check.
        passes: whether the check passes.
        why: the reason, one sentence, also if the check passes.
    """

    name: str
    passes: bool
    why: str


async def check_liveness(broker: BrokerRequests) -> list[Check]:
    """Run the checks of liveness; return their outcomes."""
    found = await _request_health(broker)
    return [found if isinstance(found, Check) else _loop_check(found)]


async def check_readiness(
    broker: BrokerRequests, disk_free_bytes_min: int, required: RequiredRole = REQUIRE_PRIMARY
) -> tuple[list[Check], Health | None]:
    """Run the checks of readiness.

    Args:
        broker: sends requests to the broker.
        disk_free_bytes_min: free bytes of the disk below which the broker is not ready.
        required: the role that a member of a cluster must have.

    Returns:
        The outcomes, and the health of the broker; None if it did not answer.
    """
    found = await _request_health(broker)
    disk = _disk_check(broker.data_dir, disk_free_bytes_min)
    if isinstance(found, Check):
        return [found, disk], None
    health = found.answer
    checks = [
        _loop_check(found),
        _store_check(health),
        disk,
        _accepting_check(health),
        _stream_check(health),
    ]
    if health.role or required.role == STANDBY:
        checks.append(role_check(health, required))
    return checks, health


def role_check(health: Health, required: RequiredRole) -> Check:
    """Check that a member of a cluster has the required role, and a view that is recent enough."""
    role = health.role or PRIMARY
    reason = (
        f"this member is the {role}" if role == PRIMARY else f"the role of this member is {role}"
    )
    if role != PRIMARY:
        reason += f", {health.lag:,} entries behind; the primary is {health.primary or 'not known'}"
        if health.member_problem:
            reason += f": {health.member_problem}"
    passes = role == required.role or (required.role == ANY and role in (PRIMARY, STANDBY))
    if passes and role == STANDBY:
        passes = bool(health.primary) and health.lag <= required.lag_max
    return Check("role", passes, reason)


async def _request_health(broker: BrokerRequests) -> BrokerAnswer[Health] | Check:
    try:
        return await broker.health()
    except PenstockError as error:
        return Check("loop", False, str(error))


def _loop_check(found: BrokerAnswer[Health]) -> Check:
    return Check("loop", True, f"the broker answered within {found.took_s * 1000:.0f} ms")


def _store_check(health: Health) -> Check:
    if health.store_failure:
        return Check("store", False, health.store_failure)
    if health.commit_waits_s > COMMIT_S_MAX:
        return Check(
            "store", False, f"a commit has waited for the disk for {health.commit_waits_s:.0f} s"
        )
    return Check("store", True, "the store can write")


def _disk_check(data_dir: Path, free_bytes_min: int) -> Check:
    try:
        free_bytes, _ = disk_bytes(data_dir)
    except OSError as error:
        return Check("disk", False, f"{data_dir} cannot be examined: {error.strerror or error}")
    passes = free_bytes >= free_bytes_min
    text = f"{free_bytes:,} bytes are free for the data directory"
    if not passes:
        text += f", fewer than admin.disk_free_bytes_min ({free_bytes_min:,})"
    return Check("disk", passes, text)


def _stream_check(health: Health) -> Check:
    if health.stream_failure:
        return Check("stream", False, f"{health.stream_failure}: readers of the log wait")
    return Check("stream", True, "the stream service gives signs of life, if there is one")


def _accepting_check(health: Health) -> Check:
    if health.starting:
        return Check("accepting", False, "the broker has not started: it waits for its store")
    if health.shutting_down:
        return Check("accepting", False, "the broker is shutting down")
    if health.draining:
        return Check("accepting", False, "the broker is draining: it accepts no clients")
    return Check("accepting", True, "the broker accepts clients")
