"""Mosquitto's listeners: each becomes one of Penstock's, or is left out with a reason.

A listener is left out where Penstock cannot offer what keeps others away from it, such as a
pre-shared key: open without it, it would let in whom Mosquitto refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import final

from penstock.config.listener import MAIN_LISTENER
from penstock.mosquitto.configuration import Configuration, ListenerSection
from penstock.mosquitto.findings import DIFFERS, MISSING, TAKEN, Findings, Line
from penstock.mosquitto.listener_options import ListenerOptions
from penstock.mosquitto.toml_file import Table


@final
class Listeners:
    """All listeners of one configuration, translated.

    Args:
        configuration: the lines that were read.
        findings: the findings, to which those of each line are added.
        offers: settings of every listener: name, value and the line they are from.
        directory: the place of files to write, such as the certificates of a directory joined.
    """

    def __init__(
        self,
        configuration: Configuration,
        findings: Findings,
        offers: list[tuple[str, object, Line]],
        directory: Path,
    ) -> None:
        self.tables: list[Table] = []  # the main listener first
        self.names: dict[int, str] = {}  # of a listener, by its port
        self._taken = {MAIN_LISTENER}
        self.identity: tuple[str, Line] | None = None  # access.identity_from_certificate
        self.bundles: dict[str, str] = {}  # a file to write: certificates of a directory, joined
        self.opened: list[tuple[ListenerSection, Table]] = []
        self.others: list[Line] = []  # lines in a listener's section that are about users
        self._findings = findings
        self._offers = offers
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
            self._take(section)
        if not self.tables:
            table = Table("[listener]", "no listener of Mosquitto's could be taken over")
            table.set("bind", "127.0.0.1:1883", "reachable from this machine only")
            self.tables.append(table)
            findings.note(
                DIFFERS,
                str(configuration.path),
                "no listener came over",
                "listener.bind = 127.0.0.1:1883, which only this machine reaches: write your own.",
            )

    def _take(self, section: ListenerSection) -> None:
        name = MAIN_LISTENER if not self.tables else self._name_of(section)
        found = Findings()
        bundles: dict[str, str] = {}
        one = ListenerOptions(section, name, found, self._offers, bundles, self._directory)
        self.others += one.others
        if one.left_out:
            for finding in found.all:
                if section.opening is not None and finding.place == section.opening.place:
                    continue  # told below
                says = finding.says if finding.kind == MISSING else "Its listener is not opened."
                self._findings.note(MISSING, finding.place, finding.text, says)
            opening = section.opening
            place = opening.place if opening else str(self._configuration.path)
            text = opening.text if opening else "the default listener"
            self._findings.note(MISSING, place, text, f"It is not opened: {one.left_out}")
            return
        self._findings.all += found.all
        self.bundles |= bundles
        self.tables.append(one.table)
        self.opened.append((section, one.table))
        self.names.setdefault(section.port, name)
        self._taken.add(name)
        self.identity = self.identity or one.identity

    def _name_of(self, section: ListenerSection) -> str:
        known = self._taken
        wanted = f"port-{section.port}" if section.port else "socket"
        name = wanted
        number = 2
        while name in known:
            name = f"{wanted}-{number}"
            number += 1
        return name
