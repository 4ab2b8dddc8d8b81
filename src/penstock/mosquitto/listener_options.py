"""The translation of one listener of Mosquitto's: each option becomes a setting, or a finding with
advice."""

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
from penstock.mosquitto.values import parse_boolean, parse_number

_VERSIONS: Final = {"3": "3.1", "4": "3.1.1", "5": "5"}
_ID_PREFIX_CHARS_MAX: Final = 50

_NOTES: Final[dict[str, tuple[str, str]]] = {
    "ciphers": (
        MISSING,
        ("TLS 1.2 and 1.3 use OpenSSL's default ciphers; there is no setting for others."),
    ),
    "ciphers_tls1.3": (
        MISSING,
        ("TLS 1.3 uses OpenSSL's default ciphers; there is no setting for others."),
    ),
    "disable_client_cert_date_checks": (
        MISSING,
        "A client certificate that has expired is refused: renew it.",
    ),
    "http_dir": (MISSING, "Files are not served: use a web server."),
    "proxy_protocol_v2_require_tls": (
        MISSING,
        "Penstock does not check that the balancer's client used TLS: let the balancer refuse it.",
    ),
    "tls_engine": (MISSING, "OpenSSL engines are not loaded: give the key as a PEM file."),
    "tls_engine_kpass_sha1": (MISSING, "OpenSSL engines are not loaded: give the key as a file."),
    "tls_keyform": (MISSING, "Keys are PEM files, without a password."),
    "use_username_as_clientid": (
        MISSING,
        (
            "Clients keep the client identifier that they send. A session belongs to the user that"
            " made it (access.client_ids_shared), and an access list may name %u."
        ),
    ),
}


