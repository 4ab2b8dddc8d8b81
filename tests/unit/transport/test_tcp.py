"""An address that cannot be listened on: the sentence says what to do about this very case."""

import errno
import os
import socket

import pytest

from penstock.config.address import Address
from penstock.errors import ConfigError
from penstock.transport.tcp import bind_tcp, remedy

TAKEN = "is another broker running there?"


async def refused(address: Address) -> str:
    with pytest.raises(ConfigError) as raised:
        await bind_tcp("main", address)
    return str(raised.value)


async def test_a_taken_port_asks_for_the_other_broker() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        said = await refused(Address("127.0.0.1", other.getsockname()[1]))
    assert TAKEN in said
    assert "choose another address with --bind" in said


async def test_an_address_of_another_machine() -> None:
    """198.51.100.0/24 is for documents."""
    said = await refused(Address("198.51.100.77", 1883))
    assert "this machine does not have that address" in said
    assert TAKEN not in said


def test_a_name_of_no_machine() -> None:
    said = remedy(socket.gaierror(socket.EAI_NONAME, "Name or service not known"))
    assert said.startswith("the name has no address here")


def test_a_port_of_the_superuser() -> None:
    """Whoever runs the tests may be allowed to use it."""
    said = remedy(PermissionError(errno.EACCES, os.strerror(errno.EACCES)))
    assert said.startswith("ports below 1024 need CAP_NET_BIND_SERVICE")
