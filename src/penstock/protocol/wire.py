"""The data types of MQTT (v5 §1.5): decoding from bytes, and appending to a BytesWriter.

A `Reader` decodes values of one packet and never reads beyond its end; it raises
RemoteProtocolError for malformed bytes. The `append_` functions raise LocalProtocolError for a
value that does not fit its type.
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64, mypyc_attr

from penstock.errors import LocalProtocolError, RemoteProtocolError
from penstock.protocol.reasons import MALFORMED_PACKET

TWO_BYTE_MAX: Final = 0xFFFF
FOUR_BYTE_MAX: Final = 0xFFFFFFFF
VARINT_MAX: Final = 268_435_455
# v3.1 §2.2: "Topic name has an upper length limit of 32,767 characters."
V31_TOPIC_CHARACTERS_MAX: Final = 32_767


def text_of(raw: bytes) -> str:
    """Decode a UTF-8 string; a byte order mark is a character like any other [MQTT-1.5.4-3].

    Raises:
        RemoteProtocolError: the bytes are no UTF-8, or have a character that MQTT forbids.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        # [MQTT-1.5.4-1], v3.1.1 [MQTT-1.5.3-1]; Python's decoder refuses surrogates too.
        raise RemoteProtocolError(MALFORMED_PACKET, "a string is not well-formed UTF-8") from None
    if "\0" in text:  # [MQTT-1.5.4-2], v3.1.1 [MQTT-1.5.3-2]
        raise RemoteProtocolError(MALFORMED_PACKET, "a string contains U+0000")
    return text


def bytes_of(text: str) -> bytes:
    """Encode a string in UTF-8.

    Raises:
        LocalProtocolError: the string has a character that MQTT forbids, or over 65,535 bytes.
    """
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raise LocalProtocolError(MALFORMED_PACKET, "a string contains a surrogate") from None
    if "\0" in text:
        raise LocalProtocolError(MALFORMED_PACKET, "a string contains U+0000")
    if len(raw) > TWO_BYTE_MAX:
        raise LocalProtocolError(MALFORMED_PACKET, "a string is longer than 65535 bytes")
    return raw


@mypyc_attr(acyclic=True)
@final
class Reader:
    """Decodes values from data[position:end]; each method advances `position` past its value."""

    def __init__(self, data: bytes, position: i64, end: i64) -> None:
        self.data = data
        self.position: i64 = position
        self.end: i64 = end

    def at_end(self) -> bool:
        """Return whether all bytes have been read."""
        return self.position >= self.end

    def byte(self) -> int:
        """Read a one-byte integer.

        Raises:
            RemoteProtocolError: 0x81, the packet ends too early.
        """
        position = self.position
        if position >= self.end:
            raise RemoteProtocolError(MALFORMED_PACKET, "the packet ends too early")
        self.position = position + 1
        return self.data[position]

    def two_bytes(self) -> int:
        """Read a two-byte integer, big-endian.

        Raises:
            RemoteProtocolError: 0x81, the packet ends too early.
        """
        position = self.position
        if position + 2 > self.end:
            raise RemoteProtocolError(MALFORMED_PACKET, "the packet ends too early")
        self.position = position + 2
        return self.data[position] << 8 | self.data[position + 1]

    def four_bytes(self) -> int:
        """Read a four-byte integer, big-endian."""
        high = self.two_bytes()
        return high << 16 | self.two_bytes()

    def varint(self) -> int:
        """Read a variable byte integer of one to four bytes (v5 §1.5.5).

        Raises:
            RemoteProtocolError: 0x81, it is longer than needed, has over four bytes, or is cut off.
        """
        value = 0
        shift = 0
        while True:
            digit = self.byte()
            value |= (digit & 0x7F) << shift
            if digit < 0x80:
                break
            shift += 7
            if shift > 21:
                raise RemoteProtocolError(
                    MALFORMED_PACKET, "a variable byte integer has over four bytes"
                )
        if digit == 0 and shift > 0:  # [MQTT-1.5.5-1]
            raise RemoteProtocolError(
                MALFORMED_PACKET, "a variable byte integer is longer than needed"
            )
        return value

    def binary(self) -> bytes:
        """Read binary data: a two-byte length and the bytes (v5 §1.5.6).

        Raises:
            RemoteProtocolError: 0x81, the length points behind the packet's end.
        """
        length = self.two_bytes()
        start = self.position
        stop = start + length
        if stop > self.end:
            raise RemoteProtocolError(
                MALFORMED_PACKET, "a length points behind the end of the packet"
            )
        self.position = stop
        return self.data[start:stop]

    def string(self) -> str:
        """Read a string: a two-byte length and UTF-8 (v5 §1.5.4)."""
        return text_of(self.binary())

    def rest(self) -> bytes:
        """Read all remaining bytes."""
        start = self.position
        self.position = self.end
        return self.data[start : self.end]


def append_two_bytes(out: BytesWriter, value: int) -> None:
    """Append a two-byte integer.

    Raises:
        LocalProtocolError: the value does not fit.
    """
    if value < 0 or value > TWO_BYTE_MAX:
        raise LocalProtocolError(MALFORMED_PACKET, f"{value} does not fit into two bytes")
    out.append(value >> 8)
    out.append(value & 0xFF)


def append_four_bytes(out: BytesWriter, value: int) -> None:
    """Append a four-byte integer.

    Raises:
        LocalProtocolError: the value does not fit.
    """
    if value < 0 or value > FOUR_BYTE_MAX:
        raise LocalProtocolError(MALFORMED_PACKET, f"{value} does not fit into four bytes")
    append_two_bytes(out, value >> 16)
    append_two_bytes(out, value & 0xFFFF)


def append_varint(out: BytesWriter, value: int) -> None:
    """Append a variable byte integer in as few bytes as it needs [MQTT-1.5.5-1].

    Raises:
        LocalProtocolError: the value is negative, or above 268,435,455.
    """
    if value < 0 or value > VARINT_MAX:
        raise LocalProtocolError(
            MALFORMED_PACKET, f"{value} does not fit into a variable byte integer"
        )
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def append_binary(out: BytesWriter, value: bytes) -> None:
    """Append a two-byte length and the bytes.

    Raises:
        LocalProtocolError: there are more than 65,535 bytes.
    """
    if len(value) > TWO_BYTE_MAX:
        raise LocalProtocolError(MALFORMED_PACKET, "binary data is longer than 65535 bytes")
    append_two_bytes(out, len(value))
    out.write(value)


def append_string(out: BytesWriter, value: str) -> None:
    """Append a two-byte length and the string in UTF-8."""
    append_binary(out, bytes_of(value))
