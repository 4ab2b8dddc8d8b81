"""Brings the births of Sparkplug nodes to the tasks that decode their data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.decoding.sparkplug_births import birth_filters
from penstock.spark.tables.declared import DeclaredTable
from penstock.stream.birth_store import DIRECTORY_NAME, BirthStore
from penstock.stream.client import StreamClient


def keep_births(
    source: DeclaredTable, directory: Path, connect: Callable[[], StreamClient]
) -> Callable[[], None]:
    """Let the split of a declared table decode with births, which are kept beside a table.

    Args:
        source: the declared table.
        directory: the directory of this machine that keeps them (`config.table_places`).
        connect: returns a client of the stream service.

    Returns:
        A function to call before each batch is decoded: it adds the births up to the end of the
        log.
    """
    store = _birth_store(source, directory)
    if store is None:
        return lambda: None
    source.split.births = store.load

    def update() -> None:
        with connect() as client:
            store.update(client)

    return update


def preview_births(source: DeclaredTable, directory: Path | None, client: StreamClient) -> None:
    """Let the split of a declared table decode with the births that a job would have now.

    Args:
        source: the declared table.
        directory: the directory that keeps births, which is not changed; None if there is none.
        client: a client of the stream service.

    Raises:
        PenstockError: the log cannot be read.
    """
    store = _birth_store(source, directory)
    if store is not None:
        births = store.preview(client)
        source.split.births = lambda: births


def _birth_store(source: DeclaredTable, directory: Path | None) -> BirthStore | None:
    """Return the births that a declared table needs; None if its decoder needs none."""
    if source.definition.decoder.kind != "sparkplug_b":
        return None
    path = None if directory is None else directory / DIRECTORY_NAME
    return BirthStore(path, source.stream, birth_filters(source.topic_filter))
