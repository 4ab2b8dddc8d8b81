"""The options of one listener of Mosquitto's: each a setting of Penstock's, or a sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from penstock.config.listener import MAIN_LISTENER
from penstock.config.values import checked_mount_point
from penstock.mosquitto.authorities import certificates_in
from penstock.mosquitto.configuration import ListenerSection
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings, Line
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.values import number_of, truth_of

_VERSIONS: Final = {"3": "3.1", "4": "3.1.1", "5": "5"}
_ID_PREFIX_CHARS_MAX: Final = 50

_NOTES: Final[dict[str, tuple[str, str]]] = {
    "ciphers": (
        MISSING,
        (
            "TLS 1.2 and 1.3 are spoken with the ciphers that OpenSSL offers by default; there is"
            " nothing to set."
        ),
    ),
    "ciphers_tls1.3": (
        MISSING,
        (
            "TLS 1.3 is spoken with the ciphers that OpenSSL offers by default; there is nothing to"
            " set."
        ),
    ),
    "disable_client_cert_date_checks": (
        MISSING,
        "A client certificate that has expired is refused: renew it.",
    ),
    "http_dir": (MISSING, "Files are not served: use a web server."),
    "proxy_protocol_v2_require_tls": (
        MISSING,
        "Whether the balancer's client spoke TLS is not looked at: let the balancer refuse it.",
    ),
    "tls_engine": (MISSING, "OpenSSL engines are not loaded: give the key as a PEM file."),
    "tls_engine_kpass_sha1": (MISSING, "OpenSSL engines are not loaded: give the key as a file."),
    "tls_keyform": (MISSING, "Keys are PEM files, without a password."),
    "use_username_as_clientid": (
        MISSING,
        (
            "Clients keep the client identifier that they send. A session belongs to the user who"
            " made it (access.client_ids_shared), and an access list may name %u."
        ),
    ),
}


@final
class ListenerOptions:
    """One listener, translated.

    Args:
        section: its lines.
        name: its name in Penstock.
        findings: the findings, to which those of its lines are added.
        offers: settings of every listener: name, value and the line they are from.
        bundles: files to write, certificates of a directory joined; one may be added.
        directory: the place of the bundles.
    """

    def __init__(
        self,
        section: ListenerSection,
        name: str,
        findings: Findings,
        offers: list[tuple[str, object, Line]],
        bundles: dict[str, str],
        directory: Path,
    ) -> None:
        is_main = name == MAIN_LISTENER
        opening = section.opening
        self.table = Table("[listener]" if is_main else "[[listener.others]]")
        if not is_main:
            self.table.set("name", name, "")
        self.left_out = ""
        self.identity: tuple[str, Line] | None = None
        self.others: list[Line] = []  # lines that are not about a listener
        self._section = section
        self._findings = findings
        self._bundles = bundles
        self._directory = directory
        self._values: dict[str, Line] = {}
        for line in section.lines:
            self._values[line.option] = line
        self._handlers: dict[str, Callable[[Line], None]] = {
            "accept_protocol_versions": self._versions,
            "auto_id_prefix": self._id_prefix,
            "bind_address": self._note_already_translated,
            "bind_interface": self._interface,
            "cafile": self._authorities,
            "capath": self._authorities,
            "certfile": self._certificate,
            "crlfile": self._revoked,
            "enable_proxy_protocol": self._proxy,
            "keyfile": self._key,
            "listener_auto_id_prefix": self._id_prefix,
            "max_connections": self._connections,
            "max_qos": self._qos,
            "max_topic_alias": self._aliases_in,
            "max_topic_alias_broker": self._aliases_out,
            "maximum_qos": self._qos,
            "mount_point": self._mount_point,
            "port": self._note_already_translated,
            "protocol": self._note_already_translated,
            "psk_hint": self._pre_shared,
            "require_certificate": self._note_already_translated,
            "socket_domain": self._note_already_translated,
            "tls_version": self._tls_version,
            "use_identity_as_username": self._common_name,
            "use_subject_as_username": self._subject,
            "websockets_origin": self._origin,
        }
        self._open(opening)
        for setting, value, why in offers:
            self.table.set(setting, value, why)
        for line in section.lines:
            handler = self._handlers.get(line.option)
            if handler is not None:
                handler(line)
            elif line.option in _NOTES:
                kind, says = _NOTES[line.option]
                findings.add(kind, line, says)
            else:
                self.others.append(line)
        if ("certfile" in self._values) != ("keyfile" in self._values):
            self.left_out = (
                self.left_out or "it needs both certfile and keyfile, in Mosquitto, too."
            )
        if self._asks_for_certificate and not self.left_out and not self.table.get("client_ca"):
            self.left_out = "it requires client certificates, and names no authority for them."
            findings.add(MISSING, self._values["require_certificate"], "No authority is named.")

    # -- the address and the transport -----------------------------------------------------

    def _open(self, opening: Line | None) -> None:
        section = self._section
        is_tls = "certfile" in self._values
        protocol = self._values.get("protocol")
        kind = "tls" if is_tls else "tcp"
        if section.socket:
            kind = "unix"
            if protocol is not None and protocol.value.split()[:1] != ["mqtt"]:
                self.left_out = "only MQTT itself is spoken over a Unix socket."
                self._findings.add(MISSING, protocol, "A Unix socket speaks MQTT only.")
        elif protocol is not None and protocol.value.split()[:1] == ["websockets"]:
            kind = "wss" if is_tls else "ws"
        elif protocol is not None and protocol.value.split()[:1] == ["http_api"]:
            self.left_out = "Mosquitto's HTTP API is asked otherwise here: see docs/control.md."
            self._findings.add(MISSING, protocol, "There is no such API.")
        bind = section.socket or self._address()
        why: Line | str = opening or "Mosquitto without a listener: this machine only"
        if kind != "tcp":
            self.table.set("kind", kind, protocol or self._values.get("certfile") or why)
        self.table.set("bind", bind, why)
        if opening is not None and not self.left_out:
            more = ""
            if not section.socket and not section.host and "socket_domain" not in self._values:
                more = " Mosquitto takes IPv6 there, too: add a listener at [::] if you need it."
            self._findings.add(
                DIFFERS if more else TAKEN, opening, f'a listener of kind "{kind}" at {bind}.{more}'
            )
        if kind in ("ws", "wss") and protocol is not None:
            self.table.set("path", "/mqtt", protocol)
            self._findings.add(
                DIFFERS,
                protocol,
                'listener.kind and listener.path = "/mqtt": Mosquitto takes any path,'
                " here clients use this one.",
            )
        elif protocol is not None and not self.left_out:
            self._findings.add(TAKEN, protocol, f'listener.kind = "{kind}".')

    def _address(self) -> str:
        section = self._section
        domain = self._values.get("socket_domain")
        host = section.host
        if domain is not None:
            self._findings.add(
                TAKEN if not host else SAME, domain, "It is told by the address of listener.bind."
            )
        interface = self._values.get("bind_interface")
        if not host and interface is not None:
            host = "127.0.0.1"
        if not host:
            host = "::" if domain is not None and domain.value == "ipv6" else "0.0.0.0"  # noqa: S104
        return f"[{host}]:{section.port}" if ":" in host else f"{host}:{section.port}"

    def _note_already_translated(self, line: Line) -> None:
        """Record the outcome of a line that was translated with the address or the certificate."""
        if line.option in ("port", "bind_address"):
            self._findings.add(TAKEN, line, f"listener.bind = {self.table.get('bind')}.")
        elif line.option == "require_certificate" and not self._asks_for_certificate:
            self._findings.add(TAKEN, line, "No client certificate is asked for.")

    def _interface(self, line: Line) -> None:
        if self._section.host:
            self._findings.add(
                DIFFERS, line, "The listener is bound to its address, and not to the interface."
            )
            return
        self._findings.add(
            MISSING,
            line,
            "A listener is bound to an address, not to an interface: it listens on 127.0.0.1 until"
            " you write the interface's address into listener.bind.",
        )

    def _proxy(self, line: Line) -> None:
        version = {"1": "v1", "2": "v2"}.get(line.value)
        if version is None:
            self._findings.add(MISSING, line, "Mosquitto does not accept this value, either.")
            return
        self.table.set("proxy_protocol", version, line)
        self.table.set(
            "proxy_networks", ["127.0.0.0/8", "::1/128"], "load balancers on this machine"
        )
        self._findings.add(
            DIFFERS,
            line,
            f'listener.proxy_protocol = "{version}", believed from this machine only: write the'
            " networks of your load balancers into listener.proxy_networks.",
        )

    # -- TLS -------------------------------------------------------------------------------

    @property
    def _asks_for_certificate(self) -> bool:
        line = self._values.get("require_certificate")
        return line is not None and line.value.split()[:1] in (["true"], ["1"])

    def _certificate(self, line: Line) -> None:
        self.table.set("certificate", _absolute(line.value), line)
        self._findings.add(TAKEN, line, "listener.certificate.")

    def _key(self, line: Line) -> None:
        self.table.set("key", _absolute(line.value), line)
        self._findings.add(
            TAKEN,
            line,
            "listener.key; the broker's user must be able to read it.",
        )

    def _authorities(self, line: Line) -> None:
        if not self._asks_for_certificate:
            self._findings.add(
                SAME, line, "No client certificate is required, so no authority is needed."
            )
            return
        required = self._values["require_certificate"]
        if line.option == "capath":
            if "cafile" in self._values:
                self._findings.add(
                    MISSING,
                    line,
                    "listener.client_ca is one file, that of cafile: add these authorities to it.",
                )
                return
            file = self._bundle(line)
            if file is None:
                return
        else:
            file = _absolute(line.value)
            self._findings.add(TAKEN, line, "listener.client_ca.")
        self.table.set("client_ca", file, line)
        self.table.set("require_client_certificate", True, required)
        self._findings.add(TAKEN, required, "listener.require_client_certificate = true.")

    def _bundle(self, line: Line) -> str | None:
        """Join the certificates of a directory; return the name of the file, to be written."""
        try:
            texts = certificates_in(Path(line.value))
        except OSError as error:
            self.left_out = (
                f"its authorities in {line.value} cannot be read ({error.strerror or error}), and"
                " without them no client certificate can be required."
            )
            return None
        if not texts:
            self.left_out = f"there is no certificate of an authority in {line.value}."
            return None
        name = f"client_ca_{self._section.port}.pem"
        self._bundles[name] = "".join(texts)
        self._findings.add(
            DIFFERS,
            line,
            f"listener.client_ca = {name}, one file with the {len(texts)} certificates of that"
            " directory: add later ones there.",
        )
        return str(self._directory / name)

    def _revoked(self, line: Line) -> None:
        if not self._asks_for_certificate:
            self._findings.add(SAME, line, "No client certificate is required, so none is revoked.")
            return
        self.table.set("crl", _absolute(line.value), line)
        self._findings.add(
            DIFFERS, line, "listener.crl: when the list has expired, all clients are refused."
        )

    def _tls_version(self, line: Line) -> None:
        if line.value == "tlsv1.3":
            self._findings.add(
                MISSING, line, "TLS 1.2 is accepted beside 1.3; there is no setting against it."
            )
        elif line.value == "tlsv1.2":
            self._findings.add(SAME, line, "TLS 1.2 and 1.3 are accepted.")
        else:
            self._findings.add(DIFFERS, line, "TLS 1.2 is the oldest version that is accepted.")

    def _pre_shared(self, line: Line) -> None:
        self._findings.add(
            MISSING, line, "TLS with pre-shared keys is not spoken: use certificates or passwords."
        )
        self.left_out = "its clients prove themselves by a pre-shared key (TLS-PSK)."

    def _common_name(self, line: Line) -> None:
        self._names_users(line, "common_name")

    def _subject(self, line: Line) -> None:
        self._names_users(line, "subject")

    def _names_users(self, line: Line, part: str) -> None:
        if not truth_of(line, self._findings):
            if line.value.split()[:1] in (["false"], ["0"]):
                self._findings.add(SAME, line, "User names are those of CONNECT.")
            return
        if not self._asks_for_certificate:
            self._findings.add(
                MISSING,
                line,
                "The user is taken from certificates that a listener asks for: set"
                " listener.client_ca and access.identity_from_certificate.",
            )
            return
        self.identity = (part, line)
        more = "" if part == "common_name" else " The subject is written in the form of RFC 4514."
        self._findings.add(
            DIFFERS,
            line,
            f'access.identity_from_certificate = "{part}", of every listener with client_ca.{more}',
        )

    # -- what it offers --------------------------------------------------------------------

    def _versions(self, line: Line) -> None:
        words = line.value.replace(",", " ").split()
        versions = [_VERSIONS[word] for word in words if word in _VERSIONS]
        if not versions:
            self._findings.add(MISSING, line, "Mosquitto knows no such version, either.")
            return
        self.table.set("accept_protocol_versions", versions, line)
        self._findings.add(
            TAKEN, line, f"listener.accept_protocol_versions = {', '.join(versions)}."
        )

    def _id_prefix(self, line: Line) -> None:
        self.table.set("auto_id_prefix", line.value[:_ID_PREFIX_CHARS_MAX], line)
        self._findings.add(TAKEN, line, f"listener.auto_id_prefix = {line.value!r}.")

    def _connections(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is None:
            return
        if value < 1:
            self._findings.add(
                DIFFERS,
                line,
                "listener.max_connections has a bound in any case, 10,000 unless you set it.",
            )
            return
        self.table.set("max_connections", min(value, 1_000_000), line)
        self._findings.add(TAKEN, line, f"listener.max_connections = {min(value, 1_000_000)}.")

    def _qos(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None and 0 <= value <= 2:
            self.table.set("maximum_qos", value, line)
            self._findings.add(TAKEN, line, f"listener.maximum_qos = {value}.")
        elif value is not None:
            self._findings.add(MISSING, line, "Mosquitto does not accept this value, either.")

    def _aliases_in(self, line: Line) -> None:
        self._own_limit(line, "topic_alias_maximum")

    def _aliases_out(self, line: Line) -> None:
        self._own_limit(line, "topic_alias_outbound_max")

    def _own_limit(self, line: Line, name: str) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            value = max(0, min(value, 65_535))
            self.table.put_into("limits", name, value, line)
            self._findings.add(TAKEN, line, f"limits.{name} = {value}, of this listener.")

    def _mount_point(self, line: Line) -> None:
        try:
            checked_mount_point(line.value)
        except ValueError as error:
            self._findings.add(MISSING, line, f"listener.mount_point must be {error}.")
            self.left_out = (
                "without its mount_point its clients would reach the topics of all the others."
            )
            return
        self.table.set("mount_point", line.value, line)
        self._findings.add(
            DIFFERS,
            line,
            f"listener.mount_point = {line.value!r}. Access lists name whole topics here, with it.",
        )

    def _origin(self, line: Line) -> None:
        known = self.table.get("origins")
        origins = [*known, line.value] if isinstance(known, list) else [line.value]
        self.table.set("origins", origins, line)
        self._findings.add(TAKEN, line, f"listener.origins has {line.value}.")


def _absolute(file: str) -> str:
    return str(Path(file).absolute())
