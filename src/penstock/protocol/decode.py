"""From bytes to packets: bytes go in as they arrive, whole packets come out.

    feed(bytes)  ──▶  [ buffer: rest of the last read | parts: later reads ]  ──▶  next_packet()

`buffer` is bytes that packets are cut from, `position` how far. While a packet is incomplete, later
reads gather in `parts` and are joined to the buffer only when the packet is whole, so each byte is
copied a fixed number of times, however large the packet and small the reads. The decoder holds at
most one packet of the maximum size and one read, and of a large one nothing once it was read; a
larger packet is refused as soon as its length is known. A large PUBLISH is not joined at all: its
payload grows as it arrives (`protocol.large_publish`).

    reading ──mistake──▶ dead: every further call raises the same error

PUBLISH and acknowledgements without properties are read here without a `Reader`, for speed; and
properties that are no more than a topic alias are one object for all that have it.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.errors import LocalProtocolError, RemoteProtocolError
from penstock.protocol.decode_body import check_at_end, read_body
from penstock.protocol.decode_connect import read_connect, read_level
from penstock.protocol.fixed_header import check, verdicts
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
    LARGE_BYTES,
    TELLING_BYTES,
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
# A buffer whose packets were all read is kept up to this length, until more comes.
_KEPT_BYTES_MAX: Final = 65_536
# A topic up to this length is kept to compare the next one with.
REMEMBERED_TOPIC_BYTES_MAX: Final = 256

_TOPIC_ALIAS: Final = 0x23
# Of a CONNECT up to its protocol level: a name of four or six characters with its length.
_LEVEL_BYTES_MAX: Final = 9


@final
class Decoder:
    """Turns the bytes of one direction of one connection into packets.

    version is the protocol level: 0 until CONNECT was read, which sets it (as soon as the level is
    known, even when the rest of the CONNECT is malformed). server says which side we are: it
    decides which packets the peer may send. A client gives the version it connected with.
    connect_size_bytes_max bounds CONNECT, beside max_packet_size_bytes: its sender is not
    authenticated yet. A larger one is refused by its length, as soon as its version is here too.
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
        self.packet_type: i64 = 0  # of what ``next_packet`` returned last
        self._size_max: i64 = min(max_packet_size_bytes, PACKET_SIZE_BYTES_MAX)
        self._connect_size_max: i64 = min(max_packet_size_bytes, connect_size_bytes_max)
        self._verdicts = verdicts(version, server)
        # Why nothing is read any more, 0 before that. Not the exception: that holds its frames.
        self._broken_by = 0
        self._broken_because = ""
        self._buffer = b""
        self._position: i64 = 0
        self._parts = bytearray()
        self._parts_size: i64 = 0
        # The packet at `position`, when it is a large one: the buffer has its front then.
        self._large: LargePublish | None = None
        # Of the packet at `position`, once its fixed header is complete; 0 before.
        self._body: i64 = 0
        self._end: i64 = 0
        self._is_length_padded = False
        self._topic_bytes = b""
        self._topic = ""
        self._alias: i64 = 0  # of ``_only_alias``
        self._only_alias: Properties | None = None

    def feed(self, data: bytes) -> None:
        """Take bytes as they arrived. Read all packets before feeding again."""
        self._fail_again()
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
        """Return whether the whole of the next packet was fed; False if its header breaks the
        protocol."""
        try:
            return self._broken_by == 0 and self._is_whole()
        except RemoteProtocolError:
            return False

    def next_packet(self) -> Packet | None:
        """Return the next packet; None when its end has not arrived yet.

        Raises RemoteProtocolError (0x81, 0x82, 0x84, 0x90, 0x94, 0x95) when the peer broke the
        protocol; from then on always.
        """
        self._fail_again()
        try:
            if not self._is_whole():
                return None
            packet = self._read_packet()
        except RemoteProtocolError as error:
            self._broken_by = error.reason
            self._broken_because = error.message
            self.forget()
            raise
        if self._large is not None:
            self._large = None
            self._end = len(self._buffer)
        self._position = self._end
        if self._end > _KEPT_BYTES_MAX and self._end == len(self._buffer):
            self._buffer = b""  # more may come late
            self._position = 0
        return packet

    def forget(self) -> None:
        """Drop all bytes that are here: they will not be read."""
        self._buffer = b""
        self._parts = bytearray()
        self._parts_size = 0
        self._large = None
        self._position = 0

    def incomplete_bytes(self) -> int:
        """Return the length of a packet of which a part is here, once it is known; else 0.

        To be called after `next_packet` has returned None.
        """
        return 0 if self._end == 0 else self._end - self._position

    def plain_ack(self) -> i64:
        """Return the next packet as a number, if it is a whole acknowledgement without reason and
        properties.

        The number is the packet type times 65,536, plus the packet identifier; 0 for all other
        packets, which `next_packet` reads. It makes no object: most packets of a busy broker are
        such acknowledgements.
        """
        buffer = self._buffer
        position = self._position
        if position + 4 > len(buffer) or buffer[position + 1] != 2:
            return 0
        first: i64 = buffer[position]
        packet_type = first >> 4
        if packet_type < PUBACK or packet_type > PUBCOMP or self._verdicts[first] != 0:
            return 0
        if first & 0x08 != 0:  # PUBREL again, of MQTT 3.1
            return 0
        high: i64 = buffer[position + 2]
        low: i64 = buffer[position + 3]
        packet_id = high << 8 | low
        if packet_id == 0:
            return 0
        self._position = position + 4
        return packet_type << 16 | packet_id

    def _fail_again(self) -> None:
        if self._broken_by != 0:
            raise RemoteProtocolError(self._broken_by, self._broken_because)

    def _is_whole(self) -> bool:
        """Find the end of the packet at `position`; return whether all of it is in the buffer."""
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
        """Read on as a large PUBLISH, if the packet at `position` is one and its front is here."""
        size = self._end - self._position
        if size <= LARGE_BYTES or self._buffer[self._position] >> 4 != PUBLISH:
            return None
        rest_size = len(self._buffer) - self._position
        here = rest_size + self._parts_size
        if rest_size < TELLING_BYTES and here >= TELLING_BYTES:
            self._join_parts()
            self._read_fixed_header()
        begin = payload_begin(self._buffer, self._position, self._body, self.version)
        front_size = begin - self._position
        if begin == 0 or begin > self._end or front_size > here:
            return None
        if self._parts_size != 0:
            self._join_parts()
            self._read_fixed_header()
        begun = self._buffer[self._position :]
        large = LargePublish(begun, front_size, size)
        self._parts = bytearray(begun[size:])
        self._parts_size = len(self._parts)
        self._body -= self._position
        self._buffer = large.front
        self._position = 0
        self._end = size
        self._large = large
        return large

    def _read_fixed_header(self) -> bool:
        """Judge the first byte and set `body` and `end`; return False when more bytes are
        needed."""
        buffer = self._buffer
        position = self._position
        limit: i64 = len(buffer)
        if position >= limit:
            return False
        if self._verdicts[buffer[position]] != 0:
            check(buffer[position], self.version, self.server)
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
        """Refuse a CONNECT by its length, in its version; return True while the version is still to
        come."""
        size = self._end - self._position
        if limit - body >= _LEVEL_BYTES_MAX:
            self.version = read_level(Reader(self._buffer, body, limit))
            raise RemoteProtocolError(PACKET_TOO_LARGE, f"a CONNECT of {size} bytes is too large")
        self._end = body + _LEVEL_BYTES_MAX  # wait for so many bytes, and no more
        return True

    def _read_packet(self) -> Packet:
        """Read the packet at `position`, all of which is in the buffer."""
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
        """Return an acknowledgement without properties; None for one that must be read in full."""
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
        named = read_level(reader)
        level = named & ~BRIDGE_BIT
        self.version = level
        self._verdicts = verdicts(level, self.server)
        if self._is_length_padded and level == V5:  # [MQTT-1.5.5-1]
            raise RemoteProtocolError(MALFORMED_PACKET, "remaining length is longer than needed")
        packet = read_connect(reader, level, named != level, header_flags)
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
            elif position + 4 <= end and buffer[position] == 3 and self._finds_alias(position + 1):
                properties = self._only_alias
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

    def _finds_alias(self, position: i64) -> bool:
        """Return whether the property here is a topic alias; ``_only_alias`` has it then."""
        buffer = self._buffer
        if buffer[position] != _TOPIC_ALIAS:
            return False
        alias: i64 = buffer[position + 1] << 8 | buffer[position + 2]
        if alias == 0:
            return False
        if alias != self._alias:
            properties = Properties(topic_alias=alias)
            properties.is_shared = True
            self._only_alias = properties
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
        """Return the topic as text; often it is the one of the message before."""
        if raw == self._topic_bytes:
            return self._topic
        topic = text_of(raw)
        if self.version == V31 and len(topic) > V31_TOPIC_CHARACTERS_MAX:
            raise RemoteProtocolError(TOPIC_NAME_INVALID, "the topic is too long for MQTT 3.1")
        if len(raw) <= REMEMBERED_TOPIC_BYTES_MAX:
            self._topic_bytes = raw
            self._topic = topic
        return topic
