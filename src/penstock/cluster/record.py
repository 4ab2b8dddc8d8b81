"""A record of the replicated log as bytes, and the chain of checksums that runs through the log.

::

    0        4      5      6        10         18          22         26
    ┌────────┬──────┬──────┬────────┬──────────┬───────────┬──────────┬──────
    │ "PSR"0 │format│ kind │ term   │ number   │ checksum  │ checksum │ body
    │        │      │      │        │          │ of the    │ of all   │
    │        │      │      │        │          │ one before│ but this │
    └────────┴──────┴──────┴────────┴──────────┴───────────┴──────────┴──────   little-endian

Kinds: a *claim* says who writes from here on, a *commit* what changed. A commit that is too large
for one entry is several records: its *first* piece, *middle* ones and its *last*. A writer that
fails between them leaves pieces without a last one, which count for nothing: a first piece, a
commit and a claim each begin anew.

Why a chain. One flipped bit in a block file of one JetStream node made a third of the records
vanish from its answers while it led, without a word (docs/decisions/cluster.md). A reader that
compares each record's ``before`` with the checksum of the record that it read last sees a hole, and
an entry of somebody else, whatever the server says.
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
KINDS: Final = (CLAIM, COMMIT, FIRST_PART, MIDDLE_PART, LAST_PART)

NO_CHECKSUM: Final = 0
"""The checksum before the first record of a log."""

FORMAT: Final = 1

_MAGIC: Final = b"PSR\0"
_HEAD: Final = Struct("<4sBBIQI")
_CHECKSUM: Final = Struct("<I")
HEAD_BYTES: Final = _HEAD.size + _CHECKSUM.size


class RecordDamaged(StoreFormatError):
    """The bytes of an entry are no record, or not the ones that were written."""


class RecordNewer(StoreFormatError):
    """A later Penstock wrote an entry. Its head is as it always was; ``term`` is in it."""

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
        number: counts the records of a term from 0 on: an entry with the same term and number was
            written by the same attempt to append.
        before: checksum of the record before it in the log.
        checksum: its own.
        body: its content, by kind.
    """

    kind: int
    term: int
    number: int
    before: int
    checksum: int
    body: bytes


class Claim(msgspec.Struct, frozen=True):
    """The body of a claim.

    Attributes:
        node: name of the member that writes from here on.
        epoch: epoch of the view on which it claimed; empty for an empty view.
        address: HOST:PORT at which clients reach it.
        stream_address: HOST:PORT of its stream service; empty if it has none.
        version: its version of Penstock.
        process: drawn by each start of a member: two that were given the same name by mistake
            do not take one another's claims for their own.
    """

    node: str
    epoch: str = ""
    address: str = ""
    stream_address: str = ""
    version: str = ""
    process: str = ""


def encode_record(kind: int, term: int, number: int, before: int, body: bytes) -> bytes:
    """Return a record as bytes; the last four of its head are its checksum."""
    head = _HEAD.pack(_MAGIC, FORMAT, kind, term, number, before)
    return b"".join((head, _CHECKSUM.pack(zlib.crc32(body, zlib.crc32(head))), body))


def checksum_of(data: bytes) -> int:
    """Return the checksum in a record's bytes; it is not compared."""
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    return int(checksum)


def decode_record(data: bytes) -> Record:
    """Return the record of ``data``.

    Raises:
        RecordDamaged: the bytes are not those of a record, or have changed.
        RecordNewer: a later Penstock wrote it.
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
    """Return the body of a claim."""
    return _encode_claim(claim)


def decode_claim(body: bytes) -> Claim:
    """Return the claim in ``body``.

    Raises:
        RecordDamaged: there is none.
    """
    try:
        return _decode_claim(body)
    except msgspec.MsgspecError as error:
        raise RecordDamaged(f"a claim cannot be decoded: {error}") from error


class Position(NamedTuple):
    """The place in the log up to which a view has come.

    Attributes:
        sequence: the last entry that is in it; 0 before the first.
        term: the term of the last claim in it.
        number: the number of that entry's record.
        checksum: the checksum of that record.
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
    """Return the position of ``data``.

    Raises:
        StoreFormatError: it is none.
    """
    if len(data) != _POSITION.size:
        raise StoreFormatError("the view's position in the replicated log cannot be understood")
    return Position(*_POSITION.unpack(data))
