"""The table as any reader of Delta tables sees it: through `deltalake` and Arrow, no Penstock."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from examples.temperatures.verdict import Row

_COLUMNS = ["client_id", "topic", "qos", "payload"]


def commit_count(path: Path) -> int:
    """Commits the table has seen; 0 while it does not exist."""
    return sum(1 for _ in (path / "_delta_log").glob("*.json"))


def row_count(path: Path) -> int:
    """Rows of the table, from its own log; 0 while it does not exist."""
    return DeltaTable(path).count() if commit_count(path) else 0


def next_offset(path: Path) -> int:
    """The offset after the last row; 0 without rows."""
    if not commit_count(path):
        return 0
    offsets = DeltaTable(path).to_pyarrow_table(columns=["offset"]).column("offset")
    return 1 + (pc.max(offsets).as_py() or 0) if len(offsets) else 0


def rows(path: Path) -> list[Row]:
    """All rows."""
    if not commit_count(path):
        return []
    found: pa.Table = DeltaTable(path).to_pyarrow_table(columns=_COLUMNS)
    return [
        Row(client_id, topic, qos, payload)
        for client_id, topic, qos, payload in zip(
            *(found.column(name).to_pylist() for name in _COLUMNS), strict=True
        )
    ]


def batch_under_way(path: Path) -> bool:
    """Whether a batch has written files that no commit names yet."""
    if not commit_count(path):
        return False
    committed_s = max(file.stat().st_mtime for file in (path / "_delta_log").glob("*.json"))
    return any(file.stat().st_mtime > committed_s for file in path.glob("date=*/*.parquet"))
