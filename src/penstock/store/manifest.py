"""The manifest: the file that describes a backup and marks a directory as one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import StoreError
from penstock.store.paths import path_exists
from penstock.store.watermark import Watermark

MANIFEST_FILE: Final = "backup.json"


class Manifest(msgspec.Struct, frozen=True):
    """The content of `backup.json`.

    Attributes:
        epoch: epoch of the log.
        begin: first offset of the log.
        end: offset after the last message of the log.
        commits: number of commits.
        made_at: time at which the backup was made, ISO 8601, UTC.
        version: version of the Penstock that made it.
    """

    epoch: str
    begin: int
    end: int
    commits: int
    made_at: str
    version: str

    @property
    def watermark(self) -> Watermark:
        """The watermark of the backed-up log."""
        return Watermark(self.end, self.begin, self.commits, self.epoch)


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of the backup in ``directory``; None if ``directory`` is no backup.

    Raises:
        StoreError: the manifest cannot be read.
    """
    path = directory / MANIFEST_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"the backup's {path} cannot be read: {error}") from error


def refuse_backup(data_dir: Path) -> None:
    """Raise if ``data_dir`` is a backup: a broker that ran in it would write other messages in the
    same epoch as the original.

    Raises:
        StoreError: ``data_dir`` is a backup, or may not be entered.
    """
    if path_exists(data_dir / MANIFEST_FILE):
        raise StoreError(
            f"{data_dir} is a backup; make a store of it with"
            f" 'penstock store restore {data_dir} --data-dir DIR'"
        )
