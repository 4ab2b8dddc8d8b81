"""The chain: a running digest over the chunks of the log, which each chunk carries along.

::

      chunk n      Arrow message ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ │ link: 01, digest(n - 1)
      content(n) = BLAKE3(Arrow message)
      digest(n)  = BLAKE3(digest(n - 1) │ base offset, 8 bytes, big-endian │ content(n))

The link is behind the message, so copies, backups, archives of whole chunks and repairs carry it
without knowing of it, and a commit writes no further key. An Arrow message has a length that is a
multiple of 8, and a chunk with a link has not: chunks of older versions, which have no link, are
told apart by that. They count as if nothing were before them, so a chain begins at the first chunk
with a link, and includes the one before.

Two steps, so that the chain can be checked without the messages: who has digest(n), and base offset
and content of each later chunk, 40 bytes each, can tell whether a later digest continues it.

Why BLAKE3: it has no key, nobody can find two contents with one digest, and it takes the fewest
instructions of all such functions that were counted (docs/decisions/histories.md). It is a tree, so
a part of a chunk can be proven without the rest. The digest of a chunk is computed by the thread
that writes it, after the write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from blake3 import blake3

DIGEST_BYTES: Final = 32
NO_DIGEST: Final = bytes(DIGEST_BYTES)
"""The digest before the first chunk of a log, and before a chunk of an older version."""

LINK_BYTES: Final = 1 + DIGEST_BYTES

_LINK: Final = b"\x01"  # the version of the link
_ALIGNMENT: Final = 8  # of an Arrow message


def encode_link(before: bytes) -> bytes:
    """Return the link of a chunk, to be appended to its Arrow message; ``before`` is the digest of
    the chunk before it."""
    return _LINK + before


def read_link(chunk: bytes) -> bytes | None:
    """Return the digest of the chunk before ``chunk``; None where an older version wrote
    ``chunk``."""
    if len(chunk) % _ALIGNMENT != LINK_BYTES % _ALIGNMENT or chunk[-LINK_BYTES:][:1] != _LINK:
        return None
    return chunk[-DIGEST_BYTES:]


def digest_of(base_offset: int, chunk: bytes) -> bytes:
    """Return the digest of a stored chunk, whose first row has ``base_offset``."""
    before = read_link(chunk)
    message = memoryview(chunk)[: len(chunk) - (LINK_BYTES if before is not None else 0)]
    return Digester().digest_of_parts(base_offset, before or NO_DIGEST, [message])


@final
class Digester:
    """Computes the digests of chunks, in one thread.

    It has one hasher for all: making another takes more instructions than a small chunk does.
    """

    def __init__(self) -> None:
        self._hasher = blake3()

    def digest_of_parts(
        self, base_offset: int, before: bytes, message: Iterable[bytes | memoryview]
    ) -> bytes:
        """Return the digest of a chunk.

        Args:
            base_offset: offset of its first row.
            before: digest of the chunk before it.
            message: its Arrow message, in parts.
        """
        hasher = self._hasher
        hasher.reset()
        for part in message:
            hasher.update(part)
        content = hasher.digest()
        hasher.reset()
        hasher.update(before + base_offset.to_bytes(8, "big") + content)
        return hasher.digest()
