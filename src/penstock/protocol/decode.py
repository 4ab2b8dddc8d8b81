"""The decoder: takes bytes as they arrive, and returns whole packets.

    feed(bytes)  ──▶  [ buffer: unread bytes | parts: later reads ]  ──▶  next_packet()

Packets are decoded from `buffer`, beginning at `position`. While a packet is incomplete, later
reads are collected in `parts` and joined to the buffer only when the packet is whole, so each byte
is copied a fixed number of times, however large the packet and small the reads. The decoder stores
at most one packet of the maximum size and one read, and frees the memory of a large packet once it
is decoded; a packet above the maximum size is refused as soon as its length is known. A large
PUBLISH is not joined at all: its payload is assembled as it arrives (`protocol.large_publish`).

    decoding ──protocol error──▶ failed: every further call raises the same error

PUBLISH and acknowledgements without properties are decoded here without a `Reader`, for speed; and
properties that consist of a topic alias only are one object, shared by all packets with that alias.
"""

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from penstock.errors import LocalProtocolError, RemoteProtocolError
from penstock.protocol.decode_body import check_at_end, read_body
from penstock.protocol.decode_connect import read_connect, read_level
from penstock.protocol.fixed_header import check_first_byte, first_byte_verdicts
from penstock.protocol.kinds import (
    BRIDGE_BIT,
    CONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    V5,
    V31,
)
from penstock.protocol.large_publish import (
    FRONT_BYTES_MAX,
    LARGE_BYTES,
    LargePublish,
    payload_begin,
)
from penstock.protocol.packets import Connect, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel
from penstock.protocol.properties import Properties, decode_properties
from penstock.protocol.reasons import (
    MALFORMED_PACKET,
    PACKET_TOO_LARGE,
    PROTOCOL_ERROR,
    TOPIC_NAME_INVALID,
    is_allowed,
)
from penstock.protocol.wire import V31_TOPIC_CHARACTERS_MAX, Reader, text_of

# The largest packet there can be: a remaining length of four bytes (v5 §2.1.4).
PACKET_SIZE_BYTES_MAX: Final = 268_435_460
# A buffer whose packets were all decoded is freed at once if it is longer than this.
_RETAINED_BUFFER_BYTES_MAX: Final = 65_536
# A topic up to this length is cached, because the next PUBLISH often has the same.
CACHED_TOPIC_BYTES_MAX: Final = 256

_TOPIC_ALIAS: Final = 0x23
# The body of a CONNECT up to its protocol level: a name of four or six characters with its length.
_LEVEL_BYTES_MAX: Final = 9


