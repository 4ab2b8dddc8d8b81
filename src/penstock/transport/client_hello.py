"""Whether a ClientHello has arrived whole (RFC 8446 §4.1.2, §5.1), without taking it.

::

      record:     type 22 │ version 2 │ length 2 │ fragment ...    (5 bytes before each fragment)
      fragments:  message type 1 │ length 3 │ ClientHello ...      (over one record or several)
"""

from __future__ import annotations

from typing import Final

HELLO_BYTES_MAX: Final = 32_768
"""What is larger is refused: no client has so much to say."""

_RECORDS_MAX: Final = 64
_RECORD_HEADER: Final = 5
_MESSAGE_HEADER: Final = 4
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1


def bytes_needed(arrived: bytes) -> int:
    """Return how many bytes must have arrived to say more.

    Args:
        arrived: the first bytes of a connection.

    Returns:
        More than ``len(arrived)`` while it begins a ClientHello and is not all of it, so far as is
        known; ``len(arrived)`` or less where it is whole, or none.

    Raises:
        ConnectionRefusedError: it is too large, or in too many records: each costs a look at those
            before it, and the handshake of what is not whole would not take its turn.
    """
    fragments = b""
    position = 0
    for _ in range(_RECORDS_MAX):
        header = arrived[position : position + _RECORD_HEADER]
        if header and header[0] != _HANDSHAKE:
            return position
        if len(header) < _RECORD_HEADER:
            return position + _RECORD_HEADER
        end = position + _RECORD_HEADER + int.from_bytes(header[3:])
        if end > HELLO_BYTES_MAX:
            break
        if len(arrived) < end:
            return end
        fragments += arrived[position + _RECORD_HEADER : end]
        if fragments and fragments[0] != _CLIENT_HELLO:
            return end
        if len(fragments) >= _MESSAGE_HEADER:
            length = _MESSAGE_HEADER + int.from_bytes(fragments[1:_MESSAGE_HEADER])
            if len(fragments) >= length:
                return end
        position = end
    raise ConnectionRefusedError("its ClientHello has no end")
