"""Pages: the parts of a session's progress that have keys of their own.

::

      session number                   queue head, sequences
      session number, 0 ··             pages of the window (``engine.session.window``)
      session number, 2^63 ··          pages of inbound packet ids (``engine.session.inbound``)

All of them are in one column family, so that one scan reads a session and one range deletion
removes it. This module is compiled: a commit encodes a few pages for each session in it.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.engine.batch.records import SessionState, WindowPage
from penstock.store import records
from penstock.store.chunk import KEY_LENGTH_BYTES, decode_key

_INBOUND: Final = 1 << 63
_PROGRESS_LAYOUT: Final = 2
_encode = msgspec.msgpack.Encoder().encode


def encode_progress(progress: SessionState) -> bytes:
    """Return the stored form of a session's progress, without its segments and pages."""
    return _encode(
        (
            _PROGRESS_LAYOUT,
            progress.queue_head,
            progress.next_sequence,
            progress.lanes,
            progress.unreleased,
            progress.sent_below,
            progress.window_len,
            progress.next_place,
            progress.window_checksum,
            progress.inbound_len,
            progress.inbound_checksum,
        )
    )


def encode_page(page: WindowPage) -> bytes:
    """Return the stored form of a page of a window."""
    return _encode((records.LAYOUT, page.entries))


def encode_inbound(bits: int) -> bytes:
    """Return the stored form of a page of inbound packet identifiers, a bit set."""
    return _encode((records.LAYOUT, bits))


def page_values(progress: SessionState) -> list[tuple[bytes, bytes | None]]:
    """Return the key and the value of each page in ``progress``; the value None deletes the
    page."""
    values: list[tuple[bytes, bytes | None]] = []
    number = progress.number.to_bytes(KEY_LENGTH_BYTES, "big")
    for page in progress.pages:
        assert page.number < _INBOUND, "pages of the window come before inbound ones"
        key = number + page.number.to_bytes(KEY_LENGTH_BYTES, "big")
        values.append((key, encode_page(page) if page.entries else None))
    for place, bits in progress.inbound:
        key = number + (_INBOUND + place).to_bytes(KEY_LENGTH_BYTES, "big")
        values.append((key, encode_inbound(bits) if bits else None))
    return values


def add_page(progress: SessionState, key: bytes, value: bytes) -> None:
    """Decode the page stored as ``value`` under ``key``, and add it to ``progress``."""
    place = decode_key(key[8:])
    if place < _INBOUND:
        progress.pages.append(records.decode_page(place, value))
    else:
        progress.inbound.append((place - _INBOUND, records.decode_inbound(value)))
