"""The options for a broker's address and the login, with the names of mosquitto_pub.

The address is given by ``-h`` and ``-p``, by ``-L URL``, or by ``--unix PATH``. TLS is used if an
option of TLS is given, for port 8883, and for ``mqtts://`` and ``wss://``. The hosts of a cluster
have commas between them, in ``-h`` and in the URL; login, topic and TLS are the same for all hosts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote

import typer

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from penstock.client.options import Settings, Version
    from penstock.transport.dialling import TlsFiles

HELP_ONLY_LONG: Final = {"help_option_names": ["--help"]}
"""Typer settings for commands whose ``-h`` is the host and not help."""

CONNECT_S_MAX: Final = 5.0
"""Longest time in seconds to connect, and then for the answer to CONNECT."""

WHY_SILENT: Final = (
    "it hangs (a disk that does not answer, SIGSTOP), has too much to do, or is no MQTT broker:"
    " look at its log"
)
"""Why a broker does not answer CONNECT, and what to do."""

_TLS_PORT: Final = 8883
_PORT: Final = 1883
_VERSIONS: Final[dict[str, Version]] = {
    "5": "5",
    "mqttv5": "5",
    "3.1.1": "3.1.1",
    "311": "3.1.1",
    "mqttv311": "3.1.1",
    "3.1": "3.1",
    "31": "3.1",
    "mqttv31": "3.1",
}
_URLS_WITH_TOPIC: Final = ("mqtt", "mqtts", "tcp", "ssl", "tls")
_URL_FORM: Final = (
    "mqtt://[USER[:PASSWORD]@]HOST[:PORT][,…][/TOPIC], mqtts://…, ws://HOST:PORT/PATH, wss://… or"
    " unix:///PATH"
)


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of the URL given with ``-L``.

    Attributes:
        server: the URL without user, password and topic; it may name several hosts.
        username: user name; None if the URL has none.
        password: password; None if the URL has none.
        topic: topic; empty if the URL has none.
    """

    server: str
    username: str | None
    password: bytes | None
    topic: str


