"""Syncs the files of an Iceberg table when they are closed.

pyiceberg writes manifests and metadata without syncing them, then makes the catalog point to them:
after a power cut the catalog, which SQLite syncs, could point to empty files.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.spark.parquet_files import sync


class SyncedFileIO(PyArrowFileIO):
    """Reads and writes local files; pyiceberg loads this class by its name (`py-io-impl`)."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return a file to be written at `location`."""
        plain = super().new_output(location)
        return _SyncedFile(location, plain._path, plain._filesystem)  # noqa: SLF001


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return _SyncedStream(path, overwrite=overwrite)


class _SyncedStream(io.BufferedWriter):
    """A file that is synced together with its directory when it is closed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        super().__init__(io.FileIO(path, "wb" if overwrite else "xb"))
        self._directory = path.parent

    def close(self) -> None:
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync(self._directory)
