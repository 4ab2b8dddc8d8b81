"""The translation of options of the whole broker: each line becomes a setting, or a finding with
advice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from penstock.config.limits import Limits
from penstock.mosquitto.broker_notes import NOTES
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings, Line
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.values import parse_boolean, parse_duration_s, parse_number

PACKET_BYTES_MAX: Final = 268_435_460
_PACKET_BYTES_MIN: Final = 256
_TOPIC_BYTES: Final = 65_536  # room for topic and properties beside the payload
NEVER_EXPIRES_S: Final = 4_294_967_295

DEFAULT_PACKET_BYTES: Final = 2_000_000  # of Mosquitto 2.1; 2.0 has no limit
DEFAULT_WINDOW: Final = 20

_PLUGIN: Final = (
    "Plugins cannot be loaded. Users: `penstock passwd`, an HTTP service (http_login.url) or tokens"
    " (jwt_login.keys); permissions: access.acl_file."
)
_LOAD_OPTIONS: Final = ("auth_plugin", "plugin", "global_plugin", "plugin_load")
_FILE_PLUGINS: Final = ("acl_file", "acl-file", "password_file", "password-file")
_HARMLESS_PLUGINS: Final = ("persist_sqlite", "persist-sqlite", "sparkplug")
_PLUGIN_OPTIONS: Final = ("auth_plugin", "plugin", "global_plugin", "plugin_load", "plugin_use")

_LEVELS: Final = {
    "debug": 0,
    "all": 0,
    "subscribe": 0,
    "unsubscribe": 0,
    "internal": 0,
    "websockets": 0,
    "information": 1,
    "notice": 1,
    "warning": 2,
    "error": 3,
    "none": 3,
}
_LEVEL_NAMES: Final = ("debug", "info", "warning", "error")


@final
class BrokerOptions:
    """The settings of the whole broker, translated from the general lines.

    Args:
        findings: the findings of the import, to which one for each line is added.
    """

    def __init__(self, findings: Findings) -> None:
        self.durability = Table("[durability]")
        self.limits = Table("[limits]")
        self.status = Table("[status]")
        self.log = Table("[log]")
        self.listener_settings: list[tuple[str, object, Line]] = []  # for every listener
        self._findings = findings
        self._handlers: dict[str, Callable[[Line], None]] = {
            "global_max_clients": self._set_sessions_max,
            "log_dest": self._note_log_destination,
            "log_type": self._set_log_level,
            "max_inflight_messages": self._set_window,
            "max_keepalive": self._set_keep_alive,
            "max_packet_size": self._set_packet_size,
            "max_queued_bytes": self._set_queue_bytes,
            "max_queued_messages": self._set_queue_length,
            "message_size_limit": self._set_message_size,
            "persistence": self._set_persistence,
            "retained_persistence": self._set_persistence,
            "per_listener_settings": self._note_per_listener,
            "persistent_client_expiration": self._set_session_expiry,
            "queue_qos0_messages": self._set_queue_qos0,
            "retain_available": self._set_retain_available,
            "sys_interval": self._set_sys_interval,
            "auto_id_prefix": self._set_auto_id_prefix,
        }

    @property
    def translated_options(self) -> frozenset[str]:
        """Return the names of the options that become settings."""
        return frozenset(self._handlers)

    def translate(self, line: Line) -> bool:
        """Translate ``line`` into a setting, or add a finding with advice; return False if the line
        is no option of the whole broker."""
        handler = self._handlers.get(line.option)
        if handler is not None:
            handler(line)
        elif line.option in NOTES:
            kind, explanation = NOTES[line.option]
            self._findings.add(kind, line, explanation)
        elif is_plugin_option(line.option):
            self._findings.add(MISSING, line, _PLUGIN)
        else:
            return False
        return True

    def add_defaults(self) -> None:
        """Set Mosquitto's own defaults where a client would notice the difference and no line sets
        a value."""
        findings = self._findings
        limits = self.limits
        if limits.get("max_inflight") is None:
            limits.set("max_inflight", DEFAULT_WINDOW, "Mosquitto's default")
            findings.note(
                TAKEN,
                "",
                f"max_inflight_messages {DEFAULT_WINDOW} (default)",
                f"limits.max_inflight = {DEFAULT_WINDOW}; Penstock's own default is 32.",
            )
        if limits.get("mqueue_store_qos0") is None:
            limits.set("mqueue_store_qos0", False, "Mosquitto's default")
            findings.note(
                TAKEN,
                "",
                "queue_qos0_messages false (default)",
                "limits.mqueue_store_qos0 = false; Penstock's own default is true.",
            )
        if limits.get("max_packet_size_bytes") is None:
            limits.set("max_packet_size_bytes", DEFAULT_PACKET_BYTES, "Mosquitto 2.1's default")
            findings.note(
                DIFFERS,
                "",
                "max_packet_size (default)",
                f"limits.max_packet_size_bytes = {DEFAULT_PACKET_BYTES}, as Mosquitto 2.1 has it;"
                " Mosquitto 2.0 takes packets of 256 MiB: raise it if you send larger ones.",
            )
        if self.durability.get("persistence") is None:
            findings.note(
                DIFFERS,
                "",
                "persistence false (default)",
                "Penstock keeps sessions, retained messages and queues on disk, its own default;"
                ' durability.persistence = "memory" forgets them at each start.',
            )

    def raise_queue_limits(self, longest: int, largest_bytes: int) -> None:
        """Raise the limits of queues to the longest and the largest queue in the database.

        Mosquitto's limit does not count messages in flight; in Penstock all of them may wait in the
        queue, and messages above the limit would be dropped when their client connects.
        """
        for name, needed, unit in (
            ("max_mqueue_len", longest, "messages"),
            ("max_mqueue_bytes", largest_bytes, "bytes"),
        ):
            value = self.limits.get(name)
            limit = value if isinstance(value, int) else getattr(Limits(), name)
            if 0 < limit < needed:
                self.limits.set(name, needed, f"{needed} {unit} wait for a client in the database")
                self._findings.note(
                    DIFFERS,
                    "",
                    f"{needed:,} {unit} wait for one client",
                    f"limits.{name} = {needed} instead of {limit}, or the oldest would be dropped"
                    " when the client connects; lower it when the queue is empty.",
                )

    # -- limits ------------------------------------------------------------------------

    def _set_limit(self, line: Line, name: str, value: int | bool, difference: str = "") -> None:
        self.limits.set(name, value, line)
        text = str(value).lower() if isinstance(value, bool) else value
        kind = DIFFERS if difference else TAKEN
        self._findings.add(kind, line, f"limits.{name} = {text}{difference or '.'}")

    def _set_sessions_max(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is None:
            return
        if value <= 0:
            self._findings.add(SAME, line, "Without a limit, limits.sessions_max is 1,000,000.")
            return
        value = min(value, 100_000_000)
        self.limits.set("sessions_per_user_max", value, line)
        self._set_limit(
            line,
            "sessions_max",
            value,
            ", and limits.sessions_per_user_max as many: else one user or address could have only a"
            " quarter of them (memory.share_max).",
        )

    def _set_window(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            self._set_limit(line, "max_inflight", 0 if not 0 < value < 65_535 else value)

    def _set_keep_alive(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            self._set_limit(line, "keep_alive_s_max", max(0, min(value, 65_535)))

    def _set_packet_size(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is None:
            return
        size = max(_PACKET_BYTES_MIN, min(value, PACKET_BYTES_MAX))
        difference = "" if size == value else f", the allowed value nearest to {value}."
        self._set_limit(line, "max_packet_size_bytes", size, difference)

    def _set_message_size(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is None:
            return
        if value <= 0:
            self._findings.add(SAME, line, "Payloads have no limit: see max_packet_size.")
            return
        packet_size = self.limits.get("max_packet_size_bytes")
        size = min(value + _TOPIC_BYTES, PACKET_BYTES_MAX)
        if isinstance(packet_size, int):
            size = min(size, packet_size)
        self._set_limit(
            line,
            "max_packet_size_bytes",
            max(size, _PACKET_BYTES_MIN),
            ": it bounds the whole packet, so 64 KiB were added for topic and properties. A client"
            " that sends more is disconnected (0x95); Mosquitto only drops the message.",
        )

    def _set_queue_length(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            self._set_limit(line, "max_mqueue_len", max(0, min(value, 100_000_000)))

    def _set_queue_bytes(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            self._set_limit(line, "max_mqueue_bytes", max(0, value))

    def _set_queue_qos0(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value is not None:
            self._set_limit(line, "mqueue_store_qos0", value)

    def _set_session_expiry(self, line: Line) -> None:
        seconds = parse_duration_s(line, self._findings)
        if seconds is not None:
            self._set_limit(line, "session_expiry_s_max", min(seconds, NEVER_EXPIRES_S))

    # -- other options -----------------------------------------------------------------

    def _note_per_listener(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value:
            self._findings.add(
                DIFFERS,
                line,
                "There is one password file and one access list for all listeners;"
                " allow_anonymous is by listener.",
            )
        elif value is not None:
            self._findings.add(SAME, line, "All listeners share users and access list.")

    def _set_persistence(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value is None:
            return
        self.durability.set("persistence", "file" if value else "memory", line)
        self._findings.add(
            TAKEN if value else DIFFERS,
            line,
            'durability.persistence = "file".'
            if value
            else 'durability.persistence = "memory": acknowledged messages are not on disk, and'
            ' there is no control socket. Penstock is made for "file".',
        )

    def _set_retain_available(self, line: Line) -> None:
        value = parse_boolean(line, self._findings)
        if value is not None:
            self.listener_settings.append(("retain_available", value, line))
            self._findings.add(
                TAKEN, line, f"listener.retain_available = {str(value).lower()}, of each listener."
            )

    def _set_auto_id_prefix(self, line: Line) -> None:
        self.listener_settings.append(("auto_id_prefix", line.value, line))
        self._findings.add(
            TAKEN, line, f"listener.auto_id_prefix = {line.value!r}, of each listener."
        )

    def _set_sys_interval(self, line: Line) -> None:
        value = parse_number(line, self._findings)
        if value is not None:
            value = max(0, min(value, 86_400))
            self.status.set("sys_interval_s", value, line)
            self._findings.add(
                DIFFERS,
                line,
                f"status.sys_interval_s = {value}. Topics below $SYS are those of"
                " docs/sys_topics.md, most of them with Mosquitto's names.",
            )

    def _set_log_level(self, line: Line) -> None:
        word = line.value.split()[0] if line.value else ""
        level = _LEVELS.get(word)
        if level is None:
            self._findings.add(MISSING, line, "Mosquitto has no such type, either.")
            return
        earlier = self.log.get("level")
        if earlier in _LEVEL_NAMES:
            level = min(level, _LEVEL_NAMES.index(str(earlier)))
        name = _LEVEL_NAMES[level]
        self.log.set("level", name, line)
        self._findings.add(TAKEN, line, f'log.level = "{name}", the least severe of all log_types.')

    def _note_log_destination(self, line: Line) -> None:
        word, _, rest = line.value.partition(" ")
        rest = rest.strip()
        if word == "file" and rest:
            self._note_log_file(line, Path(rest))
        elif word == "stderr":
            self._findings.add(SAME, line, "Log lines go to standard error.")
        elif word in ("stdout", "syslog", "dlt", "android"):
            self._findings.add(
                DIFFERS,
                line,
                "Log lines go to standard error, which a service manager writes to its journal.",
            )
        elif word == "topic":
            self._findings.add(
                MISSING,
                line,
                "Log lines are not published; events.enabled = true writes the broker's events into"
                " its log, where readers of streams find them (docs/audit.md).",
            )
        elif word == "none":
            self.log.set("level", "error", line)
            self._findings.add(DIFFERS, line, 'log.level = "error": errors are always logged.')
        else:
            self._findings.add(MISSING, line, "Mosquitto has no such destination, either.")

    def _note_log_file(self, line: Line, path: Path) -> None:
        file = str(path.parent / "penstock.log")
        self._findings.add(
            DIFFERS,
            line,
            "Log lines go to standard error, which a service manager writes to its journal. For a"
            f" file set log.file = {file!r}, or another file that the broker's user may write.",
        )


def is_plugin_option(option: str) -> bool:
    """Return whether ``option`` loads or configures a plugin."""
    return option in _PLUGIN_OPTIONS or option.startswith(("auth_opt_", "plugin_opt_"))


def is_file_plugin(line: Line) -> bool:
    """Return whether ``line`` loads Mosquitto 2.1's plugin for password files or access lists."""
    return line.option in _LOAD_OPTIONS and any(name in line.value for name in _FILE_PLUGINS)


def loads_access_plugin(line: Line) -> bool:
    """Return whether ``line`` loads a plugin that may authenticate or authorize clients."""
    if line.option not in _LOAD_OPTIONS or is_file_plugin(line):
        return False
    return not any(name in line.value for name in _HARMLESS_PLUGINS)


_OPTIONS_READ_ELSEWHERE: Final = frozenset(
    ("acl_file", "allow_anonymous", "password_file", "persistence_file", "persistence_location")
)
GENERAL_OPTIONS: Final = frozenset(
    (
        *NOTES,
        *_PLUGIN_OPTIONS,
        *BrokerOptions(Findings()).translated_options,
        *_OPTIONS_READ_ELSEWHERE,
    )
)
"""The names of all options that belong to no listener and no bridge."""
