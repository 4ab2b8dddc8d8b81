"""The options that say where the broker is and who we are, as mosquitto_pub has them.

One of three says where: ``-h`` and ``-p``, ``-L URL``, or ``--unix PATH``. TLS is spoken where an
option of it is given, to port 8883, and to ``mqtts://`` and ``wss://``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import unquote

import typer

from penstock.errors import ConfigError
from penstock.protocol.properties import Properties

if TYPE_CHECKING:
    from penstock.client.options import Settings, Version
    from penstock.protocol.packets import Will
    from penstock.transport.dialling import TlsFiles

HELP_ONLY_LONG: Final = {"help_option_names": ["--help"]}
"""For commands whose ``-h`` is the host."""

_TLS_PORT: Final = 8883
_PORT: Final = 1883
_FOR_EVER_S: Final = 0xFFFF_FFFF
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
    "mqtt://[USER[:PASSWORD]@]HOST[:PORT][/TOPIC], mqtts://…, ws://HOST:PORT/PATH, wss://… or"
    " unix:///PATH"
)


@dataclass(frozen=True, slots=True)
class Url:
    """What ``-L`` says.

    Attributes:
        server: without user, password and topic.
        username: user name; None if there is none.
        password: None if there is none.
        topic: empty if there is none.
    """

    server: str
    username: str | None
    password: bytes | None
    topic: str


def parse_url(text: str) -> Url:
    """Read a URL as mosquitto_pub does: what comes after the host is the topic, as it stands.

    User and password may be percent-encoded.

    Raises:
        ConfigError: it is none.
    """
    scheme, found, rest = text.partition("://")
    if not found:
        raise ConfigError(f"-L must be {_URL_FORM}")
    authority, slash, path = rest.partition("/")
    login, at, place = authority.rpartition("@")
    name, colon, password = login.partition(":")
    topic = ""
    server = f"{scheme}://{place}"
    if scheme in _URLS_WITH_TOPIC:
        topic = path
    else:
        server += slash + path
    return Url(
        server,
        unquote(name) if at else None,
        unquote(password).encode() if colon else None,
        topic,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where the broker is, who we are, and how much is told of it."""

    host: Annotated[
        str | None, typer.Option("-h", "--host", metavar="HOST", help="The broker; localhost.")
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
            " ws://HOST:PORT/PATH, wss:// and unix:///PATH.",
        ),
    ] = None
    unix: Annotated[
        str | None, typer.Option("--unix", metavar="PATH", help="A Unix socket instead.")
    ] = None
    username: Annotated[
        str | None, typer.Option("-u", "--username", metavar="NAME", help="User name.")
    ] = None
    password: Annotated[
        str | None, typer.Option("-P", "--pw", metavar="PASSWORD", help="Others see it with 'ps'.")
    ] = None
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="A file with the password in it."),
    ] = None
    client_id: Annotated[
        str | None,
        typer.Option("-i", "--id", metavar="ID", help="Client identifier; one nobody else has."),
    ] = None
    id_prefix: Annotated[
        str | None,
        typer.Option("-I", "--id-prefix", metavar="PREFIX", help="-i PREFIX and the process id."),
    ] = None
    keep_alive_s: Annotated[
        int,
        typer.Option("-k", "--keepalive", min=0, max=65_535, metavar="SECONDS", help="Keep alive."),
    ] = 60
    keeps_session: Annotated[
        bool,
        typer.Option(
            "-c",
            "--disable-clean-session",
            help="Take up the session of -i, which the broker keeps for the next time, too.",
        ),
    ] = False
    session_expiry: Annotated[
        str | None,
        typer.Option(
            "-x",
            "--session-expiry-interval",
            metavar="SECONDS",
            help="How long the broker keeps the session; -1 for ever, which is also what -c says.",
        ),
    ] = None
    version: Annotated[
        str | None,
        typer.Option("-V", "--protocol-version", metavar="5|3.1.1|3.1", help="Also mqttv311, …; 5"),
    ] = None
    ca_file: Annotated[
        str | None,
        typer.Option("--cafile", metavar="FILE", help="Authorities; those of the system."),
    ] = None
    certificate: Annotated[
        str | None, typer.Option("--cert", metavar="FILE", help="Our certificate.")
    ] = None
    key: Annotated[str | None, typer.Option("--key", metavar="FILE", help="Its key.")] = None
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Take a certificate for another host, too.")
    ] = False
    alpn: Annotated[
        str | None,
        typer.Option("--tls-alpn", metavar="NAME", help="Protocol to name in TLS; only 'mqtt'."),
    ] = None
    system_authorities: Annotated[
        bool, typer.Option("--tls-use-os-certs", help="TLS with the authorities of the system.")
    ] = False
    will_topic: Annotated[
        str | None,
        typer.Option("--will-topic", metavar="TOPIC", help="Where our loss is published."),
    ] = None
    will_payload: Annotated[
        str | None, typer.Option("--will-payload", metavar="TEXT", help="What is said then.")
    ] = None
    will_qos: Annotated[int, typer.Option("--will-qos", min=0, max=2, metavar="0|1|2")] = 0
    will_retain: Annotated[bool, typer.Option("--will-retain", help="It is retained.")] = False
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "-D",
            "--property",
            metavar="COMMAND IDENTIFIER VALUE",
            help="An MQTT 5 property, such as 'publish content-type text/plain' or 'publish"
            " user-property NAME VALUE'.",
        ),
    ] = None
    debug: Annotated[bool, typer.Option("-d", "--debug", help="Tell what happens.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Tell no errors.")] = False

    # -- where -----------------------------------------------------------------------------

    def parsed_url(self) -> Url:
        """Where the broker is.

        Raises:
            ConfigError: it is said twice, or is no URL.
        """
        is_tcp = self.host is not None or self.port is not None
        if (self.url is not None) + (self.unix is not None) + is_tcp > 1:
            raise ConfigError("give only one of -L, --unix, and -h with -p")
        if self.unix is not None:
            return Url(f"unix://{Path(self.unix).absolute()}", None, None, "")
        if self.url is not None:
            return parse_url(self.url)
        host = "localhost" if self.host is None else self.host
        scheme = "mqtts" if self._asks_for_tls() or self.port == _TLS_PORT else "mqtt"
        port = self.port or (_PORT if scheme == "mqtt" else _TLS_PORT)
        return Url(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", None, None, "")

    def topics(self, given: list[str] | None) -> list[str]:
        """Those of ``-t`` and the one of ``-L``."""
        of_url = self.parsed_url().topic
        return [*(given or []), *([of_url] if of_url else [])]

    def _asks_for_tls(self) -> bool:
        named = (self.ca_file, self.certificate, self.key, self.alpn)
        return self.insecure or self.system_authorities or any(name is not None for name in named)

    # -- who -------------------------------------------------------------------------------

    def settings(self, properties: dict[str, Properties], *, durable: bool = False) -> Settings:
        """For ``Client``, beside the URL.

        Args:
            properties: of ``-D``, by command.
            durable: there is an outbox, which has a session without end.

        Raises:
            ConfigError: a mistake in the options.
        """
        url = self.parsed_url()
        version = self._version(bool(properties))
        client_id = self._client_id()
        expiry_s = self._expiry_s()
        if (self.keeps_session or expiry_s == _FOR_EVER_S) and not client_id and not durable:
            raise ConfigError("a session that is kept needs a client identifier: give -i")
        connect = properties.get("connect") or Properties()
        if connect.session_expiry_interval is not None:
            if expiry_s is not None:
                raise ConfigError("give only one of -x and -D connect session-expiry-interval")
            expiry_s = connect.session_expiry_interval
        settings: Settings = {
            "client_id": client_id,
            "version": version,
            "username": url.username if self.username is None else self.username,
            "password": self._password(url),
            "clean_start": None if durable else not self.keeps_session,
            "session_expiry_s": expiry_s,
            "keep_alive_s": self.keep_alive_s,
            "will": self._will(properties.get("will")),
            "user_properties": connect.user_properties or [],
            "tls": self._tls(url.server),
        }
        if connect.receive_maximum is not None:
            settings["receive_maximum"] = connect.receive_maximum
        if connect.maximum_packet_size is not None:
            settings["packet_bytes_max"] = connect.maximum_packet_size
        return settings

    def _version(self, has_properties: bool) -> Version:
        given = "5" if self.version is None else self.version
        version = _VERSIONS.get(given.lower())
        if version is None:
            raise ConfigError(f"-V is {given!r}, and must be one of {', '.join(_VERSIONS)}")
        if has_properties and version != "5":
            raise ConfigError("-D needs MQTT 5: leave out -V")
        return version

    def _client_id(self) -> str:
        if self.id_prefix is None:
            return self.client_id or ""
        if self.client_id is not None:
            raise ConfigError("give only one of -i and -I")
        return f"{self.id_prefix}{os.getpid()}"

    def _expiry_s(self) -> int | None:
        if self.session_expiry is None:
            return _FOR_EVER_S if self.keeps_session else None
        if self.session_expiry in ("-1", "∞"):
            return _FOR_EVER_S
        if not self.session_expiry.isdecimal() or int(self.session_expiry) > _FOR_EVER_S:
            raise ConfigError("-x must be 0 to 4294967295 seconds, or -1 for ever")
        return int(self.session_expiry)

    def _password(self, url: Url) -> bytes | None:
        if self.password_file is not None:
            if self.password is not None:
                raise ConfigError("give only one of -P and --password-file")
            try:
                return self.password_file.read_bytes().rstrip(b"\r\n")
            except OSError as error:
                raise ConfigError(
                    f"--password-file {self.password_file}: {error.strerror}"
                ) from error
        return url.password if self.password is None else os.fsencode(self.password)

    def _tls(self, server: str) -> TlsFiles | None:
        if not self._asks_for_tls():
            return None
        if not server.startswith(("mqtts:", "wss:", "ssl:", "tls:")):
            raise ConfigError(f"{server} speaks no TLS: leave out its options, or say mqtts://")
        if self.alpn not in (None, "mqtt"):
            raise ConfigError("--tls-alpn must be mqtt")
        from penstock.transport.dialling import TlsFiles

        return TlsFiles(
            ca=self.ca_file or "",
            certificate=self.certificate or "",
            key=self.key or "",
            check_host_name=not self.insecure,
            alpn=self.alpn is not None,
        )

    def _will(self, properties: Properties | None) -> Will | None:
        if self.will_topic is None:
            if self.will_payload is not None or self.will_qos or self.will_retain or properties:
                raise ConfigError("a will needs --will-topic")
            return None
        from penstock.protocol.packets import Will

        payload = os.fsencode(self.will_payload or "")
        return Will(self.will_topic, payload, self.will_qos, self.will_retain, properties)
