"""Draw which packets each state of a connection accepts, and where each event leads, from the
tables of both roles.

The drawing stands in the docstring of src/penstock/engine/values/states.py. With --write it is
written there; a test fails while it is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from penstock.engine.values.states import (
    AWAIT_AUTH,
    AWAIT_CONNACK,
    AWAIT_CONNECT,
    CLIENT,
    CONNECTED,
    EVENTS,
    NAMES,
    SERVER,
    StateTable,
)
from penstock.protocol.kinds import AUTH, CONNECT, packet_name

MODULE: Final = "src/penstock/engine/values/states.py"
DRAWN: Final = re.compile(r"(?<=::\n\n) {6}x accepted.*?\n(?=\"\"\")", re.DOTALL)

COLUMNS: Final[list[tuple[StateTable, int]]] = [
    (SERVER, AWAIT_CONNECT),
    (SERVER, AWAIT_AUTH),
    (SERVER, CONNECTED),
    (CLIENT, AWAIT_CONNACK),
    (CLIENT, CONNECTED),
]


def drawing() -> str:
    """Return the drawing: a line for each packet type, a column for each state of each role, and
    below a line for each event."""
    gap = "   "
    states = [NAMES[state] for _, state in COLUMNS]
    roles = [_role(table) for table, _ in COLUMNS]
    roles = [
        "" if number > 0 and role == roles[number - 1] else role
        for number, role in enumerate(roles)
    ]
    named = zip(roles, states, strict=True)
    lines = [
        "x accepted   . protocol error",
        "",
        " " * 15 + gap.join(role.ljust(len(state)) for role, state in named),
        " " * 15 + gap.join(states),
    ]
    for packet_type in range(CONNECT, AUTH + 1):
        cells = [
            ("x" if table.accepts(state, packet_type) else ".").center(len(NAMES[state]))
            for table, state in COLUMNS
        ]
        lines.append(packet_name(packet_type).ljust(15) + gap.join(cells))
    for table in (SERVER, CLIENT):
        lines.append("")
        for event, words in EVENTS.items():
            found = [NAMES[state] for state, moves in table.moves.items() if event in moves]
            if found:
                after = {NAMES[moves[event]] for moves in table.moves.values() if event in moves}
                lines.append(f"{_role(table)}   {', '.join(found)}")
                lines.append(f"            ─ {words} ─▶ {', '.join(after)}")
    return "".join(f"      {line}".rstrip() + "\n" for line in lines)


def _role(table: StateTable) -> str:
    return "server" if table is SERVER else "client"


def drawn(root: Path) -> str:
    """Return the drawing that stands in the docstring, or nothing."""
    found = DRAWN.search((root / MODULE).read_text(encoding="utf-8"))
    return "" if found is None else found[0]


def main() -> int:
    """Write the drawing, or print it."""
    root = Path(__file__).resolve().parent.parent
    if "--write" not in sys.argv[1:]:
        print(drawing(), end="")
        return 0
    path = root / MODULE
    text, count = DRAWN.subn(drawing(), path.read_text(encoding="utf-8"), count=1)
    if count == 0:
        print(f"{MODULE} has no place for the drawing.", file=sys.stderr)
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
