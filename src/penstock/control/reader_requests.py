"""The requests of the stream service on behalf of readers: leases (``control.client``).

A *reader* is known by its group. Its lease says how far it is, and that nothing from there on
may leave the log while the lease lasts; what becomes of it is in ``services.readers``.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from penstock.errors import ConfigError

_GROUP: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="lease", tag_field="do"):
    """Register a reader, or renew its lease; ``done`` is ``LeaseGrant``.

    Attributes:
        group: its name.
        stream: the stream that it reads.
        topics: it reads only messages that match one of these filters; empty: all.
        epoch: epoch of the log that ``offset`` belongs to.
        offset: the reader needs nothing before it any more.
        ttl_s: how long the lease lasts unless it is renewed, in seconds.
        resume: a group that is known stays where it is; ``offset`` is for one that is new.
        about: a description of the reader, shown in the list.
        owner: the owner of the token that asks; empty where the token may do everything.
    """

    group: str
    stream: str
    topics: tuple[str, ...]
    epoch: str
    offset: int
    ttl_s: float
    resume: bool = False
    about: str = ""
    owner: str = ""


class LeaseGrant(msgspec.Struct, frozen=True):
    """A lease that was granted.

    Attributes:
        epoch: epoch of the log.
        offset: offset from which on the log is kept for the reader.
        ttl_s: duration of the lease, in seconds; less than was asked for where the broker has a
            limit.
        lost: messages that left the log although they were held for this group, since it began.
    """

    epoch: str
    offset: int
    ttl_s: float
    lost: int


class Release(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="release", tag_field="do"
):
    """Forget a group; ``done`` says whether it was known."""

    group: str
    owner: str = ""


class ListReaders(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="readers", tag_field="do"
):
    """List every group that is known, or every one of an owner's; ``done`` is a list of
    ``ReaderState``."""

    owner: str = ""


class ReaderState(msgspec.Struct, frozen=True):
    """The position of a registered reader, and its lease.

    Attributes:
        group: its name.
        stream: the stream that it reads.
        topics: it reads only messages that match one of these filters; empty: all.
        offset: everything before it is needed no more.
        lag_messages: number of messages in the log from there on.
        lag_s: time that the oldest of them has waited, in seconds; None where it is gone.
        lease_left_s: until the lease ends, in seconds; 0 when it has ended, and protects nothing.
        lost: messages that left the log although they were held for it.
        about: the description that it gave.
    """

    group: str
    stream: str
    topics: tuple[str, ...]
    offset: int
    lag_messages: int
    lag_s: float | None
    lease_left_s: float
    lost: int
    about: str


ReaderRequest = Lease | Release | ListReaders


def check_group(group: str) -> str:
    """Return ``group`` if it may be the name of one.

    Raises:
        ConfigError: it may not.
    """
    if _GROUP.fullmatch(group) is None:
        raise ConfigError(
            "a group must be 1 to 64 letters, digits and . _ - that start with a letter or"
            f" digit, not {group!r}"
        )
    return group
