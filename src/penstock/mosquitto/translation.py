"""The translation of a whole configuration: the content of penstock.toml, and the findings."""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

from penstock.mosquitto.bridges import TranslatedBridge
from penstock.mosquitto.broker_options import BrokerOptions, is_file_plugin
from penstock.mosquitto.configuration import BRIDGE_OPTIONS, Configuration
from penstock.mosquitto.findings import MISSING, SAME, Findings, Line
from penstock.mosquitto.listeners import TranslatedListeners
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.users import ACCESS_OPTIONS, AccessSettings

_DATABASE_OPTIONS: Final = ("persistence_file", "persistence_location")

_INTRODUCTION: Final = """\
# Penstock's settings, made from {path} by `penstock import mosquitto`.
# Each comment names the line that a value is from; report.txt lists all lines. `penstock config`
# explains every setting."""


@final
class Translation:
    """The translation of one configuration.

    Args:
        configuration: the lines that were read.
        client_ids: the client identifiers in the database, by which a bridge's session is found.
        directory: absolute path of the directory of the files to write.

    Attributes:
        findings: the findings, one for each line at least.
        access: the users and the access list.
        bundles: text by name of further files to write, with certificates.

    Raises:
        ConfigError: a password file or access list cannot be read.
    """

    def __init__(
        self, configuration: Configuration, client_ids: frozenset[str], directory: Path
    ) -> None:
        self.findings = Findings()
        self._configuration = configuration
        self._directory = directory
        self._options = BrokerOptions(self.findings)
        for line in configuration.general:
            self._translate_line(line)
        self._listeners = TranslatedListeners(
            configuration, self.findings, self._options.listener_settings, directory
        )
        for line in self._listeners.general_lines:
            if line.option not in ACCESS_OPTIONS:
                self._translate_line(line)
        self.access = AccessSettings(configuration, self._listeners, self.findings, directory)
        self.bundles = dict(self._listeners.bundles)
        self._bridges = self._translate_bridges(client_ids)
        self._options.add_defaults()
        self._note_skipped_lines()

    def _note_skipped_lines(self) -> None:
        """Add a finding for each line without one: nothing is left out silently."""
        places = {finding.place for finding in self.findings.all}
        for line in self._configuration.lines():
            if line.place not in places:
                explanation = "A later line replaces it, or its bridge or listener is left out."
                self.findings.add(MISSING, line, explanation)

    def _translate_line(self, line: Line) -> None:
        if line.option in ACCESS_OPTIONS:
            return  # ``AccessSettings`` translates it
        if line.option in _DATABASE_OPTIONS:
            self.findings.add(SAME, line, "The import reads Mosquitto's database from there.")
        elif is_file_plugin(line):
            self.findings.add(SAME, line, "Password file and access list need no plugin.")
        elif not self._options.translate(line):
            explanation = "Mosquitto knows no such option, either: is it spelt right?"
            if line.option in BRIDGE_OPTIONS:
                explanation = "The option is for bridges, and no `connection` line is before it."
            self.findings.add(MISSING, line, explanation)

    def _translate_bridges(self, client_ids: frozenset[str]) -> list[TranslatedBridge]:
        bridges: list[TranslatedBridge] = []
        for section in self._configuration.bridges:
            bridge = TranslatedBridge(
                section, self.findings, self.bundles, client_ids, self._directory
            )
            if any(bridge.name == other.name for other in bridges):
                bridge.rename(f"{bridge.name[:60]}-{len(bridges) + 1}")
            bridges.append(bridge)
        return bridges

    @property
    def listener_names(self) -> dict[int, str]:
        """Return the name of each listener by its port."""
        return self._listeners.names

    @property
    def bridges(self) -> dict[str, str]:
        """Return the name of each bridge by the client identifier that it had in Mosquitto; the
        name is empty for a bridge that is left out."""
        return {
            bridge.local_client_id: "" if bridge.omission_reason else bridge.name
            for bridge in self._bridges
        }

    def raise_queue_limits(self, longest: int, largest_bytes: int) -> None:
        """Raise the limits of queues, see ``BrokerOptions.raise_queue_limits``."""
        self._options.raise_queue_limits(longest, largest_bytes)

    def set_data_dir(self, data_dir: str, comment: str) -> None:
        """Set the data directory of the new broker, with a comment."""
        self._options.durability.set("data_dir", data_dir, comment)

    def toml(self) -> str:
        """Return the text of penstock.toml."""
        listeners = self._listeners.tables
        options = self._options
        tables: list[Table] = [*listeners]
        tables += [options.durability, options.limits, options.status, self.access.table]
        tables.append(options.log)
        for bridge in self._bridges:
            if not bridge.omission_reason:
                tables += [bridge.table, *bridge.forwards]
        lines = _INTRODUCTION.format(path=_printable(str(self._configuration.path))).split("\n")
        for table in tables:
            if table:
                lines += table.lines()
        return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
