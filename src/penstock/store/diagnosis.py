"""Diagnosis: turns an error of RocksDB into a sentence that names the damaged file and the remedy.

RocksDB's errors are texts with a path somewhere in the middle. An operator needs to know which file
is damaged, and the command that helps::

    the store in data is damaged: its table file 000021.sst is missing; see with 'penstock store
    check --data-dir data' what is lost, then run 'penstock store repair --data-dir data' to go on
    with the rest, or restore a backup
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import StoreCorrupt
from penstock.store.paths import path_exists

REPAIR_FINISHED: Final = "repair.finished-"
"""Prefix of the name of the directory with a finished repair, until its files are in place."""

_TABLE: Final = re.compile(r"(\d+\.sst)\b")
_MANIFEST: Final = re.compile(r"(MANIFEST-\d+)\b")


def damaged_part(error: object) -> str | None:
    """Return a clause about the file that an error of RocksDB calls damaged or missing; None for
    an error that is not about damage."""
    text = str(error)
    is_missing = "No such file" in text
    if not is_missing and "Corruption" not in text and "corrupt" not in text:
        return None
    state = "missing" if is_missing else "damaged"
    table = _TABLE.search(text)
    if table is not None:
        return f"its table file {table[1]} is {state}"
    if "CURRENT" in text:
        return f"its file CURRENT is {state}"
    manifest = _MANIFEST.search(text)
    if manifest is not None:
        return f"its file {manifest[1]} is {state}"
    return f"its files are damaged ({text.strip()})"


def damaged_table(text: str) -> str:
    """Return the name of the table file in the text of an error; empty if the text names none."""
    table = _TABLE.search(text)
    return "" if table is None else table[1]


def lacks_current(store: Path) -> bool:
    """Return whether the directory ``store`` has files of a database, but not the file CURRENT.

    RocksDB takes such a directory for an empty one, and would remove its files. If the creation of
    a database was killed, there are no tables and all logs are empty: that returns False.
    """
    if path_exists(store / "CURRENT") or not store.is_dir():
        return False
    return any(store.glob("*.sst")) or any(log.stat().st_size for log in store.glob("*.log"))


def unfinished_repair(data_dir: Path) -> Path | None:
    """Return the directory with a finished repair whose files are not in place; None if none."""
    return max(data_dir.glob(f"{REPAIR_FINISHED}*"), default=None)


def corrupt_store(data_dir: Path, part: str) -> StoreCorrupt:
    """Return the error for damage of the database below ``data_dir``; ``part`` is a clause about
    the damaged part, for instance "its file CURRENT is missing"."""
    return StoreCorrupt(
        f"the store in {data_dir} is damaged: {part}; see with 'penstock store check --data-dir"
        f" {data_dir}' what is lost, then run 'penstock store repair --data-dir {data_dir}' to go"
        " on with the rest, or restore a backup",
        part,
    )


def corrupt_view(data_dir: Path, error: StoreCorrupt) -> StoreCorrupt:
    """Return the error for the same damage in the view of a member of a cluster: another member has
    all of it."""
    return StoreCorrupt(
        f"the view in {data_dir} is damaged: {error.part}; run 'penstock cluster reseed' with the"
        " settings of this member: a copy of another member's view takes its place, and the damaged"
        " one is kept beside it",
        error.part,
    )


@contextmanager
def damage_as_corruption(data_dir: Path) -> Iterator[None]:
    """Convert RocksDB's errors about damage, and errors of decoding a value, to StoreCorrupt."""
    try:
        yield
    except StoreCorrupt:
        raise
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise corrupt_store(data_dir, f"a value in it cannot be understood ({error})") from error
    except Exception as error:  # rocksdict raises bare Exception for every error
        part = damaged_part(error)
        if part is None:
            raise
        raise corrupt_store(data_dir, part) from error
