"""The translation of Mosquitto's bridges: each becomes one of Penstock's, or is left out with a
reason."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from penstock.mosquitto.authorities import certificates_in
from penstock.mosquitto.bridge_topics import common_level, parse_topic_line, rule_mistake
from penstock.mosquitto.configuration import BridgeSection, option_names
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings, Line
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.values import note_invalid, parse_boolean, parse_number

_VERSIONS: Final = {"mqttv31": "3.1", "mqttv311": "3.1.1", "mqttv50": "5"}
_FORBIDDEN_IN_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_PORT: Final = "1883"
_TLS_OPTIONS: Final = option_names("bridge_cafile bridge_capath bridge_certfile bridge_keyfile")

_NOTES: Final[dict[str, tuple[str, str]]] = {
    "bridge_alpn": (MISSING, "ALPN is not offered by bridges."),
    "bridge_attempt_unsubscribe": (SAME, "The bridge ends subscriptions that its rules lost."),
    "bridge_bind_address": (MISSING, "The system chooses the source address of a bridge."),
    "bridge_ciphers": (MISSING, "TLS uses OpenSSL's default ciphers."),
    "bridge_ciphers_tls1.3": (MISSING, "TLS uses OpenSSL's default ciphers."),
    "bridge_max_topic_alias": (SAME, "Topic aliases are used as the remote broker allows."),
    "bridge_receive_maximum": (
        MISSING,
        "The bridge announces the broker's receive maximum, limits.receive_maximum.",
    ),
    "bridge_reload_type": (DIFFERS, "A change of bridges needs a restart, not only a reload."),
    "bridge_require_ocsp": (MISSING, "OCSP is not supported."),
    "bridge_tcp_keepalive": (SAME, "MQTT's keep alive detects a remote broker that is silent."),
    "bridge_tcp_user_timeout": (SAME, "MQTT's keep alive detects a silent remote broker."),
    "bridge_tls_version": (DIFFERS, "TLS 1.2 and 1.3 are supported; there is nothing to set."),
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
        "A bridge is no client here: its rules apply to it, and the access list does not.",
    ),
    "threshold": (MISSING, "A bridge stays connected: there is no start_type lazy."),
}


@final
class TranslatedBridge:
    """The translation of one bridge.

    Args:
        section: the lines of the bridge.
        findings: the findings of the import, to which one for each line is added.
        bundles: text by name of the files to write, with all certificates of a directory; the
            bridge may add one.
        client_ids: the client identifiers in the database.
        directory: the directory of the bundles.

    Attributes:
        mosquitto_name: the bridge's name in Mosquitto.
        name: its name in Penstock.
        table: its settings.
        forwards: its forwarding rules, a table each.
        omission_reason: why the bridge is left out, one sentence; empty if it is not.
        client_id: its client identifier at the remote broker.
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
        self.name = _valid_name(self.mosquitto_name)
        self.table = Table("[[bridge.remotes]]", f"{section.opening.place}: {section.opening.text}")
        self.forwards: list[Table] = []
        self.omission_reason = ""
        self.client_id = ""
        self._findings = findings
        self._section = section
        self._bundles = bundles
        self._client_ids = client_ids
        self._directory = directory
        self._values = {line.option: line for line in section.lines}
        self._handlers: dict[str, Callable[[Line], None]] = {
            "address": self._set_addresses,
            "addresses": self._set_addresses,
            "bridge_cafile": self._set_ca_file,
            "bridge_capath": self._bundle_authorities,
            "bridge_certfile": self._set_certificate_or_key,
            "bridge_identity": self._refuse_pre_shared_key,
            "bridge_insecure": self._set_check_host_name,
            "bridge_keyfile": self._set_certificate_or_key,
            "bridge_max_packet_size": self._set_packet_size,
            "bridge_outgoing_retain": self._note_outgoing_retain,
            "bridge_protocol_version": self._set_version,
            "bridge_psk": self._refuse_pre_shared_key,
            "bridge_session_expiry_interval": self._set_session_expiry,
            "bridge_tls_use_os_certs": self._note_system_authorities,
            "cleansession": self._set_clean_start,
            "clientid": self._set_client_id,
            "keepalive_interval": self._set_keep_alive,
            "notification_topic": self._note_status,
            "notifications": self._note_status,
            "notifications_local_only": self._note_status,
            "password": self._set_password,
            "remote_clientid": self._set_client_id,
            "remote_password": self._set_password,
            "remote_username": self._set_username,
            "restart_timeout": self._set_reconnect_pauses,
            "round_robin": self._note_round_robin,
            "start_type": self._note_start_type,
            "topic": self._add_rules,
            "try_private": self._set_try_private,
            "username": self._set_username,
        }
        self._translate()

    def _translate(self) -> None:
        opening = self._section.opening
        findings = self._findings
        self._findings = Findings()
        self._translate_lines()
        for finding in self._findings.all:
            if self.omission_reason and finding.kind != MISSING:
                findings.note(
                    MISSING, finding.place, finding.text, "The bridge of this line is left out."
                )
            else:
                findings.all.append(finding)
        self._findings = findings
        if self.omission_reason:
            findings.add(MISSING, opening, f"The bridge is left out: {self.omission_reason}")
            return
        if self.table.get("version") is None:
            self.table.set("version", "3.1.1", "Mosquitto's default")
        self._add_client_id()
        self._add_status()
        remark = "" if self.name == self.mosquitto_name else ", a name of the allowed characters"
        findings.add(
            TAKEN, opening, f'a bridge [[bridge.remotes]] with name = "{self.name}"{remark}.'
        )

    def _translate_lines(self) -> None:
        self.table.set("name", self.name, "")
        for line in self._section.lines:
            handler = self._handlers.get(line.option)
            if handler is not None:
                handler(line)
            else:
                kind, explanation = _NOTES[line.option]
                self._findings.add(kind, line, explanation)
        if ("bridge_certfile" in self._values) != ("bridge_keyfile" in self._values):
            self.omission_reason = (
                "it needs both bridge_certfile and bridge_keyfile, in Mosquitto, too."
            )
        if not self.table.get("addresses"):
            self.omission_reason = self.omission_reason or "it has no valid address."
        elif not self.forwards:
            self.omission_reason = (
                self.omission_reason or "none of its topic lines could be translated."
            )

    @property
    def local_client_id(self) -> str:
        """Return the client identifier of the bridge's session in Mosquitto's own database."""
        line = self._values.get("local_clientid")
        if line is not None:
            return line.value
        return f"local.{self.client_id or self._default_client_id()}"

    def rename(self, name: str) -> None:
        """Give the bridge another name, because an earlier bridge has the same."""
        self.name = name
        self.table.set("name", name, "")

    # -- the remote broker -----------------------------------------------------------------

    def _set_addresses(self, line: Line) -> None:
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
            note_invalid(line, self._findings)
            return
        self.table.set("addresses", found, line)
        self._findings.add(TAKEN, line, f"addresses = {', '.join(found)}.")

    def _set(self, line: Line, name: str, value: object, difference: str = "") -> None:
        self.table.set(name, value, line)
        text = str(value).lower() if isinstance(value, bool) else value
        kind = DIFFERS if difference else TAKEN
        self._findings.add(kind, line, f"{name} = {text}.{difference}")

    def _set_version(self, line: Line) -> None:
        version = _VERSIONS.get(line.value.strip())
        if version is None:
            note_invalid(line, self._findings)
            return
        self._set(line, "version", version)

    def _set_client_id(self, line: Line) -> None:
        self.client_id = line.value
        self._set(line, "client_id", line.value)

    def _add_client_id(self) -> None:
        """Set the client identifier that Mosquitto uses for a bridge without one."""
        if self.client_id:
            return
        self.client_id = self._default_client_id()
        self.table.set("client_id", self.client_id, "Mosquitto's default: HOST.NAME")
        self._findings.note(
            TAKEN,
            self._section.opening.place,
            "remote_clientid (default)",
            f"client_id = {self.client_id!r}, which Mosquitto uses on a machine of this name: the"
            " remote broker resumes the same session.",
        )

    def _default_client_id(self) -> str:
        """Return HOST.NAME, with the host of the bridge's session in the database, or else this
        one."""
        ending = f".{self.mosquitto_name}"
        for client_id in sorted(self._client_ids):
            if client_id.startswith("local.") and client_id.endswith(ending):
                return client_id.removeprefix("local.")
        return f"{socket.gethostname()}{ending}"

    def _set_username(self, line: Line) -> None:
        self._set(line, "username", line.value)

    def _set_password(self, line: Line) -> None:
        self.table.set("password", line.value, line)
        self._findings.add(
            TAKEN, line, "password; the file is readable for its owner only, keep it so."
        )

    def _set_keep_alive(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            self._set(line, "keep_alive_s", max(5, min(value, 65_535)))

    def _set_clean_start(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value is not None:
            self._set(line, "clean_start", value)

    def _set_try_private(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value is not None:
            self._set(line, "try_private", value)

    def _set_packet_size(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            self._set(line, "max_packet_size_bytes", max(0, min(value, 268_435_460)))

    def _set_session_expiry(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is None:
            return
        if value == 0:
            self._set(line, "clean_start", True, " The session ends with the connection.")
            return
        self._set(line, "session_expiry_s", min(value, 4_294_967_295))

    def _set_reconnect_pauses(self, line: Line) -> None:
        words = line.value.split()
        if not words or not all(word.isdigit() for word in words[:2]):
            note_invalid(line, self._findings)
            return
        shortest = max(1, min(int(words[0]), 3600))
        longest = max(shortest, min(int(words[1]), 7200)) if len(words) > 1 else shortest
        self.table.set("reconnect_s_min", shortest, line)
        self.table.set("reconnect_s_max", longest, line)
        self._findings.add(
            TAKEN, line, f"reconnect_s_min = {shortest}, reconnect_s_max = {longest}."
        )

    def _note_round_robin(self, line: Line) -> None:
        if parse_boolean(line, self._findings):
            self._findings.add(
                MISSING,
                line,
                "The next address is tried when one cannot be reached, and kept while it answers.",
            )
        else:
            self._findings.add(
                DIFFERS,
                line,
                "The next address is tried when one cannot be reached; the bridge does not go back"
                " to the first by itself.",
            )

    def _note_start_type(self, line: Line) -> None:
        if line.value.split()[:1] == ["automatic"]:
            self._findings.add(SAME, line, "A bridge connects at the start, and reconnects.")
        else:
            self._findings.add(
                DIFFERS, line, "A bridge connects when the broker starts, and stays connected."
            )

    # -- notifications -----------------------------------------------------------------------

    def _note_status(self, line: Line) -> None:
        """Add the finding of a line about notifications; ``_add_status`` sets the topic."""
        if line.option == "notification_topic":
            self._findings.add(TAKEN, line, "status_topic, at the remote broker.")
            return
        value = parse_boolean(line, self._findings)
        if value is None:
            return
        if line.option == "notifications_local_only":
            difference = "No status_topic at the remote broker; see penstock sessions list here."
            self._findings.add(
                DIFFERS if value else SAME, line, difference if value else "See notifications."
            )
        else:
            outcome = "status_topic, at the remote broker" if value else "no status_topic"
            self._findings.add(TAKEN, line, f"{outcome}.")

    def _add_status(self) -> None:
        if self._is_false("notifications") or self._is_true("notifications_local_only"):
            return
        line = self._values.get("notification_topic")
        topic = f"$SYS/broker/connection/{self.client_id}/state" if line is None else line.value
        self.table.set("status_topic", topic, line or "Mosquitto's default: notifications true")

    def _is_true(self, option: str) -> bool:
        line = self._values.get(option)
        return line is not None and line.value.split()[:1] in (["true"], ["1"])

    def _is_false(self, option: str) -> bool:
        line = self._values.get(option)
        return line is not None and line.value.split()[:1] in (["false"], ["0"])

    # -- TLS -------------------------------------------------------------------------------

    def _set_ca_file(self, line: Line) -> None:
        self._set(line, "ca", str(Path(line.value).absolute()))

    def _bundle_authorities(self, line: Line) -> None:
        if "bridge_cafile" in self._values:
            self._findings.add(MISSING, line, "ca is one file, that of bridge_cafile.")
            return
        try:
            texts = certificates_in(Path(line.value))
        except OSError as error:
            self.omission_reason = f"its authorities in {line.value} cannot be read ({error})."
            self._findings.add(MISSING, line, "The directory cannot be read.")
            return
        if not texts:
            self.omission_reason = f"there is no certificate of an authority in {line.value}."
            self._findings.add(MISSING, line, "The directory has no certificate in it.")
            return
        name = f"bridge_{self.name}_ca.pem"
        self._bundles[name] = "".join(texts)
        self._set(
            line,
            "ca",
            str(self._directory / name),
            " The file has the certificates of that directory.",
        )

    def _note_system_authorities(self, line: Line) -> None:
        if parse_boolean(line, self._findings):
            self._findings.add(TAKEN, line, "Without ca, the system's authorities are trusted.")
        else:
            self._findings.add(SAME, line, "See bridge_cafile.")

    def _set_certificate_or_key(self, line: Line) -> None:
        name = "certificate" if line.option == "bridge_certfile" else "key"
        self._set(line, name, str(Path(line.value).absolute()))

    def _set_check_host_name(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value is not None:
            self._set(line, "check_host_name", not value)

    def _refuse_pre_shared_key(self, line: Line) -> None:
        self.omission_reason = "it uses a pre-shared key: write it with psk_identity and psk."
        self._findings.add(
            MISSING, line, "The bridge's psk_identity and psk say it; they need Python 3.13."
        )

    # -- topics ----------------------------------------------------------------------------

    def _note_outgoing_retain(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value is not None:
            self._findings.add(TAKEN, line, f"retain = {str(value).lower()} of outgoing messages.")

    def _add_rules(self, line: Line) -> None:
        words = parse_topic_line(line.value)
        if words is None:
            note_invalid(line, self._findings)
            return
        pattern, direction, qos, local, remote = words
        if not pattern:
            common = common_level(local, remote)
            if common is None:
                self._findings.add(
                    MISSING,
                    line,
                    "One topic under two names needs the same last level at both ends: rename it"
                    " where it is published.",
                )
                return
            local, remote, pattern = common
        mistake = rule_mistake(pattern, direction, local, remote)
        if mistake:
            self._findings.add(MISSING, line, mistake)
            return
        keeps_outgoing = not self._is_false("bridge_outgoing_retain")
        rules = [(direction, True)]
        if direction == "both" and not keeps_outgoing:
            rules = [("out", False), ("in", True)]
        elif direction == "out":
            rules = [("out", keeps_outgoing)]
        for rule_direction, keeps_retain in rules:
            table = Table("[[bridge.remotes.forwards]]", f"{line.place}: {line.text}")
            table.set("topic_filters", [pattern], "")
            table.set("direction", rule_direction, "")
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


def _valid_name(mosquitto_name: str) -> str:
    """Return a bridge's name as Penstock allows it, as similar as possible."""
    name = _FORBIDDEN_IN_NAME.sub("-", mosquitto_name).lstrip("-_.")[:64]
    return name or "bridge"
