"""The URL of a server: ``mqtt://HOST:PORT``, ``mqtts://…``, ``ws://HOST:PORT/PATH``, …"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from penstock.config.address import Address, SocketFile

PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
URL_FORM: Final = (
    "mqtt://HOST:PORT, mqtts://HOST:PORT with TLS, ws://HOST:PORT/PATH or wss://HOST:PORT/PATH over"
    " WebSocket, or unix:///PATH"
)

_OTHER_NAMES: Final = {"tcp": "mqtt", "ssl": "mqtts", "tls": "mqtts"}
_BETWEEN_URLS: Final = re.compile(r",\s*(?=[a-z]+://)")
_DEFAULT_PATH: Final = "/mqtt"  # of MQTT over WebSocket


@dataclass(frozen=True, slots=True)
class RemoteUrl:
    """The URL of a server: its address and the scheme by which it is reached.

    Attributes:
        scheme: "mqtt", "mqtts", "ws", "wss" or "unix".
        address: host and port, or the path of a Unix socket.
        path: the path for WebSocket, with its query; else empty.
    """

    scheme: str
    address: Address | SocketFile
    path: str = ""

    @property
    def is_encrypted(self) -> bool:
        """True if the connection uses TLS."""
        return self.scheme in ("mqtts", "wss")

    @property
    def is_websocket(self) -> bool:
        """True if MQTT travels in WebSocket frames."""
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"

    @classmethod
    def parse(cls, text: str) -> RemoteUrl:
        """Parse a URL. Ports may be left out: 1883, 8883 with TLS, 80 and 443 over WebSocket.

        ``tcp://`` stands for ``mqtt://``, and ``ssl://`` and ``tls://`` for ``mqtts://``, as in
        other clients.

        Raises:
            ValueError: the text has another form; the message says which is expected.
        """
        try:
            url = urlsplit(text)
        except ValueError:
            raise ValueError(URL_FORM) from None
        scheme = _OTHER_NAMES.get(url.scheme, url.scheme)
        if scheme == "unix":
            if url.netloc or not url.path or url.query or url.fragment:
                raise ValueError(URL_FORM)
            return cls(scheme, SocketFile.parse(url.path))
        port = PORTS.get(scheme)
        if port is None or url.fragment or "@" in url.netloc:
            raise ValueError(URL_FORM)
        path = url.path
        if scheme in ("ws", "wss"):
            path = (url.path or _DEFAULT_PATH) + (f"?{url.query}" if url.query else "")
        elif url.path not in ("", "/") or url.query:
            raise ValueError(URL_FORM)
        else:
            path = ""
        has_port = url.netloc.rpartition("]")[2].count(":") == 1
        try:
            address = Address.parse(url.netloc if has_port else f"{url.netloc}:{port}")
        except ValueError:
            raise ValueError(URL_FORM) from None
        if address.port == 0:
            raise ValueError(URL_FORM)
        return cls(scheme, address, path)

    @classmethod
    def parse_list(cls, text: str) -> list[RemoteUrl]:
        """Parse the URL of a cluster, hosts or whole URLs with commas between them; return one URL
        a host.

        ``mqtts://a,b:8884/`` stands for ``mqtts://a/,mqtts://b:8884/``.

        Raises:
            ValueError: one of the URLs has another form; the message says which is expected.
        """
        urls: list[RemoteUrl] = []
        for part in _BETWEEN_URLS.split(text):
            scheme, separator, rest = part.partition("://")
            hosts, slash, path = rest.partition("/")
            urls += [
                cls.parse(f"{scheme}{separator}{host.strip()}{slash}{path}")
                for host in hosts.split(",")
            ]
        return urls