def parse_url(text: str) -> Url:
    """Parse a URL as mosquitto_pub does: everything after the host is the topic, without
    percent-decoding.

    User and password may be percent-encoded.

    Raises:
        ConfigError: the text is not such a URL.
    """
    scheme, separator, rest = text.partition("://")
    if not separator:
        raise ConfigError(f"-L must be {_URL_FORM}")
    authority, slash, path = rest.partition("/")
    login, at_sign, hosts = authority.rpartition("@")
    name, colon, password = login.partition(":")
    topic = ""
    server = f"{scheme}://{hosts}"
    if scheme in _URLS_WITH_TOPIC:
        topic = path
    else:
        server += slash + path
    return Url(
        server,
        unquote(name) if at_sign else None,
        unquote(password).encode() if colon else None,
        topic,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options for the broker's address, the login, and the output of log and error messages."""

    host: Annotated[
        str | None,
        typer.Option(
            "-h",
            "--host",
            metavar="HOST",
            help="The broker; localhost. Of a cluster HOST,HOST,…: when one does not let us in the"
            " next is tried.",
        ),
    ] = None
    port: Annotated[
        int | None,
        typer.Option(
            "-p", "--port", min=1, max=65_535, metavar="PORT", help="1883, and 8883 with TLS."
        ),
    ] = None
    url: Annotated[
        str | None,
        typer.Option(
            "-L",
            "--url",
            metavar="URL",
            help="mqtt://USER:PASSWORD@HOST:PORT/TOPIC instead, or mqtts://; without topic"
            " ws://HOST:PORT/PATH, wss:// and unix:///PATH. Of a cluster HOST:PORT,HOST:PORT,…",
        ),
    ] = None
    unix: Annotated[
        str | None, typer.Option("--unix", metavar="PATH", help="A Unix socket instead.")
    ] = None
    username: Annotated[
        str | None, typer.Option("-u", "--username", metavar="NAME", help="User name.")
    ] = None
    password: Annotated[
        str | None,
        typer.Option("-P", "--pw", metavar="PASSWORD", help="Password; others see it with 'ps'."),
    ] = None
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="A file with the password in it."),
    ] = None
    keep_alive_s: Annotated[
        int,
        typer.Option("-k", "--keepalive", min=0, max=65_535, metavar="SECONDS", help="Keep alive."),
    ] = 60
    version: Annotated[
        str | None,
        typer.Option("-V", "--protocol-version", metavar="5|3.1.1|3.1", help="Also mqttv311, …; 5"),
    ] = None
    ca_file: Annotated[
        str | None,
        typer.Option("--cafile", metavar="FILE", help="CA file; else the system's CAs."),
    ] = None
    certificate: Annotated[
        str | None, typer.Option("--cert", metavar="FILE", help="Our certificate.")
    ] = None
    key: Annotated[str | None, typer.Option("--key", metavar="FILE", help="Its private key.")] = (
        None
    )
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Do not check the certificate's host name.")
    ] = False
    alpn: Annotated[
        str | None,
        typer.Option("--tls-alpn", metavar="NAME", help="Protocol to name in TLS; only 'mqtt'."),
    ] = None
    system_authorities: Annotated[
        bool, typer.Option("--tls-use-os-certs", help="TLS with the CAs of the system.")
    ] = False
    psk: Annotated[
        str | None,
        typer.Option(
            "--psk",
            metavar="KEY",
            help="Pre-shared key in hexadecimal digits; others see it with 'ps'.",
        ),
    ] = None
    psk_identity: Annotated[
        str | None,
        typer.Option("--psk-identity", metavar="NAME", help="Its identity; needs Python 3.13."),
    ] = None
    debug: Annotated[
        bool, typer.Option("-d", "--debug", help="Print each packet, and other debug logs.")
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no errors.")] = False

    # -- address -----------------------------------------------------------------------------

    def parsed_url(self) -> Url:
        """Return the address of the broker.

        Raises:
            ConfigError: the address is given twice, or is not a URL.
        """
        is_tcp = self.host is not None or self.port is not None
        if (self.url is not None) + (self.unix is not None) + is_tcp > 1:
            raise ConfigError("give only one of -L, --unix, and -h with -p")
        if self.unix is not None:
            return Url(f"unix://{Path(self.unix).absolute()}", None, None, "")
        if self.url is not None:
            return parse_url(self.url)
        host = "localhost" if self.host is None else self.host
        scheme = "mqtts" if self._wants_tls() or self.port == _TLS_PORT else "mqtt"
        port = self.port or (_PORT if scheme == "mqtt" else _TLS_PORT)
        addresses = ",".join(
            f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in host.split(",")
        )
        return Url(f"{scheme}://{addresses}", None, None, "")

    def _wants_tls(self) -> bool:
        values = (self.ca_file, self.certificate, self.key, self.alpn, self.psk, self.psk_identity)
        has_value = any(value is not None for value in values)
        return self.insecure or self.system_authorities or has_value

    # -- login -------------------------------------------------------------------

    def login(self) -> Settings:
        """Return the settings of ``Client`` for version, login, keep alive and TLS.

        Raises:
            ConfigError: the options have a mistake.
        """
        url = self.parsed_url()
        return {
            "version": self._version(),
            "username": url.username if self.username is None else self.username,
            "password": self._password(url),
            "keep_alive_s": self.keep_alive_s,
            "tls": self._tls(url.server),
        }

    def _version(self) -> Version:
        name = "5" if self.version is None else self.version
        version = _VERSIONS.get(name.lower())
        if version is None:
            raise ConfigError(f"-V is {name!r}, and must be one of {', '.join(_VERSIONS)}")
        return version

    def _password(self, url: Url) -> bytes | None:
        if self.password_file is not None:
            if self.password is not None:
                raise ConfigError("give only one of --pw and --password-file")
            try:
                return self.password_file.read_bytes().rstrip(b"\r\n")
            except OSError as error:
                raise ConfigError(
                    f"--password-file {self.password_file}: {error.strerror}"
                ) from error
        return url.password if self.password is None else os.fsencode(self.password)

    def _tls(self, server: str) -> TlsFiles | None:
        if not self._wants_tls():
            return None
        if not server.startswith(("mqtts:", "wss:", "ssl:", "tls:")):
            raise ConfigError(f"{server} speaks no TLS: leave out its options, or say mqtts://")
        if self.alpn not in (None, "mqtt"):
            raise ConfigError("--tls-alpn must be mqtt")
        if (self.psk is None) != (self.psk_identity is None):
            raise ConfigError("--psk and --psk-identity belong together")
        if self.psk is not None and (self.ca_file or self.certificate):
            raise ConfigError("--psk takes the place of --cafile and --cert: leave those out")
        from penstock.transport.dialling import TlsFiles

        return TlsFiles(
            ca=self.ca_file or "",
            certificate=self.certificate or "",
            key=self.key or "",
            check_host_name=not self.insecure,
            alpn=self.alpn is not None,
            psk_identity=self.psk_identity or "",
            psk=self.psk or "",
        )
