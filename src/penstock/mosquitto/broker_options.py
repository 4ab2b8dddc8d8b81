"""Options of the whole broker: each line becomes a setting, or a sentence about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from penstock.config.limits import Limits
from penstock.mosquitto.broker_notes import NOTES
from penstock.mosquitto.findings import DIFFERS, MISSING, SAME, TAKEN, Findings, Line
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.values import number_of, seconds_of, truth_of

PACKET_BYTES_MAX: Final = 268_435_460
_PACKET_BYTES_MIN: Final = 256
_TOPIC_BYTES: Final = 65_536  # that a packet may have beside its payload, about
NEVER_S: Final = 4_294_967_295

DEFAULT_PACKET_BYTES: Final = 2_000_000  # of Mosquitto 2.1; 2.0 has no limit
DEFAULT_WINDOW: Final = 20

_PLUGIN: Final = (
    "Plugins cannot be loaded. Users: `penstock passwd`, an HTTP service (http_login.url) or tokens"
    " (jwt_login.keys); permissions: access.acl_file."
)
_LOADING: Final = ("auth_plugin", "plugin", "global_plugin", "plugin_load")
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
    """The settings that the general lines become.

    Args:
        findings: the findings, to which those of each line are added.
    """

    def __init__(self, findings: Findings) -> None:
        self.durability = Table("[durability]")
        self.limits = Table("[limits]")
        self.status = Table("[status]")
        self.log = Table("[log]")
        self.offers: list[tuple[str, object, Line]] = []  # of every listener
        self._findings = findings
        self._handlers: dict[str, Callable[[Line], None]] = {
            "global_max_clients": self._clients,
            "log_dest": self._log_destination,
            "log_type": self._log_type,
            "max_inflight_messages": self._window,
            "max_keepalive": self._keep_alive,
            "max_packet_size": self._packet_size,
            "max_queued_bytes": self._queue_bytes,
            "max_queued_messages": self._queue,
            "message_size_limit": self._message_size,
            "persistence": self._persistence,
            "retained_persistence": self._persistence,
            "per_listener_settings": self._per_listener,
            "persistent_client_expiration": self._session_expiry,
            "queue_qos0_messages": self._queue_qos0,
            "retain_available": self._retain_available,
            "sys_interval": self._sys_interval,
            "auto_id_prefix": self._auto_id_prefix,
        }

    @property
    def handled(self) -> frozenset[str]:
        """Return the names of the options that become settings."""
        return frozenset(self._handlers)

    def take(self, line: Line) -> bool:
        """Turn ``line`` into a setting, or say what to do about it; return False where it is not an
        option of the whole broker."""
        handler = self._handlers.get(line.option)
        if handler is not None:
            handler(line)
        elif line.option in NOTES:
            kind, says = NOTES[line.option]
            self._findings.add(kind, line, says)
        elif is_of_plugins(line.option):
            self._findings.add(MISSING, line, _PLUGIN)
        else:
            return False
        return True

    def add_defaults(self) -> None:
        """Set Mosquitto's own defaults where a client would notice the difference and no line says
        anything."""
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

    def make_room_for(self, longest: int, largest_bytes: int) -> None:
        """Raise the limits of the queue where one that comes over is longer or larger.

        Mosquitto's limit does not count what is in flight; here all of it may wait in the queue,
        and what is above the limit would be dropped when its client connects.
        """
        for name, have, unit in (
            ("max_mqueue_len", longest, "messages"),
            ("max_mqueue_bytes", largest_bytes, "bytes"),
        ):
            given = self.limits.get(name)
            limit = given if isinstance(given, int) else getattr(Limits(), name)
            if 0 < limit < have:
                self.limits.set(name, have, f"{have} {unit} wait for a client in the database")
                self._findings.note(
                    DIFFERS,
                    "",
                    f"{have:,} {unit} wait for one client",
                    f"limits.{name} = {have} instead of {limit}, or the oldest would be dropped"
                    " when the client connects; lower it when the queue is empty.",
                )

    # -- limits ------------------------------------------------------------------------

    def _limit(self, line: Line, name: str, value: int | bool, more: str = "") -> None:
        self.limits.set(name, value, line)
        shown = str(value).lower() if isinstance(value, bool) else value
        kind = DIFFERS if more else TAKEN
        self._findings.add(kind, line, f"limits.{name} = {shown}{more or '.'}")

    def _clients(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is None:
            return
        if value <= 0:
            self._findings.add(SAME, line, "Without a limit, limits.sessions_max is 1,000,000.")
            return
        self._limit(line, "sessions_max", min(value, 100_000_000))

    def _window(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            self._limit(line, "max_inflight", 0 if not 0 < value < 65_535 else value)

    def _keep_alive(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            self._limit(line, "keep_alive_s_max", max(0, min(value, 65_535)))

    def _packet_size(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is None:
            return
        size = max(_PACKET_BYTES_MIN, min(value, PACKET_BYTES_MAX))
        more = "" if size == value else f", the nearest value that is allowed to {value}."
        self._limit(line, "max_packet_size_bytes", size, more)

    def _message_size(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is None:
            return
        if value <= 0:
            self._findings.add(SAME, line, "No limit of the payload: see max_packet_size.")
            return
        known = self.limits.get("max_packet_size_bytes")
        size = min(value + _TOPIC_BYTES, PACKET_BYTES_MAX)
        if isinstance(known, int):
            size = min(size, known)
        self._limit(
            line,
            "max_packet_size_bytes",
            max(size, _PACKET_BYTES_MIN),
            ": it bounds the whole packet, so 64 KiB were added for topic and properties. Whoever"
            " sends more is disconnected (0x95); Mosquitto drops the message and goes on.",
        )

    def _queue(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            self._limit(line, "max_mqueue_len", max(0, min(value, 100_000_000)))

    def _queue_bytes(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            self._limit(line, "max_mqueue_bytes", max(0, value))

    def _queue_qos0(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value is not None:
            self._limit(line, "mqueue_store_qos0", value)

    def _session_expiry(self, line: Line) -> None:
        seconds = seconds_of(line, self._findings)
        if seconds is not None:
            self._limit(line, "session_expiry_s_max", min(seconds, NEVER_S))

    # -- the rest ----------------------------------------------------------------------

    def _per_listener(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value:
            self._findings.add(
                DIFFERS,
                line,
                "There is one password file and one access list for all listeners;"
                " allow_anonymous is by listener.",
            )
        elif value is not None:
            self._findings.add(SAME, line, "Users and access list are those of all listeners.")

    def _persistence(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value is None:
            return
        kept = "file" if value else "memory"
        self.durability.set("persistence", kept, line)
        self._findings.add(
            TAKEN if value else DIFFERS,
            line,
            'durability.persistence = "file".'
            if value
            else 'durability.persistence = "memory": acknowledgements promise no disk, and there is'
            ' no control socket. "file" is what Penstock is made for.',
        )

    def _retain_available(self, line: Line) -> None:
        value = truth_of(line, self._findings)
        if value is not None:
            self.offers.append(("retain_available", value, line))
            self._findings.add(
                TAKEN, line, f"listener.retain_available = {str(value).lower()}, of each listener."
            )

    def _auto_id_prefix(self, line: Line) -> None:
        self.offers.append(("auto_id_prefix", line.value, line))
        self._findings.add(
            TAKEN, line, f"listener.auto_id_prefix = {line.value!r}, of each listener."
        )

    def _sys_interval(self, line: Line) -> None:
        value = number_of(line, self._findings)
        if value is not None:
            value = max(0, min(value, 86_400))
            self.status.set("sys_interval_s", value, line)
            self._findings.add(
                DIFFERS,
                line,
                f"status.sys_interval_s = {value}. Topics below $SYS are those of"
                " docs/sys_topics.md, most of them with Mosquitto's names.",
            )

    def _log_type(self, line: Line) -> None:
        word = line.value.split()[0] if line.value else ""
        level = _LEVELS.get(word)
        if level is None:
            self._findings.add(MISSING, line, "Mosquitto knows no such type, either.")
            return
        known = self.log.get("level")
        if known in _LEVEL_NAMES:
            level = min(level, _LEVEL_NAMES.index(str(known)))
        name = _LEVEL_NAMES[level]
        self.log.set("level", name, line)
        self._findings.add(TAKEN, line, f'log.level = "{name}", the least severe of all log_types.')

    def _log_destination(self, line: Line) -> None:
        word, _, rest = line.value.partition(" ")
        rest = rest.strip()
        if word == "file" and rest:
            self._log_file(line, Path(rest))
        elif word == "stderr":
            self._findings.add(SAME, line, "Log lines go to standard error.")
        elif word in ("stdout", "syslog", "dlt", "android"):
            self._findings.add(
                DIFFERS,
                line,
                "Log lines go to standard error, which a service manager takes to its journal.",
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
            self._findings.add(MISSING, line, "Mosquitto knows no such destination, either.")

    def _log_file(self, line: Line, path: Path) -> None:
        file = str(path.parent / "penstock.log")
        self._findings.add(
            DIFFERS,
            line,
            "Log lines go to standard error, which a service manager takes to its journal. For a"
            f" file set log.file = {file!r}, or any other that the broker's user may write.",
        )


def is_of_plugins(option: str) -> bool:
    """Return whether ``option`` is about plugins."""
    return option in _PLUGIN_OPTIONS or option.startswith(("auth_opt_", "plugin_opt_"))


def is_file_plugin(line: Line) -> bool:
    """Return whether ``line`` loads the plugin for password files or access lists of 2.1."""
    return line.option in _LOADING and any(name in line.value for name in _FILE_PLUGINS)


def may_decide(line: Line) -> bool:
    """Return whether ``line`` loads a plugin that may decide on permissions."""
    if line.option not in _LOADING or is_file_plugin(line):
        return False
    return not any(name in line.value for name in _HARMLESS_PLUGINS)


_READ_ELSEWHERE: Final = frozenset(
    ("acl_file", "allow_anonymous", "password_file", "persistence_file", "persistence_location")
)
GENERAL_OPTIONS: Final = frozenset(
    (*NOTES, *_PLUGIN_OPTIONS, *BrokerOptions(Findings()).handled, *_READ_ELSEWHERE)
)
"""The names of all options that are of no listener and no bridge."""
