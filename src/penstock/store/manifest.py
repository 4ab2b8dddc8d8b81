"""The manifest: what a backup says about itself, and how a directory is known to be one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from penstock.errors import StoreError
from penstock.store.paths import path_exists
from penstock.store.watermark import Committed

MANIFEST_FILE: Final = "backup.json"


class Manifest(msgspec.Struct, frozen=True):
    """The content of `backup.json`.

    Attributes:
        epoch: epoch of the log.
        begin: its first offset.
        end: the offset after its last message.
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
    def committed(self) -> Committed:
        """The watermark of the backed-up log."""
        return Committed(self.end, self.begin, self.commits, self.epoch)


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest of the backup in ``directory``; None where it is no backup.

    Raises:
        StoreError: it cannot be read.
    """
    path = directory / MANIFEST_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"the backup's {path} cannot be read: {error}") from error


def refuse_backup(data_dir: Path) -> None:
    """Raise if ``data_dir`` is a backup: a broker that ran in it would go on in the same epoch as
    the original.

    Raises:
        StoreError: ``data_dir`` is a backup, or may not be entered.
    """
    if path_exists(data_dir / MANIFEST_FILE):
        raise StoreError(
            f"{data_dir} is a backup; make a store of it with"
            f" 'penstock store restore {data_dir} --data-dir DIR'"
        )
