"""The role of the broker beside a stream service: is it the primary of its cluster?

Only a primary changes something for readers: leases, tables, published rows. The service asks its
broker when that has refused a request, and before it stages rows, which only the primary of this
data directory could publish.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.control.client import BrokerUnreachable, RequestRefused, ask
from penstock.control.role_requests import ReadRole, Role
from penstock.errors import StoreFailed
from penstock.stream.requests import Refusal, RequestError

ROLE_S_MAX: Final = 5.0
"""Longest wait for the answer."""


def read_role(data_dir: Path) -> Role:
    """Return the role of the broker that uses `data_dir`.

    A broker that does not know the request has no cluster and is primary. So is one that does not
    answer: what is asked of it next will tell that it is away.
    """
    try:
        return ask(data_dir, ReadRole(), Role, ROLE_S_MAX)
    except (RequestRefused, BrokerUnreachable, StoreFailed):
        return Role(is_primary=True)


def refuse_standby(data_dir: Path) -> None:
    """Raise RequestError if the broker that uses `data_dir` is not the primary of its cluster."""
    role = read_role(data_dir)
    if not role.is_primary:
        known = f"; the primary is {role.primary}" if role.primary else ""
        raise RequestError(
            Refusal.NOT_PRIMARY, f"the broker here is a standby and changes nothing{known}"
        )
