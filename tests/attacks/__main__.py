"""``python -m tests.attacks``: every attack at full size, one after the other, as a table.

::

    python -m tests.attacks --seconds 60 --write      # docs/attacks.md anew
    python -m tests.attacks --only WebSocket          # those whose name has this word
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "attacks.md"
_BEGIN: Final = "<!-- measured: python -m tests.attacks --write -->\n"
_END: Final = "<!-- end of what is measured -->\n"


def main(arguments: list[str]) -> int:
    """Play what the arguments ask for; return 1 if something was lost, or somebody kept out.

    How long others waited is told in the table: on a busy machine it is the machine's.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each attack (60)")
    parser.add_argument("--only", default="", help="a part of the name")
    parser.add_argument("--write", action="store_true", help=f"into {DOCUMENT.name}")
    asked = parser.parse_args(arguments)
    os.environ["PENSTOCK_ATTACK_SECONDS"] = str(asked.seconds)  # before the attacks are read
    from tests.attacks import attack as attacks

    rows: list[str] = []
    held = True
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        module = importlib.import_module(f"tests.attacks.{path.stem}")
        for attack in getattr(module, "ATTACKS", ()):  # the storm of users is a test of its own
            if asked.only.lower() not in attack.name.lower():
                continue
            with tempfile.TemporaryDirectory(prefix="penstock-attack-") as directory:
                try:
                    outcome = attacks.play(attack, Path(directory), asked.seconds)
                except Exception as error:  # the others go on; it is told in the table
                    rows.append(f"| {attack.name} | | | | | | | not played: {error!r} |")
                    held = False
                    continue
            rows.append(outcome.row())
            held = held and outcome.is_whole()
    table = "\n".join([attacks.HEAD, *rows]) + "\n"
    print(f"\n{table}")
    if asked.write:
        before, _, rest = DOCUMENT.read_text().partition(_BEGIN)
        DOCUMENT.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{rest.partition(_END)[2]}")
    return int(not held)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
