"""Finds the directories of tables and of their jobs; paths and URLs are text here.

    tables.dir/NAME         the files of a table, or below its own path
    tables.jobs_dir/NAME    lock, output of Spark, checkpoint of a query with state; by default
                            _checkpoint in a table's directory, or table-jobs/NAME for a table in
                            an object store

A job needs none of the latter to go on where its table is, except the checkpoint of a query with
state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from penstock.config.values import table_location
from penstock.errors import ConfigError

CHECKPOINT_NAME: Final = "_checkpoint"
"""The default name of the job's directory, in the table's directory: deleting that deletes both.
Readers of Delta tables ignore names that begin with an underscore."""

REMOTE_JOBS_DIR: Final = "table-jobs"
"""The default directory, below the working directory, of jobs of tables in object stores."""


def is_remote(place: str) -> bool:
    """Return whether a directory of tables, as `TableLocation` has it, is in an object store."""
    return "://" in place


def parse_place(text: str) -> str:
    """Return the directory of a table that a text names: an absolute path, or a URL.

    Raises:
        ConfigError: the text is a URL of another kind, or names no bucket.
    """
    try:
        place = table_location(text)
    except ValueError as error:
        raise ConfigError(f"a table can be kept in {error}, not in {text}") from None
    return place if is_remote(place) else str(Path(place).absolute())


def table_place(tables_dir: str, name: str, path: str = "") -> str:
    """Return the directory of a table: an absolute path, or a URL.

    Args:
        tables_dir: the default directory of tables.
        name: the name of the table.
        path: its own directory; empty for none.
    """
    if path:
        return path if is_remote(path) else str(Path(path).absolute())
    if is_remote(tables_dir):
        return f"{tables_dir}/{name}"
    return str(Path(tables_dir, name).absolute())


def job_dir(place: str, name: str, jobs_dir: str = "") -> Path:
    """Return the directory of this machine in which the job of a table keeps what it needs.

    Args:
        place: the directory of the table, an absolute path or a URL.
        name: the name of the table.
        jobs_dir: the directory for all jobs; empty for the default.
    """
    if jobs_dir:
        return Path(jobs_dir).absolute() / name
    return (
        Path(REMOTE_JOBS_DIR).absolute() / name
        if is_remote(place)
        else Path(place, CHECKPOINT_NAME)
    )


def births_dir(place: str, name: str, jobs_dir: str = "") -> Path:
    """Return the directory of this machine that has the births of Sparkplug nodes; see
    `job_dir`."""
    return job_dir(place, name, jobs_dir) if is_remote(place) else Path(place)
