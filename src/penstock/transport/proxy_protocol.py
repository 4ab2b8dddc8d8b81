"""The PROXY protocol, versions 1 and 2: the header in which a load balancer sends its client's
address.

A pure parser of the header (HAProxy, "The PROXY protocol", 2.2 and 2.3), which comes before the
first byte of TLS or MQTT, and the header that a standby writes when it relays::

    v1   PROXY TCP4 192.0.2.7 10.0.0.1 51234 1883\\r\\n        at most 107 bytes
    v2   12 bytes of signature, version and command, family, length, addresses, extensions

``bytes_needed`` returns how many bytes may be read next without reading beyond the header.

A standby adds an extension of its own: a standby that receives it does not relay the connection
again, so that two standbys that take each other for the primary do not relay in a circle.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import Final, final

from penstock.engine.values.addresses import IPAddress, ip_of

V1_BYTES_MAX: Final = 107
V2_EXTENSIONS_BYTES_MAX: Final = 2048  # with addresses; TLS details of the client fit in
_SIGNATURE: Final = b"\r\n\r\n\0\r\nQUIT\n"
_V1_START: Final = b"PROXY "
_V2_HEAD_BYTES: Final = 16
_LOCAL: Final = 0x0
_PROXY: Final = 0x1
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_IPV4: Final = struct.Struct("!4s4sHH")
_IPV6: Final = struct.Struct("!16s16sHH")
_EXTENSION: Final = struct.Struct("!BH")  # type and length
_RELAYED: Final = 0xE0  # first type for custom use
_RELAYED_BY: Final = b"penstock standby"


class ProxyHeaderError(ValueError):
    """The bytes are no PROXY header of an accepted version."""


@final
class ProxyHeader:
    """An incremental parser of one header.

    Args:
        version: the accepted version: "v1", "v2" or "any".
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._data = b""
        self.is_complete = False
        self.source: str | None = None
        """The client's HOST:PORT; None if the header has no client address (LOCAL, UNKNOWN, other
        address families)."""
        self.is_relayed = False
        """True if a standby of a cluster wrote the header."""

    def bytes_needed(self) -> int:
        """Return how many bytes may be read next, at least 1; 0 once the header is complete."""
        data = self._data
        if self.is_complete:
            return 0
        if len(data) < len(_SIGNATURE):  # both versions are longer
            return len(_SIGNATURE) - len(data)
        if not data.startswith(_SIGNATURE):
            return 1 if data.endswith(b"\r") else 2
        if len(data) < _V2_HEAD_BYTES:
            return _V2_HEAD_BYTES - len(data)
        return _V2_HEAD_BYTES + int.from_bytes(data[14:16]) - len(data)

    def feed(self, data: bytes) -> None:
        """Parse at most ``bytes_needed`` bytes.

        Raises:
            ProxyHeaderError: the bytes are no PROXY header of the accepted version, or a malformed
                one.
        """
        assert len(data) <= self.bytes_needed(), "nothing is read beyond the header"
        self._data += data
        if self._data.startswith(_SIGNATURE[: len(self._data)]) and self._version != "v1":
            self._feed_v2()
        elif self._data.startswith(_V1_START[: len(self._data)]) and self._version != "v2":
            self._feed_v1()
        else:
            raise ProxyHeaderError("it does not begin with a PROXY header of the expected version")

    # -- version 1 ---------------------------------------------------------------------

    def _feed_v1(self) -> None:
        data = self._data
        is_whole = data.endswith(b"\r\n")
        if len(data) > V1_BYTES_MAX or (len(data) == V1_BYTES_MAX and not is_whole):
            raise ProxyHeaderError(f"its line is longer than {V1_BYTES_MAX} bytes")
        if not is_whole:
            return
        try:
            words = data[:-2].decode("ascii").split(" ")
        except UnicodeDecodeError:
            raise ProxyHeaderError("its line is not ASCII") from None
        if words[1] == "UNKNOWN":
            self.is_complete = True
            return
        if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
            raise ProxyHeaderError("its line has another form than PROXY TCP4|TCP6 and addresses")
        if "%" in words[2] or "%" in words[3]:  # Python accepts any text after it
            raise ProxyHeaderError("its address has a zone")
        kind = ipaddress.IPv4Address if words[1] == "TCP4" else ipaddress.IPv6Address
        try:
            source, _ = kind(words[2]), kind(words[3])
        except ValueError as error:
            raise ProxyHeaderError(f"its address is wrong: {error}") from None
        port, _ = _port(words[4]), _port(words[5])
        self._complete(source, port)

    # -- version 2 ---------------------------------------------------------------------

    def _feed_v2(self) -> None:
        data = self._data
        if len(data) < _V2_HEAD_BYTES:
            return
        length = int.from_bytes(data[14:16])
        if length > V2_EXTENSIONS_BYTES_MAX:
            raise ProxyHeaderError(f"it announces {length} bytes")
        version, command = data[12] >> 4, data[12] & 0x0F
        if version != 2 or command not in (_LOCAL, _PROXY):
            raise ProxyHeaderError(f"its version and command are 0x{data[12]:02x}")
        if len(data) < _V2_HEAD_BYTES + length:
            return
        body = data[_V2_HEAD_BYTES:]
        family = data[13]
        if command == _LOCAL or family not in (_TCP4, _TCP6):
            self.is_relayed = command == _LOCAL and _has_mark(body)
            self.is_complete = True
            return
        form = _IPV4 if family == _TCP4 else _IPV6
        if length < form.size:
            raise ProxyHeaderError("it is shorter than its addresses")
        self.is_relayed = _has_mark(body[form.size :])
        source, _, port, _ = form.unpack_from(body)
        self._complete(ipaddress.ip_address(source), port)

    def _complete(self, host: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
        self.source = f"[{host}]:{port}" if host.version == 6 else f"{host}:{port}"
        self.is_complete = True


def relayed_header(source: str, destination: str) -> bytes:
    """Return the header of version 2 with which a standby relays a connection.

    Args:
        source: the name of the client as ``peer_name`` returns it; a name without an IP address is
            left out of the header.
        destination: HOST:PORT at which the standby accepted the connection.
    """
    mark = _EXTENSION.pack(_RELAYED, len(_RELAYED_BY)) + _RELAYED_BY
    client, own = ip_of(source), ip_of(destination)
    if client is None or own is None:
        return _v2(_LOCAL, 0, mark)
    ports = [int(name.rpartition(":")[2]) for name in (source, destination)]
    if client.version == own.version == 4:
        return _v2(_PROXY, _TCP4, _IPV4.pack(client.packed, own.packed, *ports) + mark)
    return _v2(_PROXY, _TCP6, _IPV6.pack(_as_v6(client), _as_v6(own), *ports) + mark)


def _as_v6(address: IPAddress) -> bytes:
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def _v2(command: int, family: int, body: bytes) -> bytes:
    return _SIGNATURE + bytes((0x20 | command, family)) + len(body).to_bytes(2) + body


def _has_mark(extensions: bytes) -> bool:
    """Return whether a standby's extension is among ``extensions``; False if they are malformed."""
    position = 0
    while position + _EXTENSION.size <= len(extensions):
        kind, length = _EXTENSION.unpack_from(extensions, position)
        begin = position + _EXTENSION.size
        position = begin + length
        if kind == _RELAYED and extensions[begin:position] == _RELAYED_BY:
            return True
    return False


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise ProxyHeaderError(f"its port is {text!r}")
    return int(text)
