"""Encodes the records of the replicated log; a chain of checksums links them.

::

    0        4      5      6        10         18          22         26
    ┌────────┬──────┬──────┬────────┬──────────┬───────────┬──────────┬──────
    │ "PSR"0 │format│ kind │ term   │ number   │ checksum  │ checksum │ body
    │        │      │      │        │          │ of the    │ of all   │
    │        │      │      │        │          │ one before│ but this │
    └────────┴──────┴──────┴────────┴──────────┴───────────┴──────────┴──────   little-endian

Kinds: a *claim* names the member that writes from here on, a *commit* has the operations of a
batch. A commit that is too large for one entry is several records: its *first* piece, *middle*
pieces and its *last* piece. A writer that fails in between leaves pieces without a last one; they
are ignored when a claim, a commit or a first piece follows. A *genesis* is a claim by which an
operator begins a new history: it follows no record, and views of the history before are replaced.

Why a chain: one flipped bit in a block file of a JetStream node made a third of the records
silently vanish from its answers while it led (docs/decisions/cluster.md). A reader compares each
record's ``previous_checksum`` with the checksum of the last record that it read, and so detects a
gap or a foreign entry, whatever the server reports.
"""

from __future__ import annotations

import zlib
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from penstock.errors import StoreFormatError

CLAIM: Final = 0
COMMIT: Final = 1
FIRST_PART: Final = 2
MIDDLE_PART: Final = 3
LAST_PART: Final = 4
GENESIS: Final = 5
KINDS: Final = (CLAIM, COMMIT, FIRST_PART, MIDDLE_PART, LAST_PART, GENESIS)

NO_CHECKSUM: Final = 0
"""The checksum before the first record of a log."""

FORMAT: Final = 1

_MAGIC: Final = b"PSR\0"
_HEAD: Final = Struct("<4sBBIQI")
_CHECKSUM: Final = Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size


class RecordDamaged(StoreFormatError):
    """The bytes of an entry are no record, or differ from the written ones."""


class RecordNewer(StoreFormatError):
    """A later version of Penstock wrote a record; ``term`` is from its head, which all versions
    share."""

    def __init__(self, version: int, kind: int, term: int, number: int) -> None:
        super().__init__(
            f"record {number} of term {term} of the replicated log has format {version} and kind"
            f" {kind}, which this Penstock does not know: use the version that wrote it"
        )
        self.term = term


class Record(NamedTuple):
    """A record of the log.

    Attributes:
        kind: one of ``KINDS``.
        term: the term of its writer, 1 or more; each claim begins the next.
        number: number of the record in its term, from 0. An entry with the same term and number
            comes from the same attempt to append.
        previous_checksum: checksum of the record before it in the log.
        checksum: checksum of this record.
        body: content of the record, depending on its kind.
    """

    kind: int
    term: int
    number: int
    previous_checksum: int
    checksum: int
    body: bytes


class Claim(msgspec.Struct, frozen=True):
    """The body of a claim or a genesis.

    Attributes:
        node: name of the member that writes from here on.
        epoch: epoch of the member's view at the claim; empty for an empty view.
        address: HOST:PORT at which clients reach the member.
        stream_address: HOST:PORT of its stream service; empty if it has none.
        version: its version of Penstock.
        process: a random value of the member's process, so that two members with the same name by
            mistake do not take each other's claims for their own.
    """

    node: str
    epoch: str = ""
    address: str = ""
    stream_address: str = ""
    version: str = ""
    process: str = ""


def encode_record(kind: int, term: int, number: int, before: int, body: bytes) -> bytes:
    """Return the bytes of a record; the last four bytes of its head are its checksum."""
    head = _HEAD.pack(_MAGIC, FORMAT, kind, term, number, before)
    return b"".join((head, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))), body))


def checksum_of(data: bytes) -> int:
    """Return the checksum in a record's bytes, without verifying it."""
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    return int(checksum)


def decode_record(data: bytes) -> Record:
    """Return the record that ``data`` encodes; verify its checksum.

    Raises:
        RecordDamaged: the bytes are no record, or the checksum is wrong.
        RecordNewer: a later version of Penstock wrote the record.
    """
    if len(data) < HEAD_BYTES or data[:4] != _MAGIC:
        raise RecordDamaged("an entry of the replicated log is no record of Penstock")
    _, version, kind, term, number, before = _HEAD.unpack_from(data)
    body = data[HEAD_BYTES:]
    checksum = checksum_of(data)
    if zlib.crc32(body, zlib.crc32(data[: _HEAD.size])) != checksum:
        raise RecordDamaged(f"record {number} of term {term} is damaged: its checksum is wrong")
    if version != FORMAT or kind not in KINDS:
        raise RecordNewer(version, kind, term, number)
    return Record(kind, term, number, before, checksum, body)


_encode_claim = msgspec.msgpack.Encoder().encode
_decode_claim = msgspec.msgpack.Decoder(Claim).decode


def encode_claim(claim: Claim) -> bytes:
    """Return the body of a claim's record."""
    return _encode_claim(claim)


def decode_claim(body: bytes) -> Claim:
    """Return the claim in the body of a record.

    Raises:
        RecordDamaged: the body is no claim.
    """
    try:
        return _decode_claim(body)
    except msgspec.MsgspecError as error:
        raise RecordDamaged(f"a claim cannot be decoded: {error}") from error


class Position(NamedTuple):
    """A position in the log: the last record that a view has applied or a writer has appended.

    Attributes:
        sequence: sequence of the record's entry; 0 before the first.
        term: term of the last claim up to there.
        number: number of the record in its term.
        checksum: checksum of the record.
    """

    sequence: int = 0
    term: int = 0
    number: int = 0
    checksum: int = NO_CHECKSUM


_POSITION: Final = Struct("<QIQI")


def encode_position(position: Position) -> bytes:
    """Return a position as it is stored in the view."""
    return _POSITION.pack(*position)


def decode_position(data: bytes) -> Position:
    """Return the position that ``data`` encodes.

    Raises:
        StoreFormatError: ``data`` is no position.
    """
    if len(data) != _POSITION.size:
        raise StoreFormatError("the view's position in the replicated log cannot be understood")
    return Position(*_POSITION.unpack(data))


class Former(NamedTuple):
    """A former history of a cluster, up to an entry of its log.

    Attributes:
        epoch: its epoch.
        sequence: sequence of the entry in the log that it had.
        term: term of the entry.
    """

    epoch: str
    sequence: int
    term: int
