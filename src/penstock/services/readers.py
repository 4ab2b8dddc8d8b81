"""Registered readers of the log: their positions, and the part of the log kept for them.

A reader is known by its group. It leases the log from its offset on, for a time; each renewal moves
the offset and restarts the time. The lease of a reader that crashed ends by itself.

::

                      lease                       ttl_s without a renewal
      unknown ────────────────────▶ leased ──────────────────────────────▶ lapsed
        ▲ ▲                         ▲   │ ▲                                 │  │
        │ │                         ╰───╯ ╰───────────── lease ─────────────╯  │
        │ ╰──────── release ────────────╯                                      │
        ╰───────── release, or removed to make room for another group ─────────╯

Invariants:

1. The log is kept from the lowest offset of the groups with a lease, up to a size; messages that
   leave it all the same are counted for each group that lost them.
2. A group with a lease has one selection, a stream and topic filters: a second query with the same
   group would move its offset to and fro.
3. At most ``readers_max`` groups are known. One with a lease is not removed for another.
4. Leases end by the monotonic clock, which starts anew with each process: a restart gives every
   lease its whole time again, so a lease may last too long, never too short.
5. A group that lapsed keeps its offset, also after a restart: a query that registers again
   continues there, or gets the number of messages that it lost.

Pure: the caller has the clock, the file and the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

import msgspec

from penstock.control.reader_requests import Lease, LeaseGrant, check_group
from penstock.errors import ConfigError, OffsetOutOfRange, StoreError
from penstock.store.port import NOTHING_LEASED


class Reader(msgspec.Struct, rename={"has_lease": "holds"}):
    """The stored state of a group; attributes as in ``Lease``.

    ``has_lease`` is "holds" in the file, as earlier versions wrote it.
    """

    group: str
    stream: str
    topics: tuple[str, ...]
    offset: int
    ttl_s: float
    about: str
    has_lease: bool = True
    lost: int = 0
    owner: str = ""
    mark: str = ""


@final
class Readers:
    """The registered groups of one log.

    Args:
        epoch: the epoch of the log, also an attribute.
        readers_max: the largest number of groups.
        lease_s_max: the longest lease, in seconds.
        records: the groups as they were stored when the broker ended.
        now_s: the time of the monotonic clock, in seconds.
        per_owner_max: the largest number of groups of one owner.
    """

    def __init__(
        self,
        epoch: str,
        readers_max: int,
        lease_s_max: float,
        records: Iterable[Reader],
        now_s: float,
        per_owner_max: int = 10,
    ) -> None:
        self.per_owner_max = per_owner_max
        self.epoch = epoch
        self.readers_max = readers_max
        self.lease_s_max = lease_s_max
        self._readers = {
            reader.group: reader for reader in records
        }  # the first to lapse is the first
        self._ends_s = {
            reader.group: now_s + min(reader.ttl_s, lease_s_max)
            for reader in self._readers.values()
            if reader.has_lease
        }

    def __len__(self) -> int:
        return len(self._readers)

    def records(self) -> list[Reader]:
        """Return the state of every group, to be stored."""
        return list(self._readers.values())

    def remaining_s(self, group: str, now_s: float) -> float:
        """Return the seconds until the lease of ``group`` ends; 0 if it has ended."""
        return max(0.0, self._ends_s.get(group, now_s) - now_s)

    def lease(self, request: Lease, end: int, now_s: float) -> tuple[LeaseGrant, bool]:
        """Register a group or renew its lease; return the lease, and whether it must be stored
        before it is granted.

        A renewal that is lost in a crash keeps too much of the log, and does no other harm.

        Args:
            request: the request; its offset is of the log's history.
            end: the offset after the last message of the log.
            now_s: the time of the monotonic clock, in seconds.

        Raises:
            ConfigError: the request is malformed, or the group reads other messages.
            OffsetOutOfRange: the offset is beyond the end of the log.
            StoreError: there are too many readers.
        """
        self.expire(now_s)
        self._check(request, end)
        reader = self._readers.pop(request.group, None)  # moves to the end
        ttl_s = min(request.ttl_s, self.lease_s_max)
        is_new = reader is None or not reader.has_lease or reader.ttl_s < ttl_s
        if reader is None:
            reader = Reader(
                request.group, request.stream, request.topics, request.offset, ttl_s, request.about
            )
            reader.owner = request.owner
        elif (reader.stream, reader.topics) != (request.stream, request.topics):
            reader = msgspec.structs.replace(
                reader, stream=request.stream, topics=request.topics, offset=request.offset, lost=0
            )
        elif not request.resume:
            is_new = is_new or request.offset < reader.offset
            reader.offset = request.offset
        reader.ttl_s = ttl_s
        reader.about = request.about
        reader.has_lease = True
        self._readers[request.group] = reader
        self._ends_s[request.group] = now_s + ttl_s
        return LeaseGrant(self.epoch, reader.offset, ttl_s, reader.lost), is_new

    def _check(self, request: Lease, end: int) -> None:
        check_group(request.group)
        if not request.ttl_s > 0:
            raise ConfigError(f"a lease must last for more than 0 s, not {request.ttl_s:g} s")
        if not 0 <= request.offset <= end:
            raise OffsetOutOfRange(
                f"group {request.group} asks for offset {request.offset}, and the log ends at {end}"
            )
        reader = self._readers.get(request.group)
        if reader is not None:
            check_owner(f"group {request.group}", reader.owner, request.owner)
        if reader is None:
            self._make_room(request.group, request.owner)
        elif reader.has_lease and _selects_other_messages(reader, request):
            raise ConfigError(
                f"group {request.group} reads {_selection_text(reader.stream, reader.topics)}, and"
                f" cannot read {_selection_text(request.stream, request.topics)} as well: take"
                f" another group, or 'penstock stream release {request.group}'"
            )

    def _make_room(self, group: str, owner: str) -> None:
        has = sum(reader.owner == owner for reader in self._readers.values())
        if owner and has >= self.per_owner_max:
            raise StoreError(
                f"there is no place for the group {group}: {owner} has {has} groups of readers"
                " (stream.readers_per_token_max); 'penstock stream release GROUP' gives one up"
            )
        if len(self._readers) < self.readers_max:
            return
        for reader in self._readers.values():
            if not reader.has_lease:
                del self._readers[reader.group]
                return
        raise StoreError(
            f"there is no place for the group {group}: {len(self._readers)} groups of readers are"
            " registered (stream.readers_max); 'penstock stream release GROUP' gives one up"
        )

    def release(self, group: str, owner: str = "") -> bool:
        """Forget ``group``; return whether it was known.

        Raises:
            ConfigError: another owner registered it.
        """
        reader = self._readers.get(group)
        if reader is not None:
            check_owner(f"group {group}", reader.owner, owner)
        self._ends_s.pop(group, None)
        return self._readers.pop(group, None) is not None

    def expire(self, now_s: float) -> list[Reader]:
        """End the leases whose time is over; return the groups that lapsed."""
        ended = [group for group, ends_s in self._ends_s.items() if ends_s <= now_s]
        lapsed = []
        for group in ended:
            del self._ends_s[group]
            reader = self._readers.pop(group)
            assert reader.has_lease, "a group that lapsed has no lease"
            reader.has_lease = False
            self._readers[group] = reader
            lapsed.append(reader)
        return lapsed

    def lowest_leased_offset(self, now_s: float) -> int:
        """Return the lowest offset of the groups with a lease; ``NOTHING_LEASED`` without one."""
        offsets = (
            self._readers[group].offset for group, ends_s in self._ends_s.items() if ends_s > now_s
        )
        return min(offsets, default=NOTHING_LEASED)

    def count_losses(self, before: int, earliest: int, now_s: float) -> list[tuple[Reader, int]]:
        """Count the messages that groups with a lease lost to retention; return those groups, each
        with the number of messages lost.

        Args:
            before: the first offset of the log before it was trimmed.
            earliest: the first offset of the log now.
            now_s: the time of the monotonic clock, in seconds.
        """
        losses = []
        for group, ends_s in self._ends_s.items():
            reader = self._readers[group]
            lost = earliest - max(before, reader.offset)
            if lost > 0 and ends_s > now_s:
                reader.lost += lost
                losses.append((reader, lost))
        return losses


def check_owner(name: str, owner: str, requester: str) -> None:
    """Refuse access to a reader or table that another token registered.

    Args:
        name: the reader or table, for the error.
        owner: the owner of the token that registered it.
        requester: the owner of the token that asks; empty for a token without restrictions.

    Raises:
        ConfigError: ``requester`` is neither empty nor ``owner``.
    """
    if requester and requester != owner:
        raise ConfigError(f"{name} was registered with another token")


def _selects_other_messages(reader: Reader, request: Lease) -> bool:
    """Return whether a request selects another stream or other topics than its group."""
    return (reader.stream, reader.topics) != (request.stream, request.topics)


def _selection_text(stream: str, topics: tuple[str, ...]) -> str:
    return f"{', '.join(topics) or 'all'} of the stream {stream}"
