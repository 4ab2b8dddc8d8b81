"""A ClientHello is recognised as whole, however it is cut: into pieces, and into records."""

import contextlib
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.transport.client_hello import HELLO_BYTES_MAX, bytes_needed


def hello() -> bytes:
    """The first flight of Python's own client: one record."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(
        ssl.MemoryBIO(), outgoing, server_hostname="localhost"
    )
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


HELLO = hello()


def in_records(sizes: list[int]) -> bytes:
    """The same message in records with fragments of these sizes, and one with the rest."""
    message, records = HELLO[5:], b""
    for size in [*sizes, len(message)]:
        fragment, message = message[:size], message[size:]
        if fragment:
            records += HELLO[:3] + len(fragment).to_bytes(2) + fragment
    return records


@given(st.lists(st.integers(1, 200), max_size=8), st.binary(max_size=50))
def test_a_client_hello_is_whole_with_its_last_byte(sizes: list[int], behind: bytes) -> None:
    """Whoever waits for what is asked for each time gets there, and waits for nothing behind it."""
    whole = in_records(sizes)
    arrived = 0
    while (needed := bytes_needed(whole[:arrived])) > arrived:
        assert needed <= len(whole)
        arrived = needed
    assert arrived == len(whole)
    assert bytes_needed(whole + behind) == len(whole)
    for cut in range(len(whole)):
        assert bytes_needed(whole[:cut]) > cut


@given(st.binary(min_size=1, max_size=200))
def test_of_what_is_no_hello_nothing_is_waited_for(data: bytes) -> None:
    """A client that speaks no TLS is told so by the handshake, at once."""
    if data[0] != 22:
        assert bytes_needed(data) <= len(data)


@pytest.mark.parametrize("fragment", [b"", b"\x01", bytes([1, 255, 255, 255]) + bytes(16_380)])
def test_a_hello_without_end_is_refused_and_costs_little(fragment: bytes) -> None:
    """Each piece that comes is looked at from the beginning: not five thousand records of them."""
    record = b"\x16\x03\x01" + len(fragment).to_bytes(2) + fragment
    endless = record * (HELLO_BYTES_MAX // len(record) + 1)
    pieces = [5]

    def look() -> None:
        while (needed := bytes_needed(endless[: pieces[-1]])) > pieces[-1]:
            pieces.append(needed)

    with pytest.raises(ConnectionRefusedError, match="too many records"):
        look()
    assert len(pieces) < 200


P256, X25519, FFDHE2048, FFDHE8192, UNKNOWN = 0x17, 0x1D, 0x100, 0x104, 0x9999
_GROUPS, _KEYS = 10, 51
_KEY_BYTES = {P256: 65, FFDHE2048: 256, FFDHE8192: 1024}


def hello_with(groups: list[int], keys: list[int]) -> bytes:
    """The same message, with these groups and a key of each of those."""
    at = 43 + 1 + HELLO[43]
    at += 2 + int.from_bytes(HELLO[at : at + 2])
    at += 1 + HELLO[at]
    told = {
        _GROUPS: b"".join(group.to_bytes(2) for group in groups),
        _KEYS: b"".join(
            group.to_bytes(2) + size.to_bytes(2) + bytes(size)
            for group, size in ((group, _KEY_BYTES.get(group, 32)) for group in keys)
        ),
    }
    front, rest, extensions = HELLO[9:at], HELLO[at + 2 :], b""
    while rest:
        kind, size = int.from_bytes(rest[:2]), int.from_bytes(rest[2:4])
        body, rest = rest[4 : 4 + size], rest[4 + size :]
        if kind in told:
            body = len(told[kind]).to_bytes(2) + told[kind]
        extensions += kind.to_bytes(2) + len(body).to_bytes(2) + body
    message = front + len(extensions).to_bytes(2) + extensions
    message = b"\x01" + len(message).to_bytes(3) + message
    return HELLO[:3] + len(message).to_bytes(2) + message


@pytest.mark.parametrize(
    ("groups", "keys"),
    [
        ([X25519, FFDHE8192], [X25519]),
        ([X25519, FFDHE8192], [X25519, FFDHE8192]),  # as GnuTLS may be told to
        ([FFDHE8192, X25519], []),
        ([FFDHE8192, P256], [P256, FFDHE8192]),
        ([UNKNOWN, FFDHE2048, X25519], [UNKNOWN]),
        ([UNKNOWN], [UNKNOWN]),
    ],
)
def test_a_client_that_may_have_a_curve_is_taken(groups: list[int], keys: list[int]) -> None:
    whole = hello_with(groups, keys)
    assert bytes_needed(whole) == len(whole)


@pytest.mark.parametrize(
    ("groups", "keys"),
    [
        ([FFDHE8192], [FFDHE8192]),
        ([X25519, FFDHE8192], [FFDHE8192]),
        ([FFDHE2048, X25519], [FFDHE2048, X25519]),
        ([X25519, FFDHE8192], [UNKNOWN, FFDHE8192, X25519]),
        ([UNKNOWN, FFDHE8192], [UNKNOWN]),
        ([FFDHE8192], []),
    ],
)
def test_a_key_over_a_finite_field_is_refused(groups: list[int], keys: list[int]) -> None:
    """One of 8192 bits takes the event loop a tenth of a second, and asks for no password."""
    whole = hello_with(groups, keys)
    assert bytes_needed(whole[:-1]) == len(whole)
    with pytest.raises(ConnectionRefusedError, match="finite fields"):
        bytes_needed(whole)
