"""QoS 2 messages of MQTT 3.1 clients that wait for their PUBREL (v3.1 §3.3, §3.6).

Version 3.1 says "do not make it available to interested parties yet" where the later versions let
a server choose: messages of later versions are routed at once, and only their packet identifier
waits for PUBREL (``inbound``).

::

      PUBLISH ─▶ waits ── PUBREL ─▶ released ── its body is in memory, and there is room ─▶ routed
                  │                   ╰─ its body is in the log only ─▶ read from there ─╯
                  ╰─ await_rel_timeout, end of the session ─▶ dropped, counted

A waiting message keeps the log from being trimmed, so its timeout also runs while the client is
disconnected, and all waiting messages together have a limit in bytes (``budget``).

A stored session's message is written to the log, as an internal message, by the commit after which
PUBREC is sent; when it is routed, it is appended once more, in the order of the PUBRELs, by the
commit that forgets the identifier. A session that is not stored needs the log only for bodies that
memory has no room for. Memory has at most ``bytes_max`` of bodies, and none while the client is
disconnected; a body that does not fit is read when its message is routed next.

Messages are routed in the order of their PUBRELs. When the connection ends, these PUBRELs are
forgotten: the client sends PUBREL again until it has PUBCOMP.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.memory.pool import Pool
from penstock.engine.values.fifo import Fifo
from penstock.engine.values.message import NOT_IN_LOG, Message
from penstock.engine.values.records import UnreleasedEntry

_BODIES_AT_ONCE_MAX: Final = 256  # requested from the log in one step


@final
class UnreleasedMessage:
    """One message that waits for its PUBREL; ``message`` is None while its body is in the log
    only."""

    def __init__(self, message: Message | None, offset: int, size_bytes: int) -> None:
        self.message = message
        self.offset = offset
        self.size_bytes = size_bytes
        self.is_released = False  # its PUBREL was received on this connection
        self.is_removed = False  # retention removed it from the log


@final
class AwaitingRelease:
    """The messages of one session that wait for PUBREL, by packet identifier.

    Args:
        bytes_max: limit of the bodies in memory, in bytes.
        account: the account in which all these messages count.
    """

    def __init__(self, bytes_max: int, account: Pool | None = None) -> None:
        self._account = account
        self.size_bytes = 0  # bytes of the bodies in memory
        self.bytes_max = bytes_max
        self.released_ids: Fifo[int] = Fifo()  # packet identifiers whose PUBREL was received
        self.requested_offsets: list[int] = []  # log offsets of the bodies that are being read
        self._entries: dict[int, UnreleasedMessage] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, packet_id: int) -> UnreleasedMessage | None:
        """Return the message that waits under ``packet_id``, or None."""
        return self._entries.get(packet_id)

    def has_room(self, size_bytes: int) -> bool:
        """Return whether memory has room for a body of this size."""
        return self.size_bytes + size_bytes <= self.bytes_max

    def keep(self, packet_id: int, message: Message) -> None:
        """Add ``message``; its body stays in memory if there is room.

        If there is no room, the message must be in the log.
        """
        size_bytes = message.size_bytes()
        entry = UnreleasedMessage(None, message.offset, size_bytes)
        if message.offset == NOT_IN_LOG or self.has_room(size_bytes):
            entry.message = message
            self.size_bytes += size_bytes
        self._entries[packet_id] = entry
        self._count(size_bytes)

    def forget(self, packet_id: int) -> None:
        """Remove the message of ``packet_id``, if there is one: it was routed or dropped."""
        entry = self._entries.get(packet_id)
        if entry is None:
            return
        del self._entries[packet_id]
        self._count(-entry.size_bytes)
        self._release_body(entry)
        if entry.is_released:
            self.released_ids.remove(packet_id)  # mostly the first

    def leave_account(self) -> None:
        """Subtract all messages from the account: the session ended."""
        for entry in self._entries.values():
            self._count(-entry.size_bytes)

    def release_in_order(self, packet_id: int) -> bool:
        """Note the PUBREL of a message; return whether the message is the next to be routed.

        It is not if earlier released messages still wait, or if the PUBREL is a repeat.
        """
        entry = self._entries[packet_id]
        if entry.is_released:  # a repeated PUBREL
            return False
        entry.is_released = True
        self.released_ids.append(packet_id)
        return len(self.released_ids) == 1

    def is_released(self, packet_id: int) -> bool:
        """Return whether the message of ``packet_id`` has its PUBREL, and waits for its body or for
        room."""
        entry = self._entries.get(packet_id)
        return entry is not None and entry.is_released

    def next_offsets_to_read(self) -> list[int]:
        """Return the log offsets of the bodies to read next; [] if none, or some are being read."""
        if self.requested_offsets:
            return []
        size_bytes = self.size_bytes
        for packet_id in self.released_ids.items():
            entry = self._entries[packet_id]
            if entry.message is None and not entry.is_removed:
                size_bytes += entry.size_bytes
                if self.requested_offsets and size_bytes > self.bytes_max:
                    break
                self.requested_offsets.append(entry.offset)
                if len(self.requested_offsets) >= _BODIES_AT_ONCE_MAX:
                    break
        return self.requested_offsets

    def supply(self, bodies: dict[int, Message]) -> int:
        """Take the bodies that were requested, by log offset; return how many are missing."""
        requested = set(self.requested_offsets)
        self.requested_offsets = []
        gone = 0
        for packet_id in self.released_ids.items():
            entry = self._entries[packet_id]
            if entry.message is None and entry.offset in requested:
                message = bodies.get(entry.offset)
                if message is None:
                    entry.is_removed = True
                    gone += 1
                else:
                    entry.message = message
                    self.size_bytes += entry.size_bytes
        return gone

    def on_disconnect(self) -> None:
        """Forget the PUBRELs, and release bodies that the log has: the connection ended."""
        self.requested_offsets = []
        self.released_ids.clear()
        for entry in self._entries.values():
            entry.is_released = False
            if entry.offset != NOT_IN_LOG:
                self._release_body(entry)

    def lowest_offset(self) -> int:
        """Return the lowest log offset that these messages need, or -1."""
        lowest = -1
        for entry in self._entries.values():
            if entry.offset >= 0 and (lowest < 0 or entry.offset < lowest):
                lowest = entry.offset
        return lowest

    def snapshot(self) -> list[UnreleasedEntry]:
        """Return the entries to store: those whose messages are in the log."""
        return [
            (packet_id, entry.offset, entry.size_bytes)
            for packet_id, entry in self._entries.items()
            if entry.offset >= 0
        ]

    def restore(self, entries: list[UnreleasedEntry]) -> None:
        """Add ``entries`` from the store; their bodies stay in the log."""
        for packet_id, offset, size_bytes in entries:
            self._entries[packet_id] = UnreleasedMessage(None, offset, size_bytes)
            self._count(size_bytes)

    def _count(self, delta_bytes: int) -> None:
        if self._account is not None:
            self._account.count_unreleased(delta_bytes)

    def _release_body(self, entry: UnreleasedMessage) -> None:
        if entry.message is not None:
            self.size_bytes -= entry.size_bytes
            entry.message = None