@mypyc_attr(acyclic=True)
@final
class Decoder:
    """Decodes the bytes of one direction of one connection into packets.

    Args:
        max_packet_size_bytes: the largest packet that is accepted.
        version: the protocol level, 3 to 5; 0 on a server, whose decoder takes the level from
            CONNECT.
        server: True if we are the server; decides which packets the peer may send.
        connect_size_bytes_max: the largest CONNECT that is accepted: its sender is not
            authenticated yet. A larger CONNECT is refused once its protocol level has arrived.

    Attributes:
        version: the protocol level; set as soon as the level is decoded, even if the rest of the
            CONNECT is malformed.
        packet_type: the type of the packet that ``next_packet`` returned last.
    """

    def __init__(
        self,
        max_packet_size_bytes: int,
        version: int = 0,
        server: bool = True,
        connect_size_bytes_max: int = PACKET_SIZE_BYTES_MAX,
    ) -> None:
        if version == 0 and not server:
            raise LocalProtocolError(PROTOCOL_ERROR, "a client's decoder needs a version")
        self.version = version
        self.server = server
        self.packet_type: i64 = 0
        self._size_max: i64 = min(max_packet_size_bytes, PACKET_SIZE_BYTES_MAX)
        self._connect_size_max: i64 = min(max_packet_size_bytes, connect_size_bytes_max)
        self._verdicts = first_byte_verdicts(version, server)
        # The protocol error after which nothing is decoded; 0 without one. The exception itself is
        # not stored, because it refers to its frames.
        self._error_reason = 0
        self._error_message = ""
        self._buffer = b""
        self._position: i64 = 0
        self._parts = bytearray()
        self._parts_size: i64 = 0
        # Set if the packet at `position` is a large PUBLISH: the buffer has only its front then.
        self._large: LargePublish | None = None
        # Index of body and end of the packet at `position`, once its fixed header is complete.
        self._body: i64 = 0
        self._end: i64 = 0
        self._is_length_padded = False
        self._topic_bytes = b""
        self._topic = ""
        self._alias: i64 = 0  # the alias in ``_alias_properties``
        self._alias_properties: Properties | None = None

    def feed(self, data: bytes) -> None:
        """Take bytes that arrived; ``next_packet`` must have returned None before.

        Raises:
            RemoteProtocolError: the peer broke the protocol before.
        """
        self._raise_again()
        if self._large is not None:
            taken = self._large.add(data)
            if taken < len(data):
                self._parts += data[taken:]
                self._parts_size += len(data) - taken
        elif self._parts_size == 0 and self._position == len(self._buffer):
            self._buffer = data
            self._position = 0
        else:
            self._parts += data
            self._parts_size += len(data)

    def has_packet(self) -> bool:
        """Return whether the next packet has arrived whole; False if its header breaks the
        protocol."""
        try:
            return self._error_reason == 0 and self._is_whole()
        except RemoteProtocolError:
            return False

    def next_packet(self) -> Packet | None:
        """Return the next packet; None if it has not arrived whole.

        Raises:
            RemoteProtocolError: the peer broke the protocol (0x81, 0x82, 0x84, 0x90, 0x94, 0x95,
                0x97); every later call raises it again.
        """
        self._raise_again()
        try:
            if not self._is_whole():
                return None
            packet = self._read_packet()
        except RemoteProtocolError as error:
            self._error_reason = error.reason
            self._error_message = error.message
            self.forget()
            raise
        if self._large is not None:
            self._large = None
            self._end = len(self._buffer)
        self._position = self._end
        if self._end > _RETAINED_BUFFER_BYTES_MAX and self._end == len(self._buffer):
            self._buffer = b""
            self._position = 0
        return packet

    def forget(self) -> None:
        """Drop all bytes that are not decoded yet."""
        self._buffer = b""
        self._parts = bytearray()
        self._parts_size = 0
        self._large = None
        self._position = 0

    def incomplete_bytes(self) -> int:
        """Return the length in bytes of a packet that has arrived in part; 0 if it is not known.

        `next_packet` must have returned None before.
        """
        return 0 if self._end == 0 else self._end - self._position

    def next_plain_ack(self) -> i64:
        """Decode the next packet if it is an acknowledgement without reason code and properties.

        Returns:
            The packet type times 65,536, plus the packet identifier; 0 for any other packet, which
            `next_packet` decodes. No object is created: most packets of a busy broker are such
            acknowledgements.
        """
        buffer = self._buffer
        position = self._position
        if position + 4 > len(buffer) or buffer[position + 1] != 2:
            return 0
        first: i64 = buffer[position]
        packet_type = first >> 4
        if packet_type < PUBACK or packet_type > PUBCOMP or self._verdicts[first] != 0:
            return 0
        if first & 0x08 != 0:  # PUBREL with DUP, in MQTT 3.1
            return 0
        high: i64 = buffer[position + 2]
        low: i64 = buffer[position + 3]
        packet_id = high << 8 | low
        if packet_id == 0:
            return 0
        self._position = position + 4
        return packet_type << 16 | packet_id

    def _raise_again(self) -> None:
        if self._error_reason != 0:
            raise RemoteProtocolError(self._error_reason, self._error_message)

    def _is_whole(self) -> bool:
        """Find the end of the packet at `position`; return whether it has arrived whole."""
        if self._large is not None:
            return self._large.is_whole()
        while True:
            self._end = 0
            if self._read_fixed_header():
                if self._end <= len(self._buffer):
                    return True
                large = self._begin_large()
                if large is not None:
                    return large.is_whole()
            parts_size = self._parts_size
            rest_size = len(self._buffer) - self._position
            if parts_size == 0 or rest_size + parts_size < self._end - self._position:
                return False
            self._join_parts()

    def _join_parts(self) -> None:
        rest = self._buffer[self._position :]
        self._buffer = b"".join((rest, self._parts))
        self._parts = bytearray()
        self._parts_size = 0
        self._position = 0

    def _begin_large(self) -> LargePublish | None:
        """Begin to assemble the packet at `position` if it is a large PUBLISH whose bytes before
        the payload have arrived; return it, else None."""
        size = self._end - self._position
        if size <= LARGE_BYTES or self._buffer[self._position] >> 4 != PUBLISH:
            return None
        rest_size = len(self._buffer) - self._position
        arrived = rest_size + self._parts_size
        if rest_size < FRONT_BYTES_MAX and arrived >= FRONT_BYTES_MAX:
            self._join_parts()
            self._read_fixed_header()
        begin = payload_begin(self._buffer, self._position, self._body, self.version)
        front_size = begin - self._position
        if begin == 0 or begin > self._end or front_size > arrived:
            return None
        if self._parts_size != 0:
            self._join_parts()
            self._read_fixed_header()
        received = self._buffer[self._position :]
        large = LargePublish(received, front_size, size)
        self._parts = bytearray(received[size:])
        self._parts_size = len(self._parts)
        self._body -= self._position
        self._buffer = large.front
        self._position = 0
        self._end = size
        self._large = large
        return large

    def _read_fixed_header(self) -> bool:
        """Check the first byte and set `body` and `end`; return False if more bytes are needed."""
        buffer = self._buffer
        position = self._position
        limit: i64 = len(buffer)
        if position >= limit:
            return False
        if self._verdicts[buffer[position]] != 0:
            check_first_byte(buffer[position], self.version, self.server)
        body = position + 1
        length: i64 = 0
        shift: i64 = 0
        while True:
            if body >= limit:
                return False
            digit: i64 = buffer[body]
            body += 1
            length |= (digit & 0x7F) << shift
            if digit < 0x80:
                break
            shift += 7
            if shift > 21:  # v5 §1.5.5
                raise RemoteProtocolError(MALFORMED_PACKET, "remaining length has over four bytes")
        self._is_length_padded = digit == 0 and shift > 0
        if self._is_length_padded and self.version == V5:  # [MQTT-1.5.5-1]
            raise RemoteProtocolError(MALFORMED_PACKET, "remaining length is longer than needed")
        self._body = body
        self._end = body + length
        if self.version == 0 and self._end - position > self._connect_size_max:
            return self._refuse_connect(body, limit)
        if self._end - position > self._size_max:
            raise RemoteProtocolError(
                PACKET_TOO_LARGE, f"a packet of {self._end - position} bytes is too large"
            )
        return True

    def _refuse_connect(self, body: i64, limit: i64) -> bool:
        """Refuse a CONNECT by its length once its protocol level has arrived; return True while it
        has not.

        Raises:
            RemoteProtocolError: the CONNECT is too large.
        """
        size = self._end - self._position
        if limit - body >= _LEVEL_BYTES_MAX:
            self.version = read_level(Reader(self._buffer, body, limit))
            raise RemoteProtocolError(PACKET_TOO_LARGE, f"a CONNECT of {size} bytes is too large")
        self._end = body + _LEVEL_BYTES_MAX  # wait only for the level
        return True

    def _read_packet(self) -> Packet:
        """Decode the packet at `position`, which has arrived whole."""
        buffer = self._buffer
        body = self._body
        first: i64 = buffer[self._position]
        packet_type: i64 = first >> 4
        self.packet_type = packet_type
        if packet_type == PUBLISH:
            return self._read_publish(first)
        if PUBACK <= packet_type <= PUBCOMP and self._end - body <= 3:
            packet = self._read_ack(first, packet_type)
            if packet is not None:
                return packet
        reader = Reader(buffer, body, self._end)
        if packet_type == CONNECT:
            return self._read_connect(reader, first & 0x0F)
        return read_body(reader, first, self.version, self.server)

    def _read_ack(self, first: i64, packet_type: i64) -> Packet | None:
        """Decode an acknowledgement without properties; return None if `read_body` must decode
        it."""
        body = self._body
        size = self._end - body
        if size < 2 or (first & 0x08 != 0 and packet_type == PUBREL):
            return None
        packet_id = self._buffer[body] << 8 | self._buffer[body + 1]
        reason_code = 0
        if size == 3:
            reason_code = self._buffer[body + 2]
            if self.version != V5 or not is_allowed(reason_code, packet_type):
                return None
        if packet_id == 0:
            return None
        if packet_type == PUBACK:
            return Puback(packet_id, reason_code)
        if packet_type == PUBREC:
            return Pubrec(packet_id, reason_code)
        if packet_type == PUBREL:
            return Pubrel(packet_id, reason_code)
        return Pubcomp(packet_id, reason_code)

    def _read_connect(self, reader: Reader, header_flags: int) -> Connect:
        level_byte = read_level(reader)
        level = level_byte & ~BRIDGE_BIT
        self.version = level
        self._verdicts = first_byte_verdicts(level, self.server)
        if self._is_length_padded and level == V5:  # [MQTT-1.5.5-1]
            raise RemoteProtocolError(MALFORMED_PACKET, "remaining length is longer than needed")
        packet = read_connect(reader, level, level_byte != level, header_flags)
        check_at_end(reader, CONNECT)
        return packet

    def _read_publish(self, first: i64) -> Publish:
        buffer = self._buffer
        end = self._end
        position = self._body + 2
        if position > end:
            raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH ends before its topic")
        high: i64 = buffer[position - 2]
        low: i64 = buffer[position - 1]
        topic_end = position + (high << 8 | low)
        if topic_end > end:
            raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH ends within its topic")
        topic = self._topic_of(buffer[position:topic_end])
        position = topic_end
        qos = first >> 1 & 0x03
        packet_id: i64 = 0
        if qos != 0:
            if position + 2 > end:
                raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH ends before its packet id")
            high = buffer[position]
            low = buffer[position + 1]
            packet_id = high << 8 | low
            if packet_id == 0:  # [MQTT-2.2.1-3], v3.1.1 [MQTT-2.3.1-1], v3.1 §2.4
                raise RemoteProtocolError(PROTOCOL_ERROR, "PUBLISH with packet identifier 0")
            position += 2
        properties: Properties | None = None
        if self.version == V5:
            if position < end and buffer[position] == 0:
                position += 1
            elif position + 4 <= end and buffer[position] == 3 and self._read_alias(position + 1):
                properties = self._alias_properties
                position += 4
            else:
                reader = Reader(buffer, position, end)
                length: i64 = reader.varint()
                position = reader.position + length
                properties = self._read_publish_properties(reader.position, position)
        if topic == "" and (properties is None or properties.topic_alias is None):
            # v5 §3.3.2.1, [MQTT-4.7.3-1]
            raise RemoteProtocolError(PROTOCOL_ERROR, "PUBLISH has neither topic nor topic alias")
        # A QoS 0 message is never a duplicate: MQTT 3.1 lets the flag be set and ignores it.
        dup = qos != 0 and first & 0x08 != 0
        large = self._large
        payload = buffer[position:end] if large is None else large.payload()
        return Publish(topic, payload, qos, first & 0x01 != 0, dup, packet_id, properties)

    def _read_alias(self, position: i64) -> bool:
        """Return whether the property at ``position`` is a topic alias; if so, set
        ``_alias_properties``."""
        buffer = self._buffer
        if buffer[position] != _TOPIC_ALIAS:
            return False
        alias: i64 = buffer[position + 1] << 8 | buffer[position + 2]
        if alias == 0:
            return False
        if alias != self._alias:
            properties = Properties(topic_alias=alias)
            properties.is_shared = True
            self._alias_properties = properties
            self._alias = alias
        return True

    def _read_publish_properties(self, start: i64, stop: i64) -> Properties:
        if stop > self._end:
            raise RemoteProtocolError(MALFORMED_PACKET, "PUBLISH ends within its properties")
        properties = decode_properties(self._buffer, start, stop, PUBLISH)
        if self.server and properties.subscription_identifiers is not None:  # [MQTT-3.3.4-6]
            raise RemoteProtocolError(
                PROTOCOL_ERROR, "a client sent a PUBLISH with a subscription identifier"
            )
        return properties

    def _topic_of(self, raw: bytes) -> str:
        """Return the topic as text, from the cache if it is the topic of the last PUBLISH."""
        if raw == self._topic_bytes:
            return self._topic
        topic = text_of(raw)
        if self.version == V31 and len(topic) > V31_TOPIC_CHARACTERS_MAX:
            raise RemoteProtocolError(TOPIC_NAME_INVALID, "the topic is too long for MQTT 3.1")
        if len(raw) <= CACHED_TOPIC_BYTES_MAX:
            self._topic_bytes = raw
            self._topic = topic
        return topic
