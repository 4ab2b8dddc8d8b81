"""Finds out whether the broker of a stream service is the primary of its cluster.

Only the primary serves requests that change something: leases, tables, published rows. The service
asks its broker for the role after the broker has refused a request, and before it stages rows,
because rows staged at a standby are never published.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.control.client import BrokerUnreachable, RequestRefused, ask
from penstock.control.role_requests import ReadRole, Role
from penstock.errors import StoreUnavailable
from penstock.stream.requests import Refusal, RequestError

ROLE_S_MAX: Final = 5.0
"""Longest wait for the broker's answer, in seconds."""


def read_role(data_dir: Path) -> Role:
    """Return the role of the broker that uses `data_dir`.

    A broker that does not know the request has no cluster and counts as primary. So does a broker
    that does not answer: the caller's next request to it reports that.
    """
    try:
        return ask(data_dir, ReadRole(), Role, ROLE_S_MAX)
    except (RequestRefused, BrokerUnreachable, StoreUnavailable):
        return Role(is_primary=True)


def refuse_standby(data_dir: Path) -> None:
    """Raise RequestError if the broker that uses `data_dir` is not the primary of its cluster."""
    role = read_role(data_dir)
    if not role.is_primary:
        known = f"; the primary is {role.primary}" if role.primary else ""
        raise RequestError(
            Refusal.NOT_PRIMARY, f"the broker here is a standby and changes nothing{known}"
        )
