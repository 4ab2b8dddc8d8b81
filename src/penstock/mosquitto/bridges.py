"""Mosquitto's bridges: each becomes one of Penstock's, or is left out with a reason."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from penstock.mosquitto.authorities import certificates_in
from penstock.mosquitto.bridge_topics import common_level, mistake_in_rule, topic_words
from penstock.mosquitto.configuration import BridgeSection, names
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings, Line
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.values import number_of, refuse, truth_of

_VERSIONS: Final = {"mqttv31": "3.1", "mqttv311": "3.1.1", "mqttv50": "5"}
_NOT_IN_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_PORT: Final = "1883"
_TLS_OPTIONS: Final = names("bridge_cafile bridge_capath bridge_certfile bridge_keyfile")

_NOTES: Final[dict[str, tuple[str, str]]] = {
    "bridge_alpn": (MISSING, "ALPN is not offered by bridges."),
    "bridge_attempt_unsubscribe": (SAME, "The bridge ends subscriptions that its rules lost."),
    "bridge_bind_address": (MISSING, "The system chooses the address that a bridge dials from."),
    "bridge_ciphers": (MISSING, "TLS is spoken with OpenSSL's default ciphers."),
    "bridge_ciphers_tls1.3": (MISSING, "TLS is spoken with OpenSSL's default ciphers."),
    "bridge_max_topic_alias": (SAME, "Topic aliases are used as the remote broker allows."),
    "bridge_receive_maximum": (
        MISSING,
        "The window towards here is that of the broker: limits.receive_maximum.",
    ),
    "bridge_reload_type": (SAME, "A change of bridges needs a restart."),
    "bridge_require_ocsp": (MISSING, "OCSP is not asked."),
    "bridge_tcp_keepalive": (SAME, "A silent remote broker is given up by the keep alive of MQTT."),
    "bridge_tcp_user_timeout": (SAME, "A silent remote broker is given up by the keep alive."),
    "bridge_tls_version": (DIFFERS, "TLS 1.2 and 1.3 are spoken; there is nothing to set."),
    "idle_timeout": (MISSING, "A bridge stays connected: there is no start_type lazy."),
    "local_cleansession": (
        MISSING,
        (
            "The bridge's queue outlives the connection; persist = false of the bridge forwards all"
            " with QoS 0."
        ),
    ),
    "local_clientid": (SAME, "The bridge's session here is kept under the bridge's name."),
    "local_password": (SAME, "A bridge is no client here and needs no password."),
    "local_username": (
        DIFFERS,
        "A bridge is no client here: the access list does not hold for it, its rules do.",
    ),
    "threshold": (MISSING, "A bridge stays connected: there is no start_type lazy."),
}


@final
class Bridge:
    """One bridge, translated.

    Args:
        section: its lines.
        findings: the findings, to which those of each line are added.
        bundles: files to write, certificates of a directory joined; one is added here.
        client_ids: the client identifiers in the database.
        directory: the place of the bundles.
    """

    def __init__(
        self,
        section: BridgeSection,
        findings: Findings,
        bundles: dict[str, str],
        client_ids: frozenset[str],
        directory: Path,
    ) -> None:
        words = section.opening.value.split()
        self.mosquitto_name = words[0] if words else ""
        self.name = _name_of(self.mosquitto_name)
        self.table = Table("[[bridge.remotes]]", f"{section.opening.place}: {section.opening.text}")
        self.forwards: list[Table] = []
        self.left_out = ""
        self.client_id = ""
        self._findings = findings
        self._section = section
        self._bundles = bundles
        self._client_ids = client_ids
        self._directory = directory
        self._values = {line.option: line for line in section.lines}
        self._handlers: dict[str, Callable[[Line], None]] = {
            "address": self._addresses,
            "addresses": self._addresses,
            "bridge_cafile": self._authorities,
            "bridge_capath": self._authority_directory,
            "bridge_certfile": self._file,
            "bridge_identity": self._pre_shared,
            "bridge_insecure": self._insecure,
            "bridge_keyfile": self._file,
            "bridge_max_packet_size": self._packet_size,
            "bridge_outgoing_retain": self._outgoing_retain,
            "bridge_protocol_version": self._version,
            "bridge_psk": self._pre_shared,
            "bridge_session_expiry_interval": self._session_expiry,
            "bridge_tls_use_os_certs": self._system_authorities,
            "cleansession": self._clean,
            "clientid": self._client_id,
            "keepalive_interval": self._keep_alive,
            "notification_topic": self._status,
            "notifications": self._status,
            "notifications_local_only": self._status,
            "password": self._password,
            "remote_clientid": self._client_id,
            "remote_password": self._password,
            "remote_username": self._username,
            "restart_timeout": self._restart,
            "round_robin": self._round_robin,
            "start_type": self._start,
            "topic": self._topic,
            "try_private": self._private,
            "username": self._username,
        }
        self._translate()

    def _translate(self) -> None:
        opening = self._section.opening
        findings = self._findings
        self._findings = Findings()
        self._take_lines()
        for finding in self._findings.all:
            if self.left_out and finding.kind != MISSING:
                findings.note(MISSING, finding.place, finding.text, "Its bridge is left out.")
            else:
                findings.all.append(finding)
        self._findings = findings
        if self.left_out:
            findings.add(MISSING, opening, f"The bridge is left out: {self.left_out}")
            return
        if self.table.get("version") is None:
            self.table.set("version", "3.1.1", "Mosquitto's default")
        self._add_client_id()
        self._add_status()
        changed = "" if self.name == self.mosquitto_name else ", a name of the allowed characters"
        findings.add(
            TAKEN, opening, f'a bridge [[bridge.remotes]] with name = "{self.name}"{changed}.'
        )

    def _take_lines(self) -> None:
        self.table.set("name", self.name, "")
        for line in self._section.lines:
            handler = self._handlers.get(line.option)
            if handler is not None:
                handler(line)
            else:
                kind, says = _NOTES[line.option]
                self._findings.add(kind, line, says)
        if ("bridge_certfile" in self._values) != ("bridge_keyfile" in self._values):
            self.left_out = "it needs both bridge_certfile and bridge_keyfile, in Mosquitto, too."
        if not self.table.get("addresses"):
            self.left_out = self.left_out or "it has no address that can be dialled."
        elif not self.forwards:
            self.left_out = self.left_out or "none of its topic lines could be taken over."

    @property
    def local_client_id(self) -> str:
        """Return the client identifier of its session in Mosquitto's own database."""
        given = self._values.get("local_clientid")
        if given is not None:
            return given.value
        return f"local.{self.client_id or self._default_client_id()}"

    def rename(self, name: str) -> None:
        """Give it another name, because one before it has the same."""
        self.name = name
        self.table.set("name", name, "")

    # -- the remote broker -----------------------------------------------------------------

    def _addresses(self, line: Line) -> None:
        is_encrypted = _TLS_OPTIONS & set(self._values) or self._is_true("bridge_tls_use_os_certs")
        scheme = "mqtts" if is_encrypted else "mqtt"
        found: list[str] = []
        for word in line.value.split():
            if word.startswith("#"):
                break
            host, colon, port = word.rpartition(":")
            if not colon:
                host, port = word, _PORT
            if not port.isdigit() or not 0 < int(port) <= 65_535:
                self._findings.add(MISSING, line, f"{word!r} is not HOST:PORT.")
                return
            if ":" in host and not host.startswith("["):
                host = f"[{host}]"
            found.append(f"{scheme}://{host}:{port}")
        if not found:
            refuse(line, self._findings)
            return
        self.table.set("addresses", found, line)
        self._findings.add(TAKEN, line, f"addresses = {', '.join(found)}.")

    def _set(self, line: Line, name: str, value: object, more: str = "") -> None:
        self.table.set(name, value, line)
        shown = str(value).lower() if isinstance(value, bool) else value
        self._findings.add(DIFFERS if more else TAKEN, line, f"{name} = {shown}.{more}")

    def _version(self, line: Line) -> None:
        version = _VERSIONS.get(line.value.strip())
        if version is None:
            refuse(line, self._findings)
            return
        self._set(line, "version", version)

    def _client_id(self, line: Line) -> None:
        self.client_id = line.value
        self._set(line, "client_id", line.value)

    def _add_client_id(self) -> None:
        """Set the client identifier that Mosquitto takes where none is given."""
        if self.client_id:
            return
        self.client_id = self._default_client_id()
        self.table.set("client_id", self.client_id, "Mosquitto's default: HOST.NAME")
        self._findings.note(
            TAKEN,
            self._section.opening.place,
            "remote_clientid (default)",
            f"client_id = {self.client_id!r}, which Mosquitto takes on a machine of this name: the"
            " remote broker goes on with the same session.",
        )

    def _default_client_id(self) -> str:
        """Return HOST.NAME, of the host that the database tells, or else this one."""
        ending = f".{self.mosquitto_name}"
        for client_id in sorted(self._client_ids):
            if client_id.startswith("local.") and client_id.endswith(ending):
                return client_id.removeprefix("local.")
        return f"{socket.gethostname()}{ending}"

    def _username(self, line: Line) -> None:
        self._set(line, "username", line.value)

    def _password(self, line: Line) -> None:
        self.table.set("password", line.value, line)
        self._findings.add(
            TAKEN, line, "password; the file is readable for its owner only, keep it so."
        )

    def _keep_alive(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            self._set(line, "keep_alive_s", max(5, min(value, 65_535)))

    def _clean(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value is not None:
            self._set(line, "clean_start", value)

    def _private(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value is not None:
            self._set(line, "try_private", value)

    def _packet_size(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            self._set(line, "max_packet_size_bytes", max(0, min(value, 268_435_460)))

    def _session_expiry(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is None:
            return
        if value == 0:
            self._set(line, "clean_start", True, " The session ends with the connection.")
            return
        self._set(line, "session_expiry_s", min(value, 4_294_967_295))

    def _restart(self, line: Line) -> None:
        words = line.value.split()
        if not words or not all(word.isdigit() for word in words[:2]):
            refuse(line, self._findings)
            return
        least = max(1, min(int(words[0]), 3600))
        most = max(least, min(int(words[1]), 7200)) if len(words) > 1 else least
        self.table.set("reconnect_s_min", least, line)
        self.table.set("reconnect_s_max", most, line)
        self._findings.add(TAKEN, line, f"reconnect_s_min = {least}, reconnect_s_max = {most}.")

    def _round_robin(self, line: Line) -> None:
        if truth_of(line, self._findings):
            self._findings.add(
                MISSING,
                line,
                "The next address is tried when one cannot be reached, and stays while it answers.",
            )
        else:
            self._findings.add(
                DIFFERS,
                line,
                "The next address is tried when one cannot be reached; the bridge does not go back"
                " to the first by itself.",
            )

    def _start(self, line: Line) -> None:
        if line.value.split()[:1] == ["automatic"]:
            self._findings.add(SAME, line, "A bridge dials when the broker starts, and again.")
        else:
            self._findings.add(
                DIFFERS, line, "A bridge dials when the broker starts, and stays connected."
            )

    # -- notifications -----------------------------------------------------------------------

    def _status(self, line: Line) -> None:
        """Note a line about notifications; ``_add_status`` translates all of them together."""
        if line.option == "notification_topic":
            self._findings.add(TAKEN, line, "status_topic, at the remote broker.")
            return
        value = truth_of(line, self._findings)
        if value is None:
            return
        if line.option == "notifications_local_only":
            says = "No status_topic at the remote broker; penstock sessions list shows it here."
            self._findings.add(
                DIFFERS if value else SAME, line, says if value else "See notifications."
            )
        else:
            says = "status_topic, at the remote broker" if value else "no status_topic"
            self._findings.add(TAKEN, line, f"{says}.")

    def _add_status(self) -> None:
        if self._is_false("notifications") or self._is_true("notifications_local_only"):
            return
        given = self._values.get("notification_topic")
        topic = f"$SYS/broker/connection/{self.client_id}/state" if given is None else given.value
        self.table.set("status_topic", topic, given or "Mosquitto's default: notifications true")

    def _is_true(self, option: str) -> bool:
        line = self._values.get(option)
        return line is not None and line.value.split()[:1] in (["true"], ["1"])

    def _is_false(self, option: str) -> bool:
        line = self._values.get(option)
        return line is not None and line.value.split()[:1] in (["false"], ["0"])

    # -- TLS -------------------------------------------------------------------------------

    def _authorities(self, line: Line) -> None:
        self._set(line, "ca", str(Path(line.value).absolute()))

    def _authority_directory(self, line: Line) -> None:
        if "bridge_cafile" in self._values:
            self._findings.add(MISSING, line, "ca is one file, that of bridge_cafile.")
            return
        try:
            texts = certificates_in(Path(line.value))
        except OSError as error:
            self.left_out = f"its authorities in {line.value} cannot be read ({error})."
            self._findings.add(MISSING, line, "The directory cannot be read.")
            return
        if not texts:
            self.left_out = f"there is no certificate of an authority in {line.value}."
            self._findings.add(MISSING, line, "There is no certificate in it.")
            return
        name = f"bridge_{self.name}_ca.pem"
        self._bundles[name] = "".join(texts)
        self._set(
            line,
            "ca",
            str(self._directory / name),
            " One file with the certificates of that directory.",
        )

    def _system_authorities(self, line: Line) -> None:
        if truth_of(line, self._findings):
            self._findings.add(TAKEN, line, "Without ca, those of the system are believed.")
        else:
            self._findings.add(SAME, line, "See bridge_cafile.")

    def _file(self, line: Line) -> None:
        name = "certificate" if line.option == "bridge_certfile" else "key"
        self._set(line, name, str(Path(line.value).absolute()))

    def _insecure(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value is not None:
            self._set(line, "check_host_name", not value)

    def _pre_shared(self, line: Line) -> None:
        self.left_out = "it proves itself by a pre-shared key, which is not spoken here."
        self._findings.add(MISSING, line, "TLS with pre-shared keys is not spoken.")

    # -- topics ----------------------------------------------------------------------------

    def _outgoing_retain(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value is not None:
            self._findings.add(TAKEN, line, f"retain = {str(value).lower()} of what goes out.")

    def _topic(self, line: Line) -> None:
        words = topic_words(line.value)
        if words is None:
            refuse(line, self._findings)
            return
        pattern, direction, qos, local, remote = words
        if not pattern:
            whole = common_level(local, remote)
            if whole is None:
                self._findings.add(
                    MISSING,
                    line,
                    "One topic under two names needs the same last level at both ends: rename it"
                    " where it is published.",
                )
                return
            local, remote, pattern = whole
        mistake = mistake_in_rule(pattern, direction, local, remote)
        if mistake:
            self._findings.add(MISSING, line, mistake)
            return
        keeps = not self._is_false("bridge_outgoing_retain")
        parts = [(direction, True)]
        if direction == "both" and not keeps:
            parts = [("out", False), ("in", True)]
        elif direction == "out":
            parts = [("out", keeps)]
        for way, keeps_retain in parts:
            table = Table("[[bridge.remotes.forwards]]", f"{line.place}: {line.text}")
            table.set("topic_filters", [pattern], "")
            table.set("direction", way, "")
            table.set("qos_max", qos, "")
            if local:
                table.set("local_prefix", local, "")
            if remote:
                table.set("remote_prefix", remote, "")
            if not keeps_retain:
                table.set("retain", False, "")
            self.forwards.append(table)
        self._findings.add(
            TAKEN, line, f"[[bridge.remotes.forwards]] {pattern!r} {direction}, qos_max = {qos}."
        )


def _name_of(mosquitto_name: str) -> str:
    name = _NOT_IN_A_NAME.sub("-", mosquitto_name).lstrip("-_.")[:64]
    return name or "bridge"
