"""``python -m tests.attacks``: every attack at full size, one after the other, as a table.

::

    python -m tests.attacks --seconds 60 --write      # docs/attacks.md anew
    python -m tests.attacks --only WebSocket          # those whose name has this word; --write
                                                      # leaves the rows of the others
    python -m tests.attacks --mosquitto               # against Mosquitto instead
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tests.attacks.attack import Attack, Outcome

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "attacks.md"
_BEGIN: Final = "<!-- measured: python -m tests.attacks {} -->\n"
_END: Final = "<!-- end of what is measured -->\n"


def main(arguments: list[str]) -> int:
    """Play what the arguments ask for; return 1 if something was lost, or somebody kept out.

    How long others waited is told in the table: on a busy machine it is the machine's.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack (60)")
    parser.add_argument("--only", default="", help="a part of the name")
    parser.add_argument(
        "--mosquitto", action="store_true", help="play them against Mosquitto instead"
    )
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name}")
    asked = parser.parse_args(arguments)
    os.environ["PENSTOCK_ATTACK_SECONDS"] = str(asked.seconds)  # before the attacks are read
    from tests.attacks import attack as attacks

    chosen = [attack for attack in _all() if asked.only.lower() in attack.name.lower()]
    play: Callable[[Attack, Path, float], Outcome] = attacks.play
    if asked.mosquitto:
        play = attacks.play_mosquitto
    held = True
    rows: list[str] = []
    for attack in chosen:
        if asked.mosquitto and isinstance(attack.mosquitto, str):
            rows.append(_not_played(attack.name, attack.mosquitto))
            continue
        outcome = _outcome(rows, attack.name, partial(play, attack), asked.seconds)
        held = held and outcome is not None and outcome.is_whole()
    table = "\n".join([attacks.HEAD, *rows]) + "\n"
    print(f"\n{table}")
    if asked.write:
        begin = _BEGIN.format("--mosquitto --write" if asked.mosquitto else "--write")
        before, _, rest = DOCUMENT.read_text().partition(begin)
        known, end, behind = rest.partition(_END)
        if asked.only:
            rows = _merged(known.strip().splitlines()[attacks.HEAD.count("\n") + 1 :], rows)
            table = "\n".join([attacks.HEAD, *rows]) + "\n"
        DOCUMENT.write_text(f"{before}{begin}\n{table}\n{end}{behind}")
    return int(not (held or asked.mosquitto))


def _all() -> list[Attack]:
    """Return all attacks; the storm of users is a test of its own."""
    found: list[Attack] = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        found += getattr(importlib.import_module(f"tests.attacks.{path.stem}"), "ATTACKS", ())
    return found


def _outcome(
    rows: list[str], name: str, play: Callable[[Path, float], Outcome], seconds: float
) -> Outcome | None:
    """Play one attack and add its row; None where it broke off, so that the others go on."""
    with tempfile.TemporaryDirectory(prefix="penstock-attack-") as directory:
        try:
            outcome = play(Path(directory), seconds)
        except Exception as error:  # it is told in the table
            rows.append(_not_played(name, f"broke off: {error!r}"))
            return None
    rows.append(outcome.row())
    return outcome


def _merged(known: list[str], played: list[str]) -> list[str]:
    """Return the rows of a table with those that were ``played`` in the place of theirs."""
    new = {_name(row): row for row in played}
    merged = [new.pop(_name(row), row) for row in known]
    return [*merged, *new.values()]


def _name(row: str) -> str:
    return row.split("|")[1].strip()


def _not_played(name: str, why: str) -> str:
    return f"| {name} | | | | | | | {why} |"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
