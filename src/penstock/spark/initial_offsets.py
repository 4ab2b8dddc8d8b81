"""The first position of a query, stored outside of Spark.

Spark stores where each micro-batch ends, but not where the first one starts: it asks the source
again, twice in one run and once more when it restarts before the first batch was committed.
"latest" asked again is a later position, and the messages in between would be in no batch. So the
first answer is pinned: written to a small file in the query's checkpoint directory, next to Spark's
own, and every later call gets the same answer. The file is removed together with the checkpoint,
which is right: a query with a new checkpoint is a new query. Each log that a query reads has such a
file.

The location may be anything for which Arrow has a file system (a path, file:, s3a:, gs:, abfss:,
hdfs:).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs

from penstock.errors import ConfigError
from penstock.spark.offsets import LogPosition

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*")
_ARROW_NAMES: Final = {"s3a": "s3", "s3n": "s3"}  # by Hadoop's names


def load_or_pin_position(
    checkpoint: str, source: str, resolve: Callable[[], LogPosition]
) -> LogPosition:
    """Return the first position of a query in one log, always the same for a checkpoint.

    The first call finds the position and stores it.

    Args:
        checkpoint: location of the query's checkpoint.
        source: identifies the log among those that the query reads.
        resolve: finds the position, if none is stored.

    Raises:
        ConfigError: the location cannot be read or written.
    """
    name = f"penstock-start-{hashlib.sha256(source.encode()).hexdigest()[:16]}.json"
    try:
        files, directory = open_location(checkpoint)
        path = f"{directory}/{name}"
        if files.get_file_info(path).type == fs.FileType.File:
            with files.open_input_stream(path) as stream:
                return LogPosition.from_spark(json.loads(stream.read()))
        position = resolve()
        files.create_dir(directory, recursive=True)
        with files.open_output_stream(f"{path}.new") as stream:
            stream.write(json.dumps(position.to_spark()).encode())
        files.move(f"{path}.new", path)
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"option checkpointLocation: {checkpoint!r} cannot be used: {error}"
        ) from error
    return position


def read_pinned_position(checkpoint: Path) -> LogPosition | None:
    """Return the first position of a query of one log, stored in this checkpoint; else None."""
    for path in checkpoint.glob("penstock-start-*.json"):
        return LogPosition.from_spark(json.loads(path.read_text()))
    return None


def open_location(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a location in Spark's notation, and the path in it."""
    uri = _uri(location)
    if uri is None:
        path = location.removeprefix("file:").removeprefix("//")
        return fs.LocalFileSystem(), str(Path(path).absolute())
    files, directory = fs.FileSystem.from_uri(uri)
    return files, directory.rstrip("/")


def _uri(location: str) -> str | None:
    """Return a location in Arrow's notation; None for one on this machine."""
    scheme, found, path = location.partition(":/")
    if not found or scheme == "file" or not _SCHEME.fullmatch(scheme):
        return None
    path = path if path.startswith("/") else f"//{path}"  # hdfs:/path is hdfs:///path
    return f"{_ARROW_NAMES.get(scheme, scheme)}:/{path}"
