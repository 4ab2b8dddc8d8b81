"""The requests of the stream service on behalf of readers: leases (``control.client``).

A *reader* is identified by its group. Its lease holds the offset up to which it has read, and
protects the messages from that offset on from leaving the log while the lease lasts;
``services.reader_leases`` carries the requests out.
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
        group: the group's name.
        stream: the stream that it reads.
        topics: filters of the messages that it reads; empty: all messages of the stream.
        epoch: epoch of the log that ``offset`` belongs to.
        offset: offset before which the reader needs no message any more.
        ttl_s: how long the lease lasts unless it is renewed, in seconds.
        resume: keep the offset of a group that the broker knows; ``offset`` is for a new group.
        about: a description of the reader, shown in the list.
        owner: the owner of the token that asks; empty where the token may do everything.
        mark: the mark of ``offset`` (``store.mark``); empty where the reader has none.
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
    mark: str = ""


class LeaseGrant(msgspec.Struct, frozen=True):
    """A lease that was granted.

    Attributes:
        epoch: epoch of the log.
        offset: offset from which on the log is kept for the reader.
        ttl_s: duration of the lease, in seconds; less than was asked for where the broker has a
            limit.
        lost: messages that left the log although the group's leases protected them, since it began.
    """

    epoch: str
    offset: int
    ttl_s: float
    lost: int


class Release(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="release", tag_field="do"
):
    """Forget a group; ``done`` says whether the broker knew it."""

    group: str
    owner: str = ""


class ListReaders(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="readers", tag_field="do"
):
    """List all groups that the broker knows, or those of one owner; ``done`` is a list of
    ``ReaderState``."""

    owner: str = ""


class ReaderState(msgspec.Struct, frozen=True):
    """The position of a registered reader, and its lease.

    Attributes:
        group: its name.
        stream: the stream that it reads.
        topics: it reads only messages that match one of these filters; empty: all.
        offset: offset before which the reader needs no message any more.
        lag_messages: number of messages in the log from that offset on.
        lag_s: age of the message at that offset, in seconds; None if it has left the log.
        lease_left_s: seconds until the lease ends; 0 when it has ended, and protects nothing.
        lost: messages that left the log although the group's leases protected them.
        about: the description that the reader gave.
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
    """Return ``group`` if it is a valid name of a group.

    Raises:
        ConfigError: ``group`` is no valid name.
    """
    if _GROUP.fullmatch(group) is None:
        raise ConfigError(
            "a group must be 1 to 64 letters, digits and . _ - that start with a letter or"
            f" digit, not {group!r}"
        )
    return group
