"""Pages: the parts of a session's progress that have keys of their own.

::

      session number                   queue head, sequences
      session number, 0 ··             pages of the window (``engine.session.window``)
      session number, 2^63 ··          pages of inbound packet ids (``engine.session.inbound``)

All of them are in one column family, so that one scan reads a session and one range deletion
removes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.engine.values.records import SessionState
from penstock.store import records
from penstock.store.chunk import decode_key, encode_key

_INBOUND: Final = 1 << 63


def page_values(progress: SessionState) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield the key and the value of each page in ``progress``; the value None deletes the page."""
    number = encode_key(progress.number)
    for page in progress.pages:
        assert page.number < _INBOUND, "pages of the window come before inbound ones"
        key = number + encode_key(page.number)
        yield key, records.encode_page(page) if page.entries else None
    for place, bits in progress.inbound:
        key = number + encode_key(_INBOUND + place)
        yield key, records.encode_inbound(bits) if bits else None


def add_page(progress: SessionState, key: bytes, value: bytes) -> None:
    """Decode the page stored as ``value`` under ``key``, and add it to ``progress``."""
    place = decode_key(key[8:])
    if place < _INBOUND:
        progress.pages.append(records.decode_page(place, value))
    else:
        progress.inbound.append((place - _INBOUND, records.decode_inbound(value)))
