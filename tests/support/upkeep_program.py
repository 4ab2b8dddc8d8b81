"""Lands rows in a table and looks after it all the time, until it is killed.

``python -m tests.support.upkeep_program FORMAT DIRECTORY``; a line with the number of rows that are
in the table for each commit that has ended.
"""

import sys
from dataclasses import replace
from pathlib import Path

from penstock.config.upkeep import UpkeepDefinition
from penstock.spark.tables.api import Outcome
from penstock.spark.tables.upkeep import Upkeep
from tests.support.landed_tables import BATCH_0, SCHEMA, SELECTION, land, opener

KEPT_UP = UpkeepDefinition(merge_files=2, share=0.9, versions_max=2)


def main() -> None:
    """Go on from where the table is, with the last batch once more."""
    kind, directory = sys.argv[1:]
    table = opener(kind, Path(directory))(SCHEMA, ())
    upkeep = Upkeep([table], KEPT_UP)
    number = table.landed_end(SELECTION) // 3
    if number:
        again = land(table, replace(BATCH_0, batch_id=number - 1), 3 * number - 3, 3 * number)
        assert again is Outcome.REPLAYED
    while True:
        batch = replace(BATCH_0, batch_id=number)
        assert land(table, batch, 3 * number, 3 * number + 3) is Outcome.LANDED
        number += 1
        print(3 * number, flush=True)
        upkeep.after_commit()


if __name__ == "__main__":
    main()
