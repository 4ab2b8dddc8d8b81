"""Does a promise leave the broker before what it promises is synced? Read from a system call trace.

For every connection the trace has both directions, so the packets themselves tell what belongs
together, and nothing that the broker says of itself is believed:

============================ ==========================================================
sent to a client             what must be synced before
============================ ==========================================================
PUBACK, PUBREC               the payload of the PUBLISH with that packet identifier
PUBLISH with QoS 1 or 2      its payload (its packet identifier lies in the same commit)
PUBREL, PUBCOMP              a write begun after the PUBREC or PUBREL it answers was read
============================ ==========================================================

A write is synced when an fdatasync or fsync of the same file began after it finished, and finished
itself. The files are RocksDB's write-ahead logs (``store/*.log``): blocks of 32 KiB of records,
each with a header of 7 bytes (checksum 4, length 2, type 1: whole, first, middle, last).
"""

import bisect
import re
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from penstock.protocol.decode import PACKET_SIZE_BYTES_MAX, Decoder
from penstock.protocol.packets import (
    Connect,
    Packet,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
)
from tests.support.system_calls import Call

WAL_BLOCK_BYTES: Final = 32_768
WAL_HEADER_BYTES: Final = 7
WAL_WHOLE: Final = 1
WAL_FIRST: Final = 2
WAL_MIDDLE: Final = 3
WAL_LAST: Final = 4

_WAL: Final = re.compile(r".*/store/\d+\.log")
_SOCKET: Final = re.compile(r"TCP(?:v6)?:\[(.*)\]")
_SYNCS: Final = ("fdatasync", "fsync")
_WRITES: Final = ("write", "pwrite64", "writev", "sendto", "sendmsg")
_READS: Final = ("read", "readv", "recvfrom", "recvmsg")


class Violation(NamedTuple):
    """A packet that left too early; ``line`` is where in the trace."""

    line: int
    packet: str
    because: str


@final
class Verdict:
    """What the check found."""

    def __init__(self) -> None:
        self.checked: dict[str, int] = {}  # packets checked, by kind
        self.violations: list[Violation] = []


class _Record(NamedTuple):
    """One record of a write-ahead log: written at these lines, synced at that one (or None)."""

    payload: bytes
    started: int
    finished: int
    synced: int | None


def check(calls: list[Call]) -> Verdict:
    """Check every packet of the trace that promises something."""
    records = _synced_records(calls)
    verdict = Verdict()
    connections: dict[str, _Connection] = {}
    for call in calls:
        socket = _SOCKET.match(call.target)
        if socket is None or not call.data:
            continue
        connection = connections.setdefault(socket.group(1), _Connection(records))
        if call.name in _READS:
            connection.received(call)
        elif call.name in _WRITES:
            for packet, because in connection.sent(call):
                kind = type(packet).__name__
                verdict.checked[kind] = verdict.checked.get(kind, 0) + 1
                if because:
                    verdict.violations.append(Violation(call.started, repr(packet), because))
    return verdict


# -- the sockets -----------------------------------------------------------------------


