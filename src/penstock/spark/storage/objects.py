"""A place in an object store: an object appears whole, and durable, when it was uploaded.

What is written waits in memory, from `_IN_MEMORY_BYTES_MAX` on in a file of this machine, and is
uploaded when it is closed: in one request, or if it is large in parts, which the client tries again
one by one, and which it takes back if one fails for good. A process that is killed meanwhile leaves
parts that nobody sees; a rule of the bucket removes them (docs/object_stores.md).
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, Final, Self, cast, final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import ObjectStore

from penstock.config.object_store import ObjectStoreSettings
from penstock.spark.storage.clients import store_at, store_options, without_secrets
from penstock.spark.storage.location import FoundFile, Location, ObjectStoreError, OutputFile

_IN_MEMORY_BYTES_MAX: Final = 32 * 1_048_576
_PART_BYTES: Final = 16 * 1_048_576
_PARTS_AT_ONCE: Final = 4
_WHOLE_BYTES_MAX: Final = 8 * 1_048_576
"""Objects up to this size are read in one request."""


@final
@dataclass(frozen=True, slots=True)
class ObjectLocation(Location):
    """An object, or the prefix of objects, of a bucket.

    Attributes:
        bucket: the URL of the bucket or container, without a slash at its end.
        key: the path in it, without slashes at either end.
        settings: how the store is reached.
    """

    bucket: str
    key: str
    settings: ObjectStoreSettings

    @property
    def uri(self) -> str:
        """The URL."""
        return f"{self.bucket}/{self.key}"

    @property
    def store(self) -> str:
        """The URL of the bucket, with that of its endpoint."""
        return f"{self.settings.endpoint} {self.bucket}"

    def __truediv__(self, path: str) -> Self:
        return type(self)(self.bucket, f"{self.key}/{path}".lstrip("/"), self.settings)

    def with_name(self, name: str) -> Self:
        """Return a place beside this one; see `Location`."""
        directory, slash, _ = self.key.rpartition("/")
        return type(self)(self.bucket, f"{directory}{slash}{name}", self.settings)

    def exists(self) -> bool:
        """Return whether there is such an object."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def has_files(self) -> bool:
        """Return whether an object has this prefix."""
        with self._told() as store:
            return any(obstore.list(store, f"{self.key}/", chunk_size=1))

    def stat(self) -> FoundFile:
        """Return the state of the object."""
        with self._told() as store:
            return _found("", obstore.head(store, self.key))

    def read(self) -> bytes:
        """Return the content of the object."""
        with self._told() as store:
            return bytes(obstore.get(store, self.key).bytes())

    def open_input(self) -> IO[bytes]:
        """Open the object to be read: whole, or if it is large in the ranges that are asked for."""
        with self._told() as store:
            found = obstore.get(store, self.key)
            if found.meta["size"] <= _WHOLE_BYTES_MAX:
                return io.BytesIO(found.bytes())
            return cast("IO[bytes]", _Ranges(obstore.open_reader(store, self.key)))

    def open_output(self) -> OutputFile:
        """Make an object; it is there when the file is closed."""
        return _Upload(self)

    def create(self, content: bytes) -> bool:
        """Make an object with this content; return False if there is another one of this name."""
        try:
            with self._told() as store:
                obstore.put(store, self.key, content, mode="create")
        except (AlreadyExistsError, PreconditionError):
            return self.read() == content
        except ObjectStoreError:
            with suppress(OSError):
                if self.read() == content:
                    return True  # it was done, and only the answer was lost
            raise
        return True

    def write(self, content: bytes) -> None:
        """Make or replace the object."""
        with self._told() as store:
            obstore.put(store, self.key, content)

    def upload(self, file: IO[bytes]) -> None:
        """Make the object with what is in a file, in parts where that is much."""
        with self._told() as store:
            obstore.put(
                store, self.key, file, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE
            )

    def move(self, to: Self) -> None:
        """Give the object another name, as a copy; do nothing if it is not there."""
        with suppress(FileNotFoundError), self._told() as store:
            obstore.copy(store, self.key, to.key)
            obstore.delete(store, self.key)

    def remove(self) -> None:
        """Remove the object, if it is there."""
        with suppress(FileNotFoundError), self._told() as store:
            obstore.delete(store, self.key)

    def sync(self) -> None:
        """Do nothing: what can be read is durable."""

    def files(self) -> Iterator[FoundFile]:
        """Yield the objects with this prefix."""
        prefix = f"{self.key}/"
        with self._told() as store:
            for chunk in obstore.list(store, prefix):
                for meta in chunk:
                    yield _found(meta["path"].removeprefix(prefix), meta)

    def names(self) -> Iterator[str]:
        """Yield the names of the objects directly below this prefix."""
        with self._told() as store:
            listed = obstore.list_with_delimiter(store, f"{self.key}/")
        yield from (meta["path"].rpartition("/")[2] for meta in listed["objects"])

    @contextmanager
    def _told(self) -> Iterator[ObjectStore]:
        """Provide the client; what it raises becomes an OSError that says what, where and why."""
        store = store_at(self.bucket, self.settings)  # outside: a missing file is not an object
        try:
            yield store
        except (AlreadyExistsError, PreconditionError):
            raise
        except (BaseError, FileNotFoundError, NotImplementedError) as error:
            if "NoSuchBucket" in str(error):
                raise ObjectStoreError(
                    f"there is no bucket {self.bucket}: make it, or name another one"
                ) from None
            if isinstance(error, FileNotFoundError):
                raise FileNotFoundError(f"there is no {self.uri}") from None
            options = store_options(self.bucket, self.settings)
            raise ObjectStoreError(f"{self.uri}: {without_secrets(error, options)}") from None


def _found(path: str, meta: Any) -> FoundFile:
    return FoundFile(path, meta["size"], meta["last_modified"].timestamp())


@final
class _Upload(OutputFile):
    """A file that becomes an object when it is closed, and nothing when it is forgotten."""

    def __init__(self, location: ObjectLocation) -> None:
        self._location = location
        self._content = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES_MAX)  # noqa: SIM115

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Add bytes; return their number."""
        return self._content.write(data)

    def tell(self) -> int:
        """Return how many bytes there are."""
        return self._content.tell()

    def close(self) -> None:
        """Upload the content."""
        if not self.closed:
            try:
                self._content.seek(0)
                self._location.upload(cast("IO[bytes]", self._content))
            finally:
                self._content.close()
                super().close()

    def discard(self) -> None:
        """Forget the content."""
        self._content.close()
        super().close()

    def __del__(self) -> None:
        """Forget a file whose writer failed: what it has is not whole."""
        self._content.close()


@final
class _Ranges(io.RawIOBase):
    """A large object, read in ranges."""

    def __init__(self, reader: obstore.ReadableFile) -> None:
        self._reader = reader

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; return the number of bytes."""
        found = self._reader.read(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Go to a position; return it."""
        return self._reader.seek(offset, whence)

    def tell(self) -> int:
        """Return the position."""
        return self._reader.tell()
