"""The system's limit of open files, and the part of it that connections may use.

Every connection is an open file, and so are the log, the listeners, and each table of RocksDB. A
broker that accepts connections until no descriptor is left can no longer write its log, and then
it must stop; so a tenth of the limit, at least 100 files, is kept from connections.
"""

from __future__ import annotations

import resource
from typing import Final

from penstock.config.settings import Settings
from penstock.telemetry.logs import get_logger
from penstock.transport.admission import Descriptors

logger = get_logger(__name__)

RESERVE_MIN: Final = 100
_WANTED_MAX: Final = 4_000_000  # more files than any listener may have connections


def raise_limit() -> int:
    """Raise the soft limit of open files as far as this process may; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_MAX if hard == resource.RLIM_INFINITY else min(hard, _WANTED_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _WANTED_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:  # macOS has a second limit
        logger.debug("the limit of open files stays at %d: %s", soft, error)
        return soft
    return wanted


def connections_within(limit: int) -> int:
    """Return the number of connections that a limit of open files leaves room for, at least 1."""
    return max(1, limit - max(RESERVE_MIN, limit // 10))


def prepare_descriptors(settings: Settings) -> Descriptors:
    """Raise the limit of open files; warn if it is too low for the listeners; return the count of
    connections for all listeners."""
    limit = raise_limit()
    room = connections_within(limit)
    wanted = max(listener.max_connections for listener in settings.listener.enabled_listeners())
    if wanted > room:
        logger.warning(
            "the limit of open files is %d: at most %d connections are served, not the %d that"
            " max_connections allows; raise it (ulimit -Hn, LimitNOFILE in a systemd unit,"
            " --ulimit nofile of a container) or lower max_connections",
            limit,
            room,
            wanted,
        )
    return Descriptors(room)
