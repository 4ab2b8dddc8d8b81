"""The login guard: it counts wrong passwords by source, delays further checks, and bans.

``auth.login_queue`` has the rules of counting; this module adds the networks that many
users share, the clock, and the log.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, final

from penstock.auth.login_queue import LoginQueue, LoginQueueOptions
from penstock.engine.values.addresses import source_of
from penstock.telemetry.logs import RepeatLimiter, get_logger, warn_limited

logger = get_logger(__name__)


T = TypeVar("T")

BanCallback = Callable[[str, str], None]
"""Called with the source that is to be banned, and the reason."""


@final
class LoginGuard(Generic[T]):
    """The login queue of one broker, and the logins that failed or were refused.

    Args:
        options: the rules by which failures count.
        waiting_max: the largest number of clients that wait for a check at the same time.
        exempt: networks that many users share, such as ``10.0.0.0/8``: failures from them are not
            counted by address.
    """

    def __init__(self, options: LoginQueueOptions, waiting_max: int, exempt: Sequence[str]) -> None:
        self.queue: LoginQueue[T] = LoginQueue(options, waiting_max)
        self.failures = 0
        self.refusals = 0  # without a check: too many failures, or too many wait
        self._options = options
        self._exempt = [ipaddress.ip_network(network) for network in exempt]
        self._on_ban: BanCallback | None = None
        self._limiter = RepeatLimiter()

    def apply_settings(
        self, options: LoginQueueOptions, waiting_max: int, exempt: Sequence[str]
    ) -> None:
        """Use other settings from now on; failures that were counted before stay counted."""
        self.queue.apply_settings(options, waiting_max)
        self._options = options
        self._exempt = [ipaddress.ip_network(network) for network in exempt]

    def report_to(self, on_ban: BanCallback) -> None:
        """Set the callback that bans a source."""
        self._on_ban = on_ban

    def source(self, address: str) -> str:
        """Return the source with which failures from ``address`` are counted; empty where many
        users share the address."""
        return source_of(address, self._exempt)

    def lane(self, address: str) -> str:
        """Return the lane of the login queue in which a check for ``address`` waits."""
        return source_of(address)

    def may_try(self, address: str, name: str) -> bool:
        """Return whether an attempt that cannot be queued may be made now; count a refusal if
        not."""
        now_s = time.monotonic()
        if self.queue.due_s(self.source(address), name, now_s) <= now_s:
            return True
        self.count_refusal(address, name)
        return False

    def count_refusal(self, address: str, name: str) -> None:
        """Count an attempt that is refused without a check."""
        self.refusals += 1
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
        """Count a wrong password, log it, and ban its source if there were too many."""
        self.failures += 1
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
        if self.queue.count_failure(source, name, now_s) and self._on_ban is not None:
            options = self._options
            self._on_ban(
                source, f"{options.ban_failures} wrong passwords within {options.within_s:g} s"
            )

    def count_success(self, address: str, name: str) -> None:
        """Count a right password: its source and name are trusted more from now on."""
        self.queue.trust(self.source(address), name)
