"""The findings of an import: the outcome for each line of Mosquitto's files."""

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
    TAKEN: "Translated",
    SAME: "Needs no setting",
    DIFFERS: "Translated, with a difference",
    MISSING: "Has no counterpart",
}
"""The heading of each kind of findings, in the order of the report."""

_SECRETS: Final = ("password", "remote_password", "local_password", "bridge_psk")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file of Mosquitto's.

    Attributes:
        path: the path of the file.
        number: the number of the line in the file, from 1.
        option: the first word of the line.
        value: the text behind the option, without blanks around it.
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
        """Return the line, with secrets masked."""
        is_secret = self.option in _SECRETS or "pass" in self.option.partition("_opt_")[2]
        value = MASK if is_secret and self.value else self.value
        return f"{self.option} {value}".rstrip()


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: the outcome for one line, or for a default that no line sets.

    Attributes:
        kind: TAKEN, SAME, DIFFERS or MISSING.
        place: FILE:LINE; only the file if the finding is about the whole file; empty for a default.
        text: the line with secrets masked, or the subject of the finding.
        explanation: one or two sentences: the setting that it became, or advice.
    """

    kind: str
    place: str
    text: str
    explanation: str


class Findings:
    """The findings of one import, in the order in which they were made."""

    def __init__(self) -> None:
        self.all: list[Finding] = []

    def add(self, kind: str, line: Line, explanation: str) -> None:
        """Add the outcome for ``line``."""
        self.all.append(Finding(kind, line.place, line.text, explanation))

    def note(self, kind: str, place: str, text: str, explanation: str) -> None:
        """Add a finding that is not about a line, such as one about a default."""
        self.all.append(Finding(kind, place, text, explanation))

    def count(self, kind: str) -> int:
        """Return how many findings of ``kind`` there are."""
        return sum(finding.kind == kind for finding in self.all)

    def report(self) -> list[str]:
        """Return the lines of the report: under the heading of each kind two lines for each
        finding, in the order of files and lines; findings about no line come last."""
        lines: list[str] = []
        for kind, heading in HEADINGS.items():
            found = [finding for finding in self.all if finding.kind == kind]
            if not found:
                continue
            found.sort(key=_order)
            lines += ["", f"{heading} ({len(found)})", ""]
            for finding in found:
                place = f"{finding.place}: " if finding.place else ""
                lines += [f"  {place}{finding.text}", f"      {finding.explanation}"]
        return lines[1:]


def _order(finding: Finding) -> tuple[bool, str, int]:
    path, _, number = finding.place.rpartition(":")
    if not number.isdigit():
        return (not finding.place, finding.place, 0)
    return (False, path, int(number))
