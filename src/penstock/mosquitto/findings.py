"""The findings of an import, each on the outcome for one line of Mosquitto's files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.masking import MASK

TAKEN: Final = "taken"
SAME: Final = "same"
DIFFERS: Final = "differs"
MISSING: Final = "missing"

HEADINGS: Final = {
    TAKEN: "Came over",
    SAME: "Needs nothing",
    DIFFERS: "Comes over, and behaves differently",
    MISSING: "Has no counterpart",
}
"""Kinds of findings with the heading of each, in the order in which they are told."""

_SECRETS: Final = ("password", "remote_password", "local_password", "bridge_psk")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file of Mosquitto's.

    Attributes:
        path: the file.
        number: the line's number in it, from 1.
        option: its first word.
        value: the rest, without the blanks around it.
    """

    path: Path
    number: int
    option: str
    value: str

    @property
    def place(self) -> str:
        """Return FILE:LINE."""
        return f"{self.path}:{self.number}"

    @property
    def text(self) -> str:
        """Return the line without secrets."""
        is_secret = self.option in _SECRETS or "pass" in self.option.partition("_opt_")[2]
        value = MASK if is_secret and self.value else self.value
        return f"{self.option} {value}".rstrip()


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: the fate of one line, or of something that no line says.

    Attributes:
        kind: TAKEN, SAME, DIFFERS or MISSING.
        place: FILE:LINE; a file, where it is about the whole of it; empty for a default.
        text: the line without secrets, or what it is about.
        says: one or two sentences: its setting, or an advice.
    """

    kind: str
    place: str
    text: str
    says: str


class Findings:
    """The findings of one import, in the order in which they were made."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def add(self, kind: str, line: Line, says: str) -> None:
        """Record the outcome of ``line``."""
        self.all.append(Finding(kind, line.place, line.text, says))

    def note(self, kind: str, place: str, text: str, says: str) -> None:
        """Note something that is no line of its own, such as a default."""
        self.all.append(Finding(kind, place, text, says))

    def count(self, kind: str) -> int:
        """Return how many findings of ``kind`` there are."""
        return sum(finding.kind == kind for finding in self.all)

    def report(self) -> list[str]:
        """Return the report: under the heading of each kind two lines for each finding, in the
        order of files and lines; what no line says comes last."""
        lines: list[str] = []
        for kind, heading in HEADINGS.items():
            found = [finding for finding in self.all if finding.kind == kind]
            if not found:
                continue
            found.sort(key=_order)
            lines += ["", f"{heading} ({len(found)})", ""]
            for finding in found:
                place = f"{finding.place}: " if finding.place else ""
                lines += [f"  {place}{finding.text}", f"      {finding.says}"]
        return lines[1:]


def _order(finding: Finding) -> tuple[bool, str, int]:
    path, _, number = finding.place.rpartition(":")
    if not number.isdigit():
        return (not finding.place, finding.place, 0)
    return (False, path, int(number))
