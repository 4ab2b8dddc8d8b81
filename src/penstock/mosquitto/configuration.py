"""The parser of Mosquitto's configuration file: lines, by listener and bridge, as Mosquitto reads
them.

A line is an option and its value. `listener` begins a listener and `connection` a bridge; the
options that follow belong to the latest listener and the latest bridge, to the end of the file. An
option of a listener before any `listener` belongs to the default listener. `include_dir` reads all
`*.conf` files of a directory, in the order of their names, in place of its line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.errors import ConfigError
from penstock.mosquitto.findings import Line
from penstock.regular_file import read_regular

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
DEFAULT_PORT: Final = 1883


def option_names(text: str) -> frozenset[str]:
    """Return the set of the words in ``text``."""
    return frozenset(text.split())


LISTENER_OPTIONS: Final = option_names(
    "accept_protocol_versions bind_interface cafile capath certfile ciphers ciphers_tls1.3"
    " crlfile disable_client_cert_date_checks enable_proxy_protocol http_dir keyfile"
    " listener_allow_anonymous listener_auto_id_prefix max_connections max_qos"
    " max_topic_alias max_topic_alias_broker maximum_qos mount_point plugin_use protocol"
    " proxy_protocol_v2_require_tls psk_hint require_certificate socket_domain tls_engine"
    " tls_engine_kpass_sha1 tls_keyform tls_version use_identity_as_username"
    " use_subject_as_username use_username_as_clientid websockets_origin"
)
SECURITY_OPTIONS: Final = option_names(
    "acl_file allow_anonymous allow_zero_length_clientid auth_plugin auto_id_prefix"
    " password_file plugin psk_file"
)
"""Options of each listener with `per_listener_settings true`, of the whole broker without it."""

BRIDGE_OPTIONS: Final = option_names(
    "address addresses bridge_alpn bridge_attempt_unsubscribe bridge_bind_address"
    " bridge_cafile bridge_capath bridge_certfile bridge_ciphers bridge_ciphers_tls1.3"
    " bridge_identity bridge_insecure bridge_keyfile bridge_max_packet_size"
    " bridge_max_topic_alias bridge_outgoing_retain bridge_protocol_version bridge_psk"
    " bridge_receive_maximum bridge_reload_type bridge_require_ocsp"
    " bridge_session_expiry_interval bridge_tcp_keepalive bridge_tcp_user_timeout"
    " bridge_tls_use_os_certs bridge_tls_version cleansession clientid idle_timeout"
    " keepalive_interval local_cleansession local_clientid local_password local_username"
    " notification_topic notifications notifications_local_only password remote_clientid"
    " remote_password remote_username restart_timeout round_robin start_type threshold topic"
    " try_private username"
)
_SECTION_OPTIONS: Final = frozenset(("port", "bind_address", "listener", "connection"))


@dataclass
class ListenerSection:
    """One listener and its lines.

    Attributes:
        opening: its `listener` or `port` line; None for a default listener without one.
        port: the port; 0 for a Unix socket.
        host: the address to listen on; empty for all addresses.
        socket: the path of the Unix socket; empty for a TCP port.
        is_local: whether only this machine may connect, as in Mosquitto 2 without a `listener`.
        lines: the other lines of the listener.
    """

    opening: Line | None
    port: int = DEFAULT_PORT
    host: str = ""
    socket: str = ""
    is_local: bool = False
    lines: list[Line] = field(default_factory=list)


@dataclass
class BridgeSection:
    """One bridge: its `connection` line, and its other lines."""

    opening: Line
    lines: list[Line] = field(default_factory=list)


@dataclass
class Configuration:
    """All lines of a configuration, sorted into general lines, listeners and bridges.

    Attributes:
        path: the file.
        general: the lines that belong to no listener and no bridge.
        listeners: the listeners in their order; a local one if the file has none.
        bridges: the bridges in their order.
        is_per_listener: whether the file has `per_listener_settings true`.
        files: all files that were read.
    """

    path: Path
    general: list[Line] = field(default_factory=list)
    listeners: list[ListenerSection] = field(default_factory=list)
    bridges: list[BridgeSection] = field(default_factory=list)
    is_per_listener: bool = False
    files: list[Path] = field(default_factory=list)

    def lines(self) -> list[Line]:
        """Return all lines, each once."""
        found = list(self.general)
        sections: list[ListenerSection | BridgeSection] = [*self.listeners, *self.bridges]
        for section in sections:
            if section.opening is not None:
                found.append(section.opening)
            found += section.lines
        return found

    def last(self, option: str) -> Line | None:
        """Return the last general line with ``option``; None without one."""
        found = [line for line in self.general if line.option == option]
        return found[-1] if found else None


def read_configuration(path: Path) -> Configuration:
    """Return the configuration in ``path`` and the files that it includes.

    Raises:
        ConfigError: a file cannot be read, is no UTF-8 text, or has a `listener` without a port.
    """
    found = Configuration(path)
    _ConfigurationParser(found).parse(path, may_include=True)
    if not found.listeners:
        found.listeners.append(ListenerSection(None))
    if all(section.opening is None for section in found.listeners):
        for section in found.listeners:  # Mosquitto 2 without a `listener` is for this machine only
            section.host = "127.0.0.1"
            section.is_local = True
    return found


def looks_like_mosquitto(path: Path) -> bool:
    """Return whether the file ``path`` is a configuration of Mosquitto's, and not TOML.

    The first line that is neither empty nor a comment must begin with an option of Mosquitto's,
    without an equals sign behind it. An empty file is recognised by its name.
    """
    try:
        lines = read_text(path, "file").splitlines()
    except ConfigError:
        return False
    stripped = [line.strip() for line in lines]
    statements = [line for line in stripped if line and not line.startswith("#")]
    if not statements:
        return path.name == "mosquitto.conf"
    option, _, value = statements[0].partition(" ")
    return is_known(option) and not value.lstrip().startswith("=")


def is_known(option: str) -> bool:
    """Return whether Mosquitto 2.0 or 2.1 has an option of this name."""
    from penstock.mosquitto.broker_options import GENERAL_OPTIONS

    if option.startswith(("auth_opt_", "plugin_opt_")):
        return True
    known = (LISTENER_OPTIONS, SECURITY_OPTIONS, BRIDGE_OPTIONS, GENERAL_OPTIONS, _SECTION_OPTIONS)
    return any(option in group for group in known)


def read_text(path: Path, kind: str) -> str:
    """Return the text in ``path``; ``kind`` says in error messages what kind of file it is.

    Raises:
        ConfigError: the file cannot be read, is too large, or is not UTF-8.
    """
    try:
        content = read_regular(path, FILE_BYTES_MAX)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigError(f"Mosquitto's {kind} {path} cannot be read: {reason}.") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"Mosquitto's {kind} {path} is not UTF-8 text.") from None


def read_lines(path: Path, kind: str) -> list[Line]:
    """Return the lines of ``path`` that are neither empty nor a comment, `option value` each.

    Raises:
        ConfigError: as for ``read_text``.
    """
    found: list[Line] = []
    for number, raw in enumerate(read_text(path, kind).split("\n"), start=1):
        line = raw.rstrip("\r")
        if not line.strip() or line.startswith("#"):
            continue
        option, _, value = line.strip(" ").partition(" ")
        found.append(Line(path, number, option, value.strip(" \t")))
    return found


class _ConfigurationParser:
    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._default: ListenerSection | None = None

    def parse(self, path: Path, *, may_include: bool) -> None:
        configuration = self._configuration
        configuration.files.append(path)
        listener: ListenerSection | None = None
        bridge: BridgeSection | None = None
        for line in read_lines(path, "configuration"):
            option = line.option
            if option == "include_dir":
                if not may_include:
                    raise ConfigError(
                        f"{line.place}: include_dir is in an included file, and allowed in the"
                        " main file only; Mosquitto refuses it, too."
                    )
                configuration.general.append(line)
                self._include(line)
            elif option == "per_listener_settings":
                configuration.is_per_listener |= is_true(line.value)
                configuration.general.append(line)
            elif option == "listener":
                listener = _parse_listener(line)
                configuration.listeners.append(listener)
            elif option in ("port", "bind_address"):
                listener = self._default_listener(line)
            elif option == "connection":
                bridge = BridgeSection(line)
                configuration.bridges.append(bridge)
            elif option in BRIDGE_OPTIONS and bridge is not None:
                bridge.lines.append(line)
            elif option in LISTENER_OPTIONS or (
                option in SECURITY_OPTIONS and configuration.is_per_listener
            ):
                listener = listener or self._default_listener(None)
                listener.lines.append(line)
            else:
                configuration.general.append(line)

    def _include(self, line: Line) -> None:
        directory = Path(line.value)
        try:
            files = sorted(path for path in directory.iterdir() if path.name.endswith(".conf"))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"{line.place}: the directory {directory} cannot be read: {reason}."
            ) from None
        for path in files:
            self.parse(path, may_include=False)

    def _default_listener(self, line: Line | None) -> ListenerSection:
        """Return the default listener, with the `port` or `bind_address` of ``line``, if there is
        one."""
        if self._default is None:
            self._default = ListenerSection(line)
            self._configuration.listeners.append(self._default)
        elif self._default.opening is None:
            self._default.opening = line
        elif line is not None:
            self._default.lines.append(line)
        if line is not None and line.option == "port":
            self._default.port = _parse_port(line, line.value)
        elif line is not None:
            self._default.host = line.value
        return self._default


def _parse_listener(line: Line) -> ListenerSection:
    words = line.value.split("#")[0].split()
    port = _parse_port(line, words[0] if words else "")
    host_or_path = words[1] if len(words) > 1 else ""
    if port == 0 and not host_or_path:
        raise ConfigError(f"{line.place}: a listener with port 0 needs the path of a Unix socket.")
    if port == 0:
        return ListenerSection(line, 0, socket=host_or_path)
    return ListenerSection(line, port, host=host_or_path)


def _parse_port(line: Line, text: str) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > 65_535:
        raise ConfigError(f"{line.place}: {text!r} is not a port; Mosquitto refuses it, too.")
    return int(text)


def is_true(value: str) -> bool:
    """Return whether Mosquitto takes ``value`` for true."""
    return value.strip() in ("true", "1")
