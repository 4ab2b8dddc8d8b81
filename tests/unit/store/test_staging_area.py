"""The staging area while somebody else removes what is in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import StoreUnavailable
from penstock.store.staging import STAGED_SCHEMA, Staging


@pytest.mark.parametrize("look", [Staging.size_bytes, lambda staging: staging.remove_expired(0.0)])
def test_a_batch_that_is_published_and_forgotten_while_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Staging], object]
) -> None:
    """The service forgets one batch while it adds up what is staged for others, and the broker
    looks for what is too old."""
    staging = Staging(tmp_path)
    kept = staging.stage("b", 0, "run", 0, _rows())
    staging.stage("a", 0, "run", 0, _rows())
    forgotten = tmp_path / "staged" / "a" / "0"

    def forgetting(listing: Callable[..., Any]) -> Callable[..., Any]:
        def listed(path: Any) -> Any:
            if str(path) == str(forgotten) and forgotten.exists():
                monkeypatch.undo()
                staging.remove_batch("a", 0)
            return listing(path)

        return listed

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, forgetting(getattr(os, name)))
    look(staging)
    monkeypatch.undo()
    assert not forgotten.exists()
    assert staging.size_bytes() == kept.size_bytes


def test_a_directory_that_is_removed_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between "it is there already" and the look at what is there, it goes."""
    staging = Staging(tmp_path)
    place = tmp_path / "staged" / "a" / "0"
    place.mkdir(parents=True)
    make = os.mkdir

    def making(path: Any, mode: int = 0o777) -> None:
        try:
            make(path, mode)
        except FileExistsError:
            monkeypatch.undo()
            staging.remove_batch("a", 0)
            raise

    monkeypatch.setattr(os, "mkdir", making)
    kept = staging.stage("a", 0, "run", 0, _rows())
    assert (place / kept.name).stat().st_size == kept.size_bytes


def test_a_file_in_the_way_of_a_directory_is_said(tmp_path: Path) -> None:
    (tmp_path / "staged" / "a").mkdir(parents=True)
    (tmp_path / "staged" / "a" / "0").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="File exists"):
        Staging(tmp_path).stage("a", 0, "run", 0, _rows())


def _rows() -> pa.Table:
    row = {"topic": "t", "payload": b"", "qos": 1, "retain": False, "properties": None}
    return pa.Table.from_pylist([row], STAGED_SCHEMA)
