"""Lands rows in a table and looks after it all the time, until it is killed.

``python -m tests.support.upkeep_program FORMAT DIRECTORY``; a line with the number of rows that are
in the table for each commit that has ended.
"""

import sys
from pathlib import Path

from penstock.config.upkeep import UpkeepDefinition
from penstock.spark.tables.landed_table import Outcome
from penstock.spark.tables.upkeep import Upkeep
from tests.support.landed_tables import SCHEMA, land, landed_end, opener

KEPT_UP = UpkeepDefinition(merge_files=2, share=0.9, versions_max=2)


def main() -> None:
    """Go on from where the table is, with the last batch once more."""
    kind, directory = sys.argv[1:]
    table = opener(kind, Path(directory))(SCHEMA, ())
    upkeep = Upkeep([table], KEPT_UP)
    number = landed_end(table) // 3
    if number:
        assert land(table, 3 * number - 3, 3 * number) is Outcome.OVERTAKEN
    while True:
        assert land(table, 3 * number, 3 * number + 3) is Outcome.LANDED
        number += 1
        print(3 * number, flush=True)
        upkeep.after_commit()


if __name__ == "__main__":
    main()
