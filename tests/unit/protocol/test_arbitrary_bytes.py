"""Whatever arrives is packets or a RemoteProtocolError with a reason code, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import RemoteProtocolError
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Connect, Packet
from penstock.protocol.properties import parse_properties
from tests.support.budget import budget
from tests.unit.protocol import strategies

REASONS = {0x81, 0x82, 0x84, 0x90, 0x94, 0x95}
MAX_PACKET_SIZE_BYTES = 2000


def _read(data: bytes, version: int, server: bool, step: int) -> tuple[list[Packet], int]:
    """The packets in the data and the reason code of the mistake behind them (0 for none)."""
    decoder = Decoder(MAX_PACKET_SIZE_BYTES, version, server)
    packets: list[Packet] = []
    try:
        for position in range(0, len(data), step):
            decoder.feed(data[position : position + step])
            while (packet := decoder.next_packet()) is not None:
                packets.append(packet)
    except RemoteProtocolError as error:
        return packets, error.reason
    return packets, 0


def _check(data: bytes, version: int, server: bool) -> None:
    packets, reason = _read(data, version, server, max(len(data), 1))
    assert reason in REASONS | {0}
    assert _read(data, version, server, 1) == (packets, reason)
    for packet in packets:
        if isinstance(packet, Connect):
            version = packet.version
        written = encode(packet, version)  # what we accept we could have sent
        before = 0 if isinstance(packet, Connect) else version
        assert _read(written, before, server, len(written)) == ([packet], 0)


@settings(max_examples=budget(100))
@given(st.binary(max_size=200), st.sampled_from([0, 3, 4, 5]), st.booleans())
def test_any_bytes(data: bytes, version: int, server: bool) -> None:
    _check(data, version, server or version == 0)


@settings(max_examples=budget(100))
@given(st.integers(0, 255), st.binary(max_size=100), st.sampled_from([0, 3, 4, 5]), st.booleans())
def test_any_body_behind_a_right_length(
    first: int, body: bytes, version: int, server: bool
) -> None:
    _check(bytes((first, len(body))) + body, version, server or version == 0)


@settings(max_examples=budget(100))
@given(st.data(), strategies.VERSIONS, st.booleans())
def test_a_packet_with_changed_bytes(data: st.DataObject, version: int, server: bool) -> None:
    kind = strategies.from_client if server else strategies.from_server
    changed = bytearray(encode(data.draw(kind(version)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    _check(bytes(changed), version, server)


@settings(max_examples=budget(100))
@given(st.data(), strategies.VERSIONS)
def test_a_connect_with_changed_bytes(data: st.DataObject, version: int) -> None:
    changed = bytearray(encode(data.draw(strategies.connects(version)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    _check(bytes(changed), 0, True)


@given(st.binary(max_size=60))
def test_any_stored_properties(data: bytes) -> None:
    reason = 0x81
    try:
        parse_properties(data)
    except RemoteProtocolError as error:
        reason = error.reason
    assert reason in REASONS
