"""The request for the role of a broker in its cluster.

A broker without a cluster is a primary; an older one does not know the request.
"""

from __future__ import annotations

import msgspec


class ReadRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="role", tag_field="do"):
    """Return the role of the broker; ``done`` is ``Role``."""


class Role(msgspec.Struct, frozen=True):
    """The role of a broker.

    Attributes:
        is_primary: whether it is the primary, which alone takes requests that change the log.
        primary: the name of the primary's machine; empty: not known.
    """

    is_primary: bool
    primary: str = ""
