"""The whole configuration, translated: the content of penstock.toml, and the findings."""

from __future__ import annotations

from pathlib import Path
from typing import Final, final

from penstock.mosquitto.bridges import Bridge
from penstock.mosquitto.broker_options import BrokerOptions, is_file_plugin
from penstock.mosquitto.configuration import BRIDGE_OPTIONS, Configuration
from penstock.mosquitto.findings import MISSING, SAME, Findings, Line
from penstock.mosquitto.listeners import Listeners
from penstock.mosquitto.toml_file import Table
from penstock.mosquitto.users import ACCESS_OPTIONS, AccessSettings

_DATABASE_OPTIONS: Final = ("persistence_file", "persistence_location")

_INTRODUCTION: Final = """\
# Penstock's settings, made from {path} by `penstock import mosquitto`.
# Each comment says which line a value is from; report.txt lists all lines. `penstock config`
# explains every setting."""


@final
class Translation:
    """One configuration, translated.

    Args:
        configuration: the lines that were read.
        client_ids: the client identifiers in the database, by which a bridge's session is found.
        directory: the place of the files to write, an absolute path.

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
            self._take(line)
        self._listeners = Listeners(configuration, self.findings, self._options.offers, directory)
        for line in self._listeners.others:
            if line.option not in ACCESS_OPTIONS:
                self._take(line)
        self.access = AccessSettings(configuration, self._listeners, self.findings, directory)
        self.bundles = dict(self._listeners.bundles)  # further files: name to text
        self._bridges = self._translated_bridges(client_ids)
        self._options.add_defaults()
        self._account_for_all()

    def _account_for_all(self) -> None:
        """Note each line that has no finding yet: nothing is left out silently."""
        told = {finding.place for finding in self.findings.all}
        for line in self._configuration.lines():
            if line.place not in told:
                says = "Nothing was made of it: a later line says it again, or what it is about"
                self.findings.add(MISSING, line, f"{says} is left out.")

    def _take(self, line: Line) -> None:
        if line.option in ACCESS_OPTIONS:
            return  # told with the files, below
        if line.option in _DATABASE_OPTIONS:
            self.findings.add(SAME, line, "It says where Mosquitto's database is read from.")
        elif is_file_plugin(line):
            self.findings.add(SAME, line, "Password file and access list need no plugin.")
        elif not self._options.take(line):
            says = "Mosquitto knows no such option, either: is it spelt right?"
            if line.option in BRIDGE_OPTIONS:
                says = "It belongs to a bridge, and no `connection` line stands before it."
            self.findings.add(MISSING, line, says)

    def _translated_bridges(self, client_ids: frozenset[str]) -> list[Bridge]:
        bridges: list[Bridge] = []
        for section in self._configuration.bridges:
            bridge = Bridge(section, self.findings, self.bundles, client_ids, self._directory)
            if any(bridge.name == other.name for other in bridges):
                bridge.rename(f"{bridge.name[:60]}-{len(bridges) + 1}")
            bridges.append(bridge)
        return bridges

    @property
    def zones(self) -> dict[int, str]:
        """Return the name of each listener by its port."""
        return self._listeners.names

    @property
    def bridges(self) -> dict[str, str]:
        """Return the name of each bridge by the client identifier that it had in Mosquitto; an
        empty name for one that is left out."""
        return {
            bridge.local_client_id: "" if bridge.left_out else bridge.name
            for bridge in self._bridges
        }

    def make_room_for(self, longest: int, largest_bytes: int) -> None:
        """See ``BrokerOptions.make_room_for``."""
        self._options.make_room_for(longest, largest_bytes)

    def set_data_dir(self, data_dir: str, why: str) -> None:
        """Set the data directory of the new broker; ``why`` becomes the comment."""
        self._options.durability.set("data_dir", data_dir, why)

    def toml(self) -> str:
        """Return the text of penstock.toml."""
        listeners = self._listeners.tables
        options = self._options
        tables: list[Table] = [*listeners]
        tables += [options.durability, options.limits, options.status, self.access.table]
        tables.append(options.log)
        for bridge in self._bridges:
            if not bridge.left_out:
                tables += [bridge.table, *bridge.forwards]
        lines = _INTRODUCTION.format(path=_printable(str(self._configuration.path))).split("\n")
        for table in tables:
            if table:
                lines += table.lines()
        return "\n".join(lines) + "\n"


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
