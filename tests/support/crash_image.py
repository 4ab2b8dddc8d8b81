"""The files of a store as a crash would leave them: a copy that is taken while the store is open.

RocksDB merges files in the background and removes the old ones, perhaps in the middle of a copy. A
crash sees one moment; so a copy during which files came or went is taken again.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.deadline import wait_for


def copy_running(source: Path, target: Path) -> None:
    """Copy the directory of a store that nothing is written to meanwhile."""

    def is_copied() -> bool:
        shutil.rmtree(target, ignore_errors=True)
        before = _names(source)
        try:
            shutil.copytree(source, target)
        except shutil.Error:  # a file was removed before its turn came
            return False
        return _names(source) == before

    wait_for(f"a copy of {source} as it is at one moment", is_copied)


def _names(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))
