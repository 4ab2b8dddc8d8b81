"""The PROXY header: both versions, byte by byte, and everything that is none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.values.addresses import ip_of
from penstock.transport.proxy_protocol import (
    V1_BYTES_MAX,
    V2_EXTENSIONS_BYTES_MAX,
    ProxyHeader,
    ProxyHeaderError,
    relayed_header,
)

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
FOLLOWING = b"\x10\x0c\x00\x04MQTT"


def v2(command: int, family: int, body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return SIGNATURE + bytes([command, family]) + struct.pack("!H", size) + body


TCP4 = bytes([192, 0, 2, 7, 10, 0, 0, 1]) + struct.pack("!HH", 51234, 1883)
TCP6 = bytes(15) + b"\x01" + bytes(15) + b"\x02" + struct.pack("!HH", 51234, 1883)

VALID: dict[str, tuple[bytes, str | None]] = {
    "v1 TCP4": (b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 1883\r\n", "192.0.2.7:51234"),
    "v1 TCP6": (b"PROXY TCP6 2001:db8::7 ::1 51234 1883\r\n", "[2001:db8::7]:51234"),
    "v1 UNKNOWN": (b"PROXY UNKNOWN\r\n", None),
    "v1 UNKNOWN with more": (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", None),
    "v1 longest": (
        b"PROXY UNKNOWN " + 5 * b"ffff:ffff:ffff:ff " + b"x" + b"\r\n",
        None,
    ),
    "v2 TCP4": (v2(0x21, 0x11, TCP4), "192.0.2.7:51234"),
    "v2 TCP6": (v2(0x21, 0x21, TCP6), "[::1]:51234"),
    "v2 with extensions": (v2(0x21, 0x11, TCP4 + b"\x03\x00\x04abcd"), "192.0.2.7:51234"),
    "v2 LOCAL": (v2(0x20, 0x00, b""), None),
    "v2 LOCAL with addresses": (v2(0x20, 0x11, TCP4), None),
    "v2 unspecified": (v2(0x21, 0x00, b""), None),
    "v2 UDP": (v2(0x21, 0x12, TCP4), None),
    "v2 unix": (v2(0x21, 0x31, bytes(216)), None),
    "v2 longest": (v2(0x21, 0x11, TCP4.ljust(V2_EXTENSIONS_BYTES_MAX, b"\0")), "192.0.2.7:51234"),
}

INVALID = {
    "v1 zone": b"PROXY TCP6 fe80::1%\x1b[2J ::1 1 2\r\n",
    "MQTT": b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c",
    "TLS": bytes.fromhex("16 03 01 02 00 01 00 01 fc 03 03 00"),
    "HTTP": b"GET /mqtt HTTP/1.1\r\n",
    "almost": b"PROXI TCP4 192.0.2.7 10.0.0.1 51234 1883\r\n",
    "lower case": b"proxy tcp4 192.0.2.7 10.0.0.1 51234 1883\r\n",
    "v1 without addresses": b"PROXY TCP4\r\n",
    "v1 too few words": b"PROXY TCP4 192.0.2.7 10.0.0.1 51234\r\n",
    "v1 too many words": b"PROXY TCP4 192.0.2.7 10.0.0.1 51234 1883 7\r\n",
    "v1 two spaces": b"PROXY TCP4  192.0.2.7 10.0.0.1 51234 1883\r\n",
    "v1 other family": b"PROXY TCP5 192.0.2.7 10.0.0.1 51234 1883\r\n",
    "v1 IPv6 as TCP4": b"PROXY TCP4 ::1 ::1 51234 1883\r\n",
    "v1 IPv4 as TCP6": b"PROXY TCP6 192.0.2.7 10.0.0.1 51234 1883\r\n",
    "v1 host name": b"PROXY TCP4 localhost 10.0.0.1 51234 1883\r\n",
    "v1 port too large": b"PROXY TCP4 192.0.2.7 10.0.0.1 65536 1883\r\n",
    "v1 port with sign": b"PROXY TCP4 192.0.2.7 10.0.0.1 +123 1883\r\n",
    "v1 port empty": b"PROXY TCP4 192.0.2.7 10.0.0.1  1883\r\n",
    "v1 not ASCII": b"PROXY TCP4 192.0.2.\xb2 10.0.0.1 51234 1883\r\n",
    "v1 endless": b"PROXY UNKNOWN " + 200 * b"x",
    "v1 line end too late": b"PROXY UNKNOWN " + 92 * b"x" + b"\r\n",
    "v2 version 1": v2(0x11, 0x11, TCP4),
    "v2 other command": v2(0x22, 0x11, TCP4),
    "v2 shorter than its addresses": v2(0x21, 0x11, TCP4[:11]),
    "v2 IPv6 with IPv4's length": v2(0x21, 0x21, TCP4),
    "v2 too long": v2(0x21, 0x11, TCP4, V2_EXTENSIONS_BYTES_MAX + 1),
    "v2 longest of all": v2(0x21, 0x11, TCP4, 65535),
    "v2 bad signature": b"\r\n\r\n\0\r\nQUIT\r" + bytes(4),
}


def read(data: bytes, version: str = "any") -> tuple[ProxyHeader, bytes]:
    """Read a header as the listener does; with what is left of the data."""
    header = ProxyHeader(version)
    while not header.is_complete and data:
        size = header.bytes_needed()
        assert size >= 1
        header.feed(data[:size])
        data = data[size:]
    return header, data


@pytest.mark.parametrize("case", VALID)
def test_a_header_is_read_and_nothing_after_it(case: str) -> None:
    data, source = VALID[case]
    header, left = read(data + FOLLOWING)
    assert header.is_complete
    assert header.source == source
    assert header.bytes_needed() == 0
    assert left == FOLLOWING


@pytest.mark.parametrize("case", VALID)
def test_a_header_in_pieces(case: str) -> None:
    data, source = VALID[case]
    header = ProxyHeader("any")
    for byte in data:
        assert not header.is_complete
        header.feed(bytes([byte]))
    assert header.is_complete
    assert header.source == source


@pytest.mark.parametrize("case", VALID)
def test_only_the_version_that_is_expected(case: str) -> None:
    data, source = VALID[case]
    ours, other = ("v1", "v2") if case.startswith("v1") else ("v2", "v1")
    assert read(data, ours)[0].source == source
    with pytest.raises(ProxyHeaderError):
        read(data, other)


@pytest.mark.parametrize("case", INVALID)
def test_a_value_that_is_no_header_is_refused(case: str) -> None:
    with pytest.raises(ProxyHeaderError):
        read(INVALID[case])


@given(
    st.one_of(
        st.binary(max_size=300),
        st.binary(max_size=300).map(lambda data: b"PROXY " + data),
        st.binary(max_size=300).map(lambda data: SIGNATURE + data),
        st.text("PROXYTCP46UNKW 0123456789.:\r\n", max_size=120).map(
            lambda text: b"PROXY " + text.encode()
        ),
    )
)
def test_any_bytes_are_a_header_an_unfinished_one_or_an_error(data: bytes) -> None:
    try:
        header, left = read(data)
    except ProxyHeaderError:
        return
    taken = len(data) - len(left)
    assert taken <= max(V1_BYTES_MAX, 16 + V2_EXTENSIONS_BYTES_MAX)
    assert header.is_complete or not left


@pytest.mark.parametrize(
    ("source", "destination", "read_source"),
    [
        ("192.0.2.7:51234", "10.0.0.1:1883", "192.0.2.7:51234"),
        ("[2001:db8::7]:51234", "[::1]:1883", "[2001:db8::7]:51234"),
        ("[fe80::1%eth0]:51234", "[fe80::2%eth0]:1883", "[fe80::1]:51234"),
        ("[::ffff:192.0.2.7]:51234", "10.0.0.1:1883", "192.0.2.7:51234"),
        ("[2001:db8::7]:51234", "10.0.0.1:1883", "[2001:db8::7]:51234"),
        ("192.0.2.7:51234", "[::1]:1883", "192.0.2.7:51234"),
        ("process 7 of user 0", "10.0.0.1:1883", None),
    ],
)
def test_the_header_of_a_standby(source: str, destination: str, read_source: str | None) -> None:
    header, left = read(relayed_header(source, destination) + FOLLOWING, "v2")
    assert header.is_complete
    assert header.is_relayed
    assert (header.source is None) == (read_source is None)
    if header.source is not None and read_source is not None:
        assert ip_of(header.source) == ip_of(read_source)
        assert header.source.endswith(":51234")
    assert left == FOLLOWING


@pytest.mark.parametrize(
    "extensions",
    [
        b"",
        b"\xe0\x00\x10penstock standb",
        b"\xe0\x00\x03abc",
        b"\x04\x00\x13\xe0\x00\x10penstock standby",
        b"\xe0",
        b"\xe1\xff\xff",
    ],
)
def test_the_header_of_a_load_balancer_is_not_a_standbys(extensions: bytes) -> None:
    header, _ = read(v2(0x21, 0x11, TCP4 + extensions))
    assert (header.source, header.is_relayed) == ("192.0.2.7:51234", False)


def test_a_standby_behind_other_extensions() -> None:
    mark = b"\xe0\x00\x10penstock standby"
    assert read(v2(0x21, 0x11, TCP4 + b"\x04\x00\x02xx" + mark))[0].is_relayed
