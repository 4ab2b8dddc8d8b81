"""Addresses to listen on: HOST:PORT, with brackets around an IPv6 address, or the path of a
socket."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

ADDRESS_FORM: Final = "HOST:PORT with a port from 0 to 65535, such as 127.0.0.1:1883 or [::1]:1883"
SOCKET_FILE_BYTES_MAX: Final = 107  # sun_path of Linux has 108 with its closing zero

_PORT_MAX: Final = 65535
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_DOTTED_DIGITS: Final = re.compile(r"[0-9.]+")


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a TCP port.

    Attributes:
        host: an IPv4 address, an IPv6 address without brackets, or a host name.
        port: 0 to 65535; 0 asks the system for any free port.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address. Of the host names, only `localhost`
        counts."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `HOST:PORT`.

        Raises:
            ValueError: the text has another form; the message says which form is expected.
        """
        host, separator, port = text.strip().rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed:
            host = host[1:-1]
        if not separator or not _is_port(port) or not _is_host(host, bracketed=bracketed):
            raise ValueError(ADDRESS_FORM)
        return cls(host, int(port))


@dataclass(frozen=True, slots=True)
class SocketFile:
    """The path of a Unix socket.

    Attributes:
        path: 1 to 107 bytes with at least one slash, which tells it from HOST:PORT.
    """

    path: str

    def __str__(self) -> str:
        return self.path

    @property
    def is_loopback(self) -> bool:
        """True: only this machine can reach a Unix socket."""
        return True

    @classmethod
    def parse(cls, text: str) -> SocketFile:
        """Read the path of a Unix socket.

        Raises:
            ValueError: the path is too long for a socket, or has a zero byte.
        """
        if len(text.encode()) > SOCKET_FILE_BYTES_MAX or "\0" in text:
            raise ValueError(f"a path of at most {SOCKET_FILE_BYTES_MAX} bytes")
        return cls(text)


def parse_listen_address(text: str) -> Address | SocketFile:
    """Read HOST:PORT, or the path of a Unix socket, which is any text with a slash.

    Raises:
        ValueError: the text is neither; the message says what is expected.
    """
    text = text.strip()
    if "/" in text:
        return SocketFile.parse(text)
    try:
        return Address.parse(text)
    except ValueError:
        if ":" in text or text.isdigit():
            raise
        raise ValueError(
            f"{ADDRESS_FORM}, or a Unix socket's path with a slash in it: ./{text}"
        ) from None


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= _PORT_MAX


def _is_host(text: str, *, bracketed: bool) -> bool:
    try:
        version = ipaddress.ip_address(text).version
    except ValueError:
        if bracketed or _DOTTED_DIGITS.fullmatch(text):
            return False
        return _HOST_NAME.fullmatch(text) is not None
    return (version == 6) == bracketed
