"""The staging area while somebody else removes what is in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.store.staging import STAGED_SCHEMA, Staging


@pytest.mark.parametrize("look", [Staging.size_bytes, lambda staging: staging.sweep(0.0)])
def test_a_batch_that_is_published_and_forgotten_while_one_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Staging], object]
) -> None:
    """The service forgets one batch while it adds up what is staged for others, and the broker
    looks for what is too old."""
    staging = Staging(tmp_path)
    row = {"topic": "t", "payload": b"", "qos": 1, "retain": False, "properties": None}
    rows = pa.Table.from_pylist([row], STAGED_SCHEMA)
    kept = staging.stage("b", 0, "run", 0, rows)
    staging.stage("a", 0, "run", 0, rows)
    forgotten = tmp_path / "staged" / "a" / "0"

    def forgetting(listing: Callable[..., Any]) -> Callable[..., Any]:
        def listed(path: Any) -> Any:
            if str(path) == str(forgotten) and forgotten.exists():
                monkeypatch.undo()
                staging.forget("a", 0)
            return listing(path)

        return listed

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, forgetting(getattr(os, name)))
    look(staging)
    monkeypatch.undo()
    assert not forgotten.exists()
    assert staging.size_bytes() == kept.size_bytes
