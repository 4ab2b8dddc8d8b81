"""QoS 2 messages of MQTT 3.1 clients that wait for their PUBREL (v3.1 §3.3, §3.6).

Version 3.1 says "do not make it available to interested parties yet" where the later versions let
a server choose: messages of later versions are routed at once, and only their packet identifier
waits for PUBREL (``inbound``).

::

      PUBLISH ─▶ held ── PUBREL ─▶ in line ── its body is here, and there is room ─▶ routed
                  │                   ╰─ its body is in the log only ─▶ asked for ─╯
                  ╰─ await_rel_timeout, end of the session ─▶ dropped, counted

A waiting message keeps the log from being trimmed, so its timeout goes on while the client is
disconnected, and all waiting messages together have a limit in bytes (``budget``).

A stored session's message is in the log from the beginning, as an internal one, written by
the commit that releases PUBREC; when it is routed, it is appended once more, in the order of the
PUBRELs, by the commit that forgets the identifier. A session that is not stored needs the log only
for bodies that memory has no room for. Memory has at most ``bytes_max`` of bodies, none while the
client is disconnected, and a body that does not fit only when its message is the next to leave.

Messages leave in the order of their PUBRELs. The line ends with the connection: the client
sends PUBREL again until it has PUBCOMP.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.batch.records import UnreleasedEntry
from penstock.engine.fifo import Fifo
from penstock.engine.memory.accounts import Account
from penstock.engine.message import NOT_IN_LOG, Message

_BODIES_AT_ONCE_MAX: Final = 256  # asked from the log in one step


@final
class UnreleasedMessage:
    """One message that waits for its PUBREL; ``message`` is None while only the log has it."""

    def __init__(self, message: Message | None, offset: int, size_bytes: int) -> None:
        self.message = message
        self.offset = offset
        self.size_bytes = size_bytes
        self.in_line = False  # its PUBREL came on this connection
        self.gone = False  # the log does not have it any more


@final
class AwaitingRelease:
    """The messages of one session that wait for PUBREL, by packet identifier.

    Args:
        bytes_max: limit of the bodies in memory, in bytes.
        account: the account in which all of them count.
    """

    def __init__(self, bytes_max: int, account: Account | None = None) -> None:
        self._account = account
        self.size_bytes = 0  # bytes of the bodies in memory
        self.bytes_max = bytes_max
        self.line: Fifo[int] = Fifo()  # packet identifiers whose PUBREL came
        self.wanted: list[int] = []  # log offsets of bodies asked for
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
        """Add ``message``: its body stays in memory if there is room, else it must be in the
        log."""
        size_bytes = message.size_bytes()
        held = UnreleasedMessage(None, message.offset, size_bytes)
        if message.offset == NOT_IN_LOG or self.has_room(size_bytes):
            held.message = message
            self.size_bytes += size_bytes
        self._entries[packet_id] = held
        self._count(size_bytes)

    def forget(self, packet_id: int) -> None:
        """Remove the message of ``packet_id``, if there is one: it was routed or dropped."""
        held = self._entries.get(packet_id)
        if held is None:
            return
        del self._entries[packet_id]
        self._count(-held.size_bytes)
        self._let_go(held)
        if held.in_line:
            self.line.remove(packet_id)  # mostly the first

    def ended(self) -> None:
        """Release the account: the session ended, and all messages with it."""
        for held in self._entries.values():
            self._count(-held.size_bytes)

    def release_in_order(self, packet_id: int) -> bool:
        """Append a message whose PUBREL came to the line; return whether it is the first and may
        be routed."""
        held = self._entries[packet_id]
        if held.in_line:  # the client repeats itself
            return False
        held.in_line = True
        self.line.append(packet_id)
        return len(self.line) == 1

    def in_line(self, packet_id: int) -> bool:
        """Return whether the PUBREL of this message came, and it waits for its body or for room."""
        held = self._entries.get(packet_id)
        return held is not None and held.in_line

    def ask(self) -> list[int]:
        """Return the log offsets of the next bodies to read; none while an answer is due."""
        if self.wanted:
            return []
        size_bytes = self.size_bytes
        for packet_id in self.line.items():
            held = self._entries[packet_id]
            if held.message is None and not held.gone:
                size_bytes += held.size_bytes
                if self.wanted and size_bytes > self.bytes_max:
                    break
                self.wanted.append(held.offset)
                if len(self.wanted) >= _BODIES_AT_ONCE_MAX:
                    break
        return self.wanted

    def supply(self, bodies: dict[int, Message]) -> int:
        """Take bodies from the log, by offset, for what ``ask`` returned; return how many are
        gone."""
        asked = set(self.wanted)
        self.wanted = []
        gone = 0
        for packet_id in self.line.items():
            held = self._entries[packet_id]
            if held.message is None and held.offset in asked:
                message = bodies.get(held.offset)
                if message is None:
                    held.gone = True
                    gone += 1
                else:
                    held.message = message
                    self.size_bytes += held.size_bytes
        return gone

    def rest(self) -> None:
        """Clear the line and release bodies that the log has: the connection ended."""
        self.wanted = []
        self.line.clear()
        for held in self._entries.values():
            held.in_line = False
            if held.offset != NOT_IN_LOG:
                self._let_go(held)

    def lowest_offset(self) -> int:
        """Return the lowest log offset that is needed, or -1."""
        lowest = -1
        for held in self._entries.values():
            if held.offset >= 0 and (lowest < 0 or held.offset < lowest):
                lowest = held.offset
        return lowest

    def snapshot(self) -> list[UnreleasedEntry]:
        """Return the entries that the log has, for the store."""
        return [
            (packet_id, held.offset, held.size_bytes)
            for packet_id, held in self._entries.items()
            if held.offset >= 0
        ]

    def restore(self, entries: list[UnreleasedEntry]) -> None:
        """Add the entries of the store; their bodies stay in the log."""
        for packet_id, offset, size_bytes in entries:
            self._entries[packet_id] = UnreleasedMessage(None, offset, size_bytes)
            self._count(size_bytes)

    def _count(self, grows_bytes: int) -> None:
        if self._account is not None:
            self._account.count_unreleased(grows_bytes)

    def _let_go(self, held: UnreleasedMessage) -> None:
        if held.message is not None:
            self.size_bytes -= held.size_bytes
            held.message = None
