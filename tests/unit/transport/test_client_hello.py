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
def test_it_is_whole_with_its_last_byte(sizes: list[int], behind: bytes) -> None:
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

    with pytest.raises(ConnectionRefusedError, match="no end"):
        look()
    assert len(pieces) < 200


X25519 = b"\x00\x1d"
FFDHE8192 = b"\x01\x04"
SHARE = X25519 + b"\x00\x20"


def test_a_key_over_a_finite_field_is_refused() -> None:
    """One of 8192 bits takes the event loop a tenth of a second, and asks for no password."""
    assert HELLO.count(SHARE) == 1
    costly = HELLO.replace(SHARE, FFDHE8192 + SHARE[2:])
    assert bytes_needed(costly[:-1]) == len(HELLO)
    with pytest.raises(ConnectionRefusedError, match="finite fields"):
        bytes_needed(costly)


def test_a_client_that_supports_such_groups_alone_is_refused() -> None:
    """It would be asked for such a key; one that supports a curve too is asked for that."""
    start = HELLO.index(b"\x00\x0a", 43)
    count = int.from_bytes(HELLO[start + 4 : start + 6]) // 2
    before, behind = HELLO[: start + 6], HELLO[start + 6 + 2 * count :]
    share = behind.index(SHARE)
    behind = behind[:share] + b"\x99\x99" + behind[share + 2 :]
    assert bytes_needed(before + X25519 + FFDHE8192 * (count - 1) + behind) == len(HELLO)
    with pytest.raises(ConnectionRefusedError, match="finite fields"):
        bytes_needed(before + b"\x99\x99" + FFDHE8192 * (count - 1) + behind)