@final
class _Connection:
    """One client's connection, as the trace shows it."""

    def __init__(self, records: list[_Record]) -> None:
        self._records = records
        self._from_client = Decoder(PACKET_SIZE_BYTES_MAX)
        self._to_client: Decoder | None = None
        self._published: dict[int, bytes] = {}  # payloads by packet identifier
        self._answered: dict[tuple[type[Packet], int], int] = {}  # line of the latest

    def received(self, call: Call) -> None:
        """The broker read bytes of the client."""
        self._from_client.feed(call.data)
        while (packet := self._from_client.next_packet()) is not None:
            if isinstance(packet, Connect):
                self._to_client = Decoder(PACKET_SIZE_BYTES_MAX, packet.version, server=False)
            elif isinstance(packet, Publish) and packet.qos > 0:
                self._published[packet.packet_id] = packet.payload
            elif isinstance(packet, (Pubrec, Pubrel)):
                self._answered[type(packet), packet.packet_id] = call.finished

    def sent(self, call: Call) -> Iterator[tuple[Packet, str]]:
        """The broker wrote bytes: each packet that promises, and what is wrong with it or ""."""
        assert self._to_client is not None, f"line {call.started}: sent before CONNECT"
        self._to_client.feed(call.data)
        while (packet := self._to_client.next_packet()) is not None:
            if isinstance(packet, (Puback, Pubrec)):
                payload = self._published[packet.packet_id]
                yield packet, _unsynced_payload(self._records, payload, call.started)
            elif isinstance(packet, Publish) and packet.qos > 0:
                yield packet, _unsynced_payload(self._records, packet.payload, call.started)
            elif isinstance(packet, Pubcomp):
                read = self._answered[Pubrel, packet.packet_id]
                yield packet, _unsynced_since(self._records, read, call.started)
            elif isinstance(packet, Pubrel):
                read = self._answered[Pubrec, packet.packet_id]
                yield packet, _unsynced_since(self._records, read, call.started)


def _unsynced_payload(records: list[_Record], payload: bytes, sent: int) -> str:
    assert payload, "a test of this kind needs payloads that tell messages apart"
    written = False
    for record in records:
        if record.finished < sent and payload in record.payload:
            written = True
            if record.synced is not None and record.synced < sent:
                return ""
    return "its message was written, not synced" if written else "its message was not written"


def _unsynced_since(records: list[_Record], read: int, sent: int) -> str:
    for record in records:
        if read < record.started and record.synced is not None and record.synced < sent:
            return ""
    return "nothing was written and synced since the packet it answers"


# -- the write-ahead logs --------------------------------------------------------------


def _synced_records(calls: list[Call]) -> list[_Record]:
    writes: dict[str, list[Call]] = {}
    syncs: dict[str, list[Call]] = {}
    for call in calls:
        if _WAL.fullmatch(call.target) is None:
            continue
        if call.name in _SYNCS:
            syncs.setdefault(call.target, []).append(call)
        elif call.name in _WRITES:
            writes.setdefault(call.target, []).append(call)
    records: list[_Record] = []
    for path, written in writes.items():
        for payload, first, last in _records_of(written):
            synced = _sync_after(syncs.get(path, []), last.finished)
            records.append(_Record(payload, first.started, last.finished, synced))
    return records


def _sync_after(syncs: list[Call], written: int) -> int | None:
    """The line at which the first sync that began after ``written`` had finished."""
    return min((sync.finished for sync in syncs if sync.started > written), default=None)


def _records_of(writes: list[Call]) -> Iterator[tuple[bytes, Call, Call]]:
    """Each record of one log with the writes that hold its first and its last byte."""
    content = b"".join(call.data for call in writes)
    ends: list[int] = []
    for call in writes:
        ends.append((ends[-1] if ends else 0) + len(call.data))
    position = 0
    pieces: list[bytes] = []
    first = 0
    while position + WAL_HEADER_BYTES <= len(content):
        left_bytes = WAL_BLOCK_BYTES - position % WAL_BLOCK_BYTES
        if left_bytes < WAL_HEADER_BYTES:  # too little for a header: padding
            position += left_bytes
            continue
        length = int.from_bytes(content[position + 4 : position + 6], "little")
        kind = content[position + 6]
        assert WAL_WHOLE <= kind <= WAL_LAST, f"a record of type {kind} at {position}"
        if kind in (WAL_WHOLE, WAL_FIRST):
            pieces = []
            first = position
        end = position + WAL_HEADER_BYTES + length
        if end > len(content):
            return  # torn by the end of the trace
        pieces.append(content[position + WAL_HEADER_BYTES : end])
        position = end
        if kind in (WAL_WHOLE, WAL_LAST):
            opening = writes[bisect.bisect_right(ends, first)]
            closing = writes[bisect.bisect_left(ends, end)]
            yield b"".join(pieces), opening, closing
