"""The login guard: it counts wrong passwords by source, delays further checks, and bans.

The rules of counting are in ``engine.access.login_queue``; here are the addresses that many users
share, the clock, and the log.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, final

from penstock.engine.access.login_queue import LoginQueue, LoginQueueOptions
from penstock.engine.addresses import source_of
from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)


T = TypeVar("T")

Banned = Callable[[str, str], None]
"""Called with the source that is to be banned, and why."""


@final
class LoginGuard(Generic[T]):
    """The login queue of one broker, and the logins that failed or were refused.

    Args:
        options: how failures count.
        waiting_max: clients that wait for a check at the same time.
        exempt: networks that many users share.
    """

    def __init__(self, options: LoginQueueOptions, waiting_max: int, exempt: Sequence[str]) -> None:
        self.queue: LoginQueue[T] = LoginQueue(options, waiting_max)
        self.failed = 0
        self.refused = 0  # without a check: too many failures, or too many wait
        self._options = options
        self._exempt = [ipaddress.ip_network(network) for network in exempt]
        self._banned: Banned | None = None
        self._limiter = RepeatLimiter()

    def apply_settings(
        self, options: LoginQueueOptions, waiting_max: int, exempt: Sequence[str]
    ) -> None:
        """Count by other settings from now on; the failures that were counted stay."""
        self.queue.apply_settings(options, waiting_max)
        self._options = options
        self._exempt = [ipaddress.ip_network(network) for network in exempt]

    def report_to(self, banned: Banned) -> None:
        """Set the callback that bans a source."""
        self._banned = banned

    def source(self, address: str) -> str:
        """Return the source with which failures from ``address`` are counted; empty where many
        users share the address."""
        return source_of(address, self._exempt)

    def lane(self, address: str) -> str:
        """Return the lane in which a check for ``address`` takes its turn."""
        return source_of(address)

    def may_try(self, address: str, name: str) -> bool:
        """Return whether an attempt that cannot wait for its turn may be made now."""
        now_s = time.monotonic()
        if self.queue.due_s(self.source(address), name, now_s) <= now_s:
            return True
        self.count_refusal(address, name)
        return False

    def count_refusal(self, address: str, name: str) -> None:
        """Count an attempt that is refused without a check."""
        self.refused += 1
        warn_limited(
            logger,
            self._limiter,
            time.monotonic(),
            f"refused {self.lane(address)}",
            "refused a login from %s as user '%s' without a check: too many were wrong, or wait",
            address,
            name,
        )

    def count_failure(self, address: str, name: str) -> None:
        """Count a wrong password."""
        self.failed += 1
        now_s = time.monotonic()
        source = self.source(address)
        warn_limited(
            logger,
            self._limiter,
            now_s,
            f"failed {self.lane(address)}",
            "a login from %s as user '%s' failed",
            address,
            name,
        )
        if self.queue.failed(source, name, now_s) and self._banned is not None:
            options = self._options
            self._banned(
                source, f"{options.ban_failures} wrong passwords within {options.within_s:g} s"
            )

    def count_success(self, address: str, name: str) -> None:
        """Count a right password."""
        self.queue.succeeded(self.source(address), name)
