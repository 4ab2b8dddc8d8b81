"""The translation of Mosquitto's listeners: each becomes one of Penstock's, or is left out with a
reason.

A listener is left out where Penstock lacks the protection that it has, such as a pre-shared key:
without the protection the listener would admit clients that Mosquitto refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

from penstock.config.listener import MAIN_LISTENER
from penstock.mosquitto.configuration import Configuration, ListenerSection
from penstock.mosquitto.findings import DIFFERS, MISSING, TAKEN, Findings, Line
from penstock.mosquitto.listener_options import TranslatedListener
from penstock.mosquitto.toml_file import Table


@final
class TranslatedListeners:
    """The translation of all listeners of a configuration.

    Args:
        configuration: the lines that were read.
        findings: the findings, to which one for each line is added.
        shared_settings: settings of every listener: name, value and the line that they are from.
        directory: the directory of the files to write.

    Attributes:
        tables: the settings of each listener, the main one first.
        names: the name of a listener by its port.
        identity: the value of access.identity_from_certificate, and the line that says so.
        bundles: text by name of the files to write, with all certificates of a directory.
        opened_sections: the sections that became listeners, with their settings.
        general_lines: lines in sections of listeners that are not about a listener.
    """

    def __init__(
        self,
        configuration: Configuration,
        findings: Findings,
        shared_settings: list[tuple[str, object, Line]],
        directory: Path,
    ) -> None:
        self.tables: list[Table] = []
        self.names: dict[int, str] = {}
        self._used_names = {MAIN_LISTENER}
        self.identity: tuple[str, Line] | None = None
        self.bundles: dict[str, str] = {}
        self.opened_sections: list[tuple[ListenerSection, Table]] = []
        self.general_lines: list[Line] = []
        self._findings = findings
        self._shared_settings = shared_settings
        self._directory = directory
        self._configuration = configuration
        for section in configuration.listeners:
            if section.is_local:
                findings.note(
                    TAKEN,
                    "",
                    "no listener (default)",
                    "listener.bind = 127.0.0.1:1883: only this machine connects, and needs no user"
                    " name unless allow_anonymous says so.",
                )
            self._translate(section)
        if not self.tables:
            table = Table("[listener]", "no listener of Mosquitto's could be translated")
            table.set("bind", "127.0.0.1:1883", "reachable from this machine only")
            self.tables.append(table)
            findings.note(
                DIFFERS,
                str(configuration.path),
                "no listener was translated",
                "listener.bind = 127.0.0.1:1883, which only this machine reaches: write your own.",
            )

    def _translate(self, section: ListenerSection) -> None:
        name = MAIN_LISTENER if not self.tables else self._unused_name(section)
        own_findings = Findings()
        bundles: dict[str, str] = {}
        listener = TranslatedListener(
            section, name, own_findings, self._shared_settings, bundles, self._directory
        )
        self.general_lines += listener.general_lines
        if listener.omission_reason:
            for finding in own_findings.all:
                if section.opening is not None and finding.place == section.opening.place:
                    continue  # its finding is added below
                explanation = "The listener of this line is not opened."
                if finding.kind == MISSING:
                    explanation = finding.explanation
                self._findings.note(MISSING, finding.place, finding.text, explanation)
            opening = section.opening
            place = opening.place if opening else str(self._configuration.path)
            text = opening.text if opening else "the default listener"
            self._findings.note(
                MISSING, place, text, f"The listener is not opened: {listener.omission_reason}"
            )
            return
        self._findings.all += own_findings.all
        self.bundles |= bundles
        self.tables.append(listener.table)
        self.opened_sections.append((section, listener.table))
        self.names.setdefault(section.port, name)
        self._used_names.add(name)
        self.identity = self.identity or listener.identity

    def _unused_name(self, section: ListenerSection) -> str:
        base = f"port-{section.port}" if section.port else "socket"
        name = base
        number = 2
        while name in self._used_names:
            name = f"{base}-{number}"
            number += 1
        return name
