"""Names what Spark planned under the number of a batch, for the sink to compare with the broker.

    <checkpoint>/metadata     {"id": query id}
    <checkpoint>/offsets/N    what batch N reads from each source, and when it was planned

Spark reads the same file again when it repeats a batch, and writes another one, with another time,
when it plans a batch anew. So a digest of the file tells the two apart, whatever the rows are.

Spark does not sync its checkpoint. After a power cut the file of a batch may be gone while the
batch is published, and Spark would plan other rows under its number. So a batch is published only
after its file is synced, where the checkpoint is on this machine.

The location may be anything for which Arrow has a file system. Where it cannot be read, plans are
not known, and only numbers are compared.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import fs

from penstock.errors import ConfigError
from penstock.spark.initial_offsets import open_location
from penstock.spark.storage.local import sync
from penstock.telemetry.logs import get_logger

PLAN_CHARACTERS: Final = 32

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch of a query, as the query's checkpoint has it.

    Attributes:
        query: the id of the query; empty if it is not known.
        plan: names what the batch reads; empty if it is not known.
        previous: the plan of the batch before; empty if it is not known.
    """

    query: str = ""
    plan: str = ""
    previous: str = ""


def read_plan(checkpoint: str, batch: int) -> BatchPlan:
    """Return what the checkpoint says of a batch, and sync that if the checkpoint is on this
    machine.

    Args:
        checkpoint: location of the query's checkpoint, in Spark's notation; empty if it is not
            known.
        batch: the number of the batch, which is planned.

    Raises:
        ConfigError: the checkpoint is on this machine, and its files cannot be synced.
    """
    if not checkpoint:
        return BatchPlan()
    try:
        files, directory = open_location(checkpoint)
        query = json.loads(_read(files, f"{directory}/metadata") or "{}").get("id", "")
        planned = _read(files, f"{directory}/offsets/{batch}")
        before = _read(files, f"{directory}/offsets/{batch - 1}")
    except (OSError, pa.ArrowException, ValueError) as error:
        logger.warning(
            "the checkpoint in %s cannot be read (%s): the broker is not told what batch %d reads,"
            " and cannot notice that the checkpoint was put back from an older copy",
            checkpoint,
            error,
            batch,
        )
        return BatchPlan()
    if planned and isinstance(files, fs.LocalFileSystem):
        _sync(Path(directory), batch)
    return BatchPlan(str(query), _digest(planned), _digest(before))


def _read(files: fs.FileSystem, path: str) -> bytes:
    """Return the bytes of a file; none if there is no such file."""
    if files.get_file_info(path).type != fs.FileType.File:
        return b""
    with files.open_input_stream(path) as stream:
        content: bytes = stream.read()
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:PLAN_CHARACTERS] if content else ""


def _sync(checkpoint: Path, batch: int) -> None:
    planned = checkpoint / "offsets" / str(batch)
    try:
        for path in (checkpoint / "metadata", planned, planned.parent, checkpoint):
            sync(path)
    except OSError as error:
        raise ConfigError(
            f"the checkpoint in {checkpoint} cannot be synced, and a batch is published only after"
            f" that: {error}"
        ) from error
