"""Tells whether a whole ClientHello has arrived (RFC 8446 §4.1.2, §5.1), by peeked bytes.

::

      record:     type 22 │ version 2 │ length 2 │ fragment ...    (5 bytes before each fragment)
      fragments:  message type 1 │ length 3 │ ClientHello ...      (over one record or several)
"""

from __future__ import annotations

from typing import Final

HELLO_BYTES_MAX: Final = 32_768
"""Largest ClientHello in bytes, with its record headers; no client needs so much."""

_RECORDS_MAX: Final = 64
_RECORD_HEADER: Final = 5
_MESSAGE_HEADER: Final = 4
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1

_SUPPORTED_GROUPS: Final = 10
_KEY_SHARE: Final = 51
_FINITE_FIELDS: Final = 0x01  # first byte of their groups (RFC 7919)
_CURVES: Final = frozenset({0x17, 0x18, 0x19, 0x1D, 0x1E})  # P-256, P-384, P-521, X25519, X448


def bytes_needed(arrived: bytes) -> int:
    """Return the number of bytes that must have arrived before this function is called again.

    Args:
        arrived: the first bytes of a connection.

    Returns:
        More than ``len(arrived)`` while the bytes are the beginning of a ClientHello;
        ``len(arrived)`` or less if the ClientHello is whole, or the bytes are no ClientHello.

    Raises:
        ConnectionRefusedError: the ClientHello is too large, or in too many records, each of which
            costs a parse of the records before it; or it wants keys over finite fields: a key of
            8192 bits costs the event loop a tenth of a second.
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
                if _wants_finite_field(fragments[_MESSAGE_HEADER:length]):
                    raise ConnectionRefusedError("it wants Diffie-Hellman over finite fields")
                return end
        position = end
    raise ConnectionRefusedError("its ClientHello is too large, or in too many records")


def _wants_finite_field(hello: bytes) -> bool:
    """Return whether OpenSSL would agree on a key over a finite field.

    OpenSSL would if such a key is the first key share of a group that it knows, or if the client
    supports such groups and no curve. Python cannot tell OpenSSL to refuse them. A malformed
    ClientHello is left to OpenSSL.
    """
    position = 34  # version, random
    position += 1 + _number(hello, position, 1)  # session id
    position += 2 + _number(hello, position, 2)  # cipher suites
    position += 1 + _number(hello, position, 1)  # compression methods
    position += 2
    while position + 4 <= len(hello):
        kind, length = _number(hello, position, 2), _number(hello, position + 2, 2)
        body = hello[position + 4 : position + 4 + length]
        position += 4 + length
        groups: list[int] = []
        at = 2
        while kind in (_SUPPORTED_GROUPS, _KEY_SHARE) and at + 2 <= len(body):
            groups.append(_number(body, at, 2))
            at += 2 if kind == _SUPPORTED_GROUPS else 4 + _number(body, at + 2, 2)
        known = [group for group in groups if group in _CURVES or group >> 8 == _FINITE_FIELDS]
        candidates = known[:1] if kind == _KEY_SHARE else known
        if candidates and _CURVES.isdisjoint(candidates):
            return True
    return False


def _number(data: bytes, position: int, size: int) -> int:
    return int.from_bytes(data[position : position + size])
