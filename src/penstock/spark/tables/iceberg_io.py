"""Reads and writes the files of an Iceberg table in the places of tables, durably.

pyiceberg writes manifests and metadata without syncing them, then makes the catalog point to them:
after a power cut the catalog, which SQLite syncs, could point to empty files.
"""

from __future__ import annotations

from typing import Final, final

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.typedef import EMPTY_DICT, Properties

from penstock.config.object_store import ObjectStoreSettings
from penstock.spark.storage.location import Location
from penstock.spark.storage.opening import location_of

SETTINGS: Final = "penstock.object-store"
"""The property with the settings of the object store, as JSON; it has no secret."""


@final
class TableFileIO(FileIO):
    """The files of a table; pyiceberg loads this class by its name (`py-io-impl`)."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        super().__init__(properties)
        text = properties.get(SETTINGS)
        self._settings = None if text is None else ObjectStoreSettings.model_validate_json(text)

    def new_input(self, location: str) -> InputFile:
        """Return a file to be read at `location`."""
        return _Input(location, self._at(location))

    def new_output(self, location: str) -> OutputFile:
        """Return a file to be written at `location`."""
        return _Output(location, self._at(location))

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file, if it is there."""
        self._at(location if isinstance(location, str) else location.location).remove()

    def _at(self, location: str) -> Location:
        return location_of(location, self._settings)


class _File:
    """A file at a place, to be read or to be written."""

    def __init__(self, name: str, location: Location) -> None:
        super().__init__(name)  # type: ignore[call-arg]  # that of pyiceberg's class beside it
        self._at = location

    def __len__(self) -> int:
        return self._at.stat().size_bytes

    def exists(self) -> bool:
        return self._at.exists()


class _Input(_File, InputFile):
    def open(self, seekable: bool = True) -> InputStream:  # noqa: ARG002
        return self._at.open_input()


class _Output(_File, OutputFile):
    def create(self, overwrite: bool = False) -> OutputStream:
        if overwrite and not self._at.store:  # an upload replaces an object
            self._at.remove()
        return self._at.open_output()

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self._at)