@final
class TranslatedListener:
    """The translation of one listener.

    Args:
        section: the lines of the listener.
        name: its name in Penstock.
        findings: the findings, to which one for each of its lines is added.
        shared_settings: settings of every listener: name, value and the line that they are from.
        bundles: text by name of the files to write, with all certificates of a directory; the
            listener may add one.
        directory: the directory of the bundles.

    Attributes:
        table: its settings.
        omission_reason: why the listener is left out, one sentence; empty if it is not.
        identity: the part of certificates that is the user name, and the line that says so.
        general_lines: lines of the section that are not about a listener.
    """

    def __init__(
        self,
        section: ListenerSection,
        name: str,
        findings: Findings,
        shared_settings: list[tuple[str, object, Line]],
        bundles: dict[str, str],
        directory: Path,
    ) -> None:
        is_main = name == MAIN_LISTENER
        opening = section.opening
        self.table = Table("[listener]" if is_main else "[[listener.others]]")
        if not is_main:
            self.table.set("name", name, "")
        self.omission_reason = ""
        self.identity: tuple[str, Line] | None = None
        self.general_lines: list[Line] = []
        self._section = section
        self._findings = findings
        self._bundles = bundles
        self._directory = directory
        self._values: dict[str, Line] = {}
        for line in section.lines:
            self._values[line.option] = line
        self._handlers: dict[str, Callable[[Line], None]] = {
            "accept_protocol_versions": self._set_versions,
            "auto_id_prefix": self._set_id_prefix,
            "bind_address": self._note_translated_line,
            "bind_interface": self._note_interface,
            "cafile": self._set_client_ca,
            "capath": self._set_client_ca,
            "certfile": self._set_certificate,
            "crlfile": self._set_crl,
            "enable_proxy_protocol": self._set_proxy_protocol,
            "keyfile": self._set_key,
            "listener_auto_id_prefix": self._set_id_prefix,
            "max_connections": self._set_max_connections,
            "max_qos": self._set_maximum_qos,
            "max_topic_alias": self._set_inbound_aliases,
            "max_topic_alias_broker": self._set_outbound_aliases,
            "maximum_qos": self._set_maximum_qos,
            "mount_point": self._set_mount_point,
            "port": self._note_translated_line,
            "protocol": self._note_translated_line,
            "psk_hint": self._refuse_pre_shared_key,
            "require_certificate": self._note_translated_line,
            "socket_domain": self._note_translated_line,
            "tls_version": self._note_tls_version,
            "use_identity_as_username": self._set_identity_common_name,
            "use_subject_as_username": self._set_identity_subject,
            "websockets_origin": self._add_origin,
        }
        self._set_address(opening)
        for setting, value, why in shared_settings:
            self.table.set(setting, value, why)
        for line in section.lines:
            handler = self._handlers.get(line.option)
            if handler is not None:
                handler(line)
            elif line.option in _NOTES:
                kind, explanation = _NOTES[line.option]
                findings.add(kind, line, explanation)
            else:
                self.general_lines.append(line)
        if ("certfile" in self._values) != ("keyfile" in self._values):
            self.omission_reason = (
                self.omission_reason or "it needs both certfile and keyfile, in Mosquitto, too."
            )
        lacks_authority = self._asks_for_certificate and not self.table.get("client_ca")
        if lacks_authority and not self.omission_reason:
            self.omission_reason = "it requires client certificates, and names no authority."
            findings.add(MISSING, self._values["require_certificate"], "No authority is named.")

    # -- the address and the transport -----------------------------------------------------

    def _set_address(self, opening: Line | None) -> None:
        section = self._section
        is_tls = "certfile" in self._values
        protocol = self._values.get("protocol")
        kind = "tls" if is_tls else "tcp"
        if section.socket:
            kind = "unix"
            if protocol is not None and protocol.value.split()[:1] != ["mqtt"]:
                self.omission_reason = "a Unix socket speaks plain MQTT only."
                self._findings.add(MISSING, protocol, "A Unix socket speaks plain MQTT only.")
        elif protocol is not None and protocol.value.split()[:1] == ["websockets"]:
            kind = "wss" if is_tls else "ws"
        elif protocol is not None and protocol.value.split()[:1] == ["http_api"]:
            self.omission_reason = "it serves Mosquitto's HTTP API; see docs/control.md for ours."
            self._findings.add(MISSING, protocol, "Penstock has another API.")
        bind = section.socket or self._bind_address()
        origin: Line | str = opening or "Mosquitto without a listener: this machine only"
        if kind != "tcp":
            self.table.set("kind", kind, protocol or self._values.get("certfile") or origin)
        self.table.set("bind", bind, origin)
        if opening is not None and not self.omission_reason:
            difference = ""
            if not section.socket and not section.host and "socket_domain" not in self._values:
                difference = " Mosquitto takes IPv6, too: add a listener at [::] if you need it."
            self._findings.add(
                DIFFERS if difference else TAKEN,
                opening,
                f'a listener of kind "{kind}" at {bind}.{difference}',
            )
        if kind in ("ws", "wss") and protocol is not None:
            self.table.set("path", "/mqtt", protocol)
            self._findings.add(
                DIFFERS,
                protocol,
                'listener.kind and listener.path = "/mqtt": Mosquitto takes any path, Penstock only'
                " this one.",
            )
        elif protocol is not None and not self.omission_reason:
            self._findings.add(TAKEN, protocol, f'listener.kind = "{kind}".')

    def _bind_address(self) -> str:
        section = self._section
        domain = self._values.get("socket_domain")
        host = section.host
        if domain is not None:
            self._findings.add(
                TAKEN if not host else SAME, domain, "The address of listener.bind decides it."
            )
        interface = self._values.get("bind_interface")
        if not host and interface is not None:
            host = "127.0.0.1"
        if not host:
            host = "::" if domain is not None and domain.value == "ipv6" else "0.0.0.0"  # noqa: S104
        return f"[{host}]:{section.port}" if ":" in host else f"{host}:{section.port}"

    def _note_translated_line(self, line: Line) -> None:
        """Add the finding of a line that was translated together with the address or the
        certificate."""
        if line.option in ("port", "bind_address"):
            self._findings.add(TAKEN, line, f"listener.bind = {self.table.get('bind')}.")
        elif line.option == "require_certificate" and not self._asks_for_certificate:
            self._findings.add(TAKEN, line, "No client certificate is asked for.")

    def _note_interface(self, line: Line) -> None:
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

    def _set_proxy_protocol(self, line: Line) -> None:
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
            f'listener.proxy_protocol = "{version}", accepted from this machine only: write the'
            " networks of your load balancers into listener.proxy_networks.",
        )

    # -- TLS -------------------------------------------------------------------------------

    @property
    def _asks_for_certificate(self) -> bool:
        line = self._values.get("require_certificate")
        return line is not None and line.value.split()[:1] in (["true"], ["1"])

    def _set_certificate(self, line: Line) -> None:
        self.table.set("certificate", _absolute(line.value), line)
        self._findings.add(TAKEN, line, "listener.certificate.")

    def _set_key(self, line: Line) -> None:
        self.table.set("key", _absolute(line.value), line)
        self._findings.add(
            TAKEN,
            line,
            "listener.key; the broker's user must be able to read it.",
        )

    def _set_client_ca(self, line: Line) -> None:
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
            file = self._bundle_authorities(line)
            if file is None:
                return
        else:
            file = _absolute(line.value)
            self._findings.add(TAKEN, line, "listener.client_ca.")
        self.table.set("client_ca", file, line)
        self.table.set("require_client_certificate", True, required)
        self._findings.add(TAKEN, required, "listener.require_client_certificate = true.")

    def _bundle_authorities(self, line: Line) -> str | None:
        """Add a bundle with the certificates of a directory; return its path, or None if the
        listener must be left out."""
        try:
            texts = certificates_in(Path(line.value))
        except OSError as error:
            self.omission_reason = (
                f"its authorities in {line.value} cannot be read ({error.strerror or error}), and"
                " without them no client certificate can be required."
            )
            return None
        if not texts:
            self.omission_reason = f"there is no certificate of an authority in {line.value}."
            return None
        name = f"client_ca_{self._section.port}.pem"
        self._bundles[name] = "".join(texts)
        self._findings.add(
            DIFFERS,
            line,
            f"listener.client_ca = {name}, one file with the {len(texts)} certificates of that"
            " directory: add further ones to the file.",
        )
        return str(self._directory / name)

    def _set_crl(self, line: Line) -> None:
        if not self._asks_for_certificate:
            self._findings.add(SAME, line, "No client certificate is required, so none is revoked.")
            return
        self.table.set("crl", _absolute(line.value), line)
        self._findings.add(
            DIFFERS, line, "listener.crl: when the list has expired, all clients are refused."
        )

    def _note_tls_version(self, line: Line) -> None:
        if line.value == "tlsv1.3":
            self._findings.add(
                MISSING, line, "TLS 1.2 is accepted beside 1.3; no setting turns it off."
            )
        elif line.value == "tlsv1.2":
            self._findings.add(SAME, line, "TLS 1.2 and 1.3 are accepted.")
        else:
            self._findings.add(DIFFERS, line, "TLS 1.2 is the oldest version that is accepted.")

    def _refuse_pre_shared_key(self, line: Line) -> None:
        self._findings.add(
            MISSING,
            line,
            'The file of keys may be that of listener.psk_file, for kind "tls" (docs/listeners.md);'
            " it needs Python 3.13.",
        )
        self.omission_reason = (
            "its clients use a pre-shared key (TLS-PSK): write it with listener.psk_file."
        )

    def _set_identity_common_name(self, line: Line) -> None:
        self._set_identity(line, "common_name")

    def _set_identity_subject(self, line: Line) -> None:
        self._set_identity(line, "subject")

    def _set_identity(self, line: Line, part: str) -> None:
        if not parse_boolean(line, self._findings):
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
        form = "" if part == "common_name" else " The subject is written in the form of RFC 4514."
        self._findings.add(
            DIFFERS,
            line,
            f'access.identity_from_certificate = "{part}", of every listener with client_ca.{form}',
        )

    # -- features and limits of the listener -----------------------------------------------

    def _set_versions(self, line: Line) -> None:
        words = line.value.replace(",", " ").split()
        versions = [_VERSIONS[word] for word in words if word in _VERSIONS]
        if not versions:
            self._findings.add(MISSING, line, "Mosquitto has no such version, either.")
            return
        self.table.set("accept_protocol_versions", versions, line)
        self._findings.add(
            TAKEN, line, f"listener.accept_protocol_versions = {', '.join(versions)}."
        )

    def _set_id_prefix(self, line: Line) -> None:
        self.table.set("auto_id_prefix", line.value[:_ID_PREFIX_CHARS_MAX], line)
        self._findings.add(TAKEN, line, f"listener.auto_id_prefix = {line.value!r}.")

    def _set_max_connections(self, line: Line) -> None:
        value = parse_number(line, self._findings)
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

    def _set_maximum_qos(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None and 0 <= value <= 2:
            self.table.set("maximum_qos", value, line)
            self._findings.add(TAKEN, line, f"listener.maximum_qos = {value}.")
        elif value is not None:
            self._findings.add(MISSING, line, "Mosquitto does not accept this value, either.")

    def _set_inbound_aliases(self, line: Line) -> None:
        self._set_limit(line, "topic_alias_maximum")

    def _set_outbound_aliases(self, line: Line) -> None:
        self._set_limit(line, "topic_alias_outbound_max")

    def _set_limit(self, line: Line, name: str) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            value = max(0, min(value, 65_535))
            self.table.set_in("limits", name, value, line)
            self._findings.add(TAKEN, line, f"limits.{name} = {value}, of this listener.")

    def _set_mount_point(self, line: Line) -> None:
        try:
            checked_mount_point(line.value)
        except ValueError as error:
            self._findings.add(MISSING, line, f"listener.mount_point must be {error}.")
            self.omission_reason = (
                "without its mount_point its clients would reach the topics of all the others."
            )
            return
        self.table.set("mount_point", line.value, line)
        self._findings.add(
            DIFFERS,
            line,
            f"listener.mount_point = {line.value!r}. Access lists name topics with the prefix.",
        )

    def _add_origin(self, line: Line) -> None:
        earlier = self.table.get("origins")
        origins = [*earlier, line.value] if isinstance(earlier, list) else [line.value]
        self.table.set("origins", origins, line)
        self._findings.add(TAKEN, line, f"listener.origins has {line.value}.")


def _absolute(file: str) -> str:
    return str(Path(file).absolute())
