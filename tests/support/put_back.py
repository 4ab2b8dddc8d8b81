"""The matrix of what may be put back, ``put_back.toml``: one source for the table in
``docs/durability.md`` and for its test. ``python -m tests.support.put_back`` writes the table."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

TESTS: Final = Path(__file__).resolve().parents[1]
DOCUMENT: Final = TESTS.parent / "docs" / "durability.md"
BEGIN: Final = "<!-- put back: begin -->\n"
END: Final = "<!-- put back: end -->\n"

COPIES: Final = ("an older copy", "an empty one", "one of another installation", "a newer one")


class Cell(NamedTuple):
    """What becomes of one state when one kind of copy of it is put back; see the file."""

    state: str
    copy: str
    outcome: str
    tests: list[str]
    sentence: str = ""


def read_cells() -> list[Cell]:
    """The cells, those of one state together."""
    content = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return [Cell(**cell) for cell in content["cell"]]


def table() -> str:
    """The table of the document."""
    outcomes = {(cell.state, cell.copy): cell.outcome for cell in read_cells()}
    states = list(dict.fromkeys(state for state, _ in outcomes))
    lines = [["what comes back", *COPIES], ["---"] * (len(COPIES) + 1)]
    lines += [[state, *(outcomes[state, copy] for copy in COPIES)] for state in states]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def written(document: str) -> str:
    """The document with the table of this source."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    return pattern.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", document)


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text()))
