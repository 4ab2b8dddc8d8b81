"""A held port: nobody else is given it, and the program it is held for may have it."""

from __future__ import annotations

import errno
import os
import platform
import socket
import struct
import sys
from collections.abc import Iterator

import pytest

from penstock.transport.reserved_port import ReservedPort

HOST = "127.0.0.1"
IN_USE = os.strerror(errno.EADDRINUSE)
_IP_LOCAL_PORT_RANGE = 51  # linux/in.h, since Linux 6.3; the socket module has no name for it

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can hold a port")


def only(port: int) -> socket.socket:
    """A socket to which the system can give no other port than this one by itself."""
    made = socket.socket()
    both_ends = struct.pack("=I", port << 16 | port)
    try:
        made.setsockopt(socket.IPPROTO_IP, _IP_LOCAL_PORT_RANGE, both_ends)
    except OSError:
        made.close()
        pytest.skip(f"Linux {platform.release()} is too old to be told which ports it may give")
    return made


@pytest.fixture
def held() -> Iterator[ReservedPort]:
    with ReservedPort(HOST) as made:
        yield made


@on_linux
@pytest.mark.parametrize("reuse", [0, 1])
def test_nobody_is_given_it(held: ReservedPort, reuse: int) -> None:
    with only(held.port) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
        with pytest.raises(OSError, match=IN_USE):
            other.bind((HOST, 0))
        held.close()
        other.bind((HOST, 0))
        assert other.getsockname()[1] == held.port


@on_linux
def test_no_connection_goes_out_from_it(held: ReservedPort) -> None:
    none_left = os.strerror(errno.EADDRNOTAVAIL)
    with (
        socket.create_server((HOST, 0)) as server,
        only(held.port) as other,
        pytest.raises(OSError, match=none_left),
    ):
        other.connect(server.getsockname())


def test_the_program_a_port_is_held_for_listens_there_again_and_again(held: ReservedPort) -> None:
    for _ in range(2):
        with (
            socket.create_server((HOST, held.port)),
            socket.create_connection((HOST, held.port)) as came,
        ):
            assert came.getpeername() == (HOST, held.port)


def test_nobody_listens_there_meanwhile(held: ReservedPort) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, held.port))


def test_a_port_on_which_somebody_listens_is_refused() -> None:
    with socket.create_server((HOST, 0)) as server, pytest.raises(OSError, match=IN_USE):
        ReservedPort(HOST, server.getsockname()[1])


def test_a_held_port_is_written_as_addresses_are() -> None:
    with ReservedPort(HOST) as held:
        assert str(held) == f"127.0.0.1:{held.port}"


def test_a_held_port_is_written_as_addresses_are_ipv6() -> None:
    try:
        held = ReservedPort("::1")
    except OSError:
        pytest.skip("no IPv6 on this machine")
    with held:
        assert str(held) == f"[::1]:{held.port}"
