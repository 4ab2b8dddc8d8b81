"""A table in each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.landed_tables import Open, opener


@pytest.fixture(params=["delta", "iceberg", "parquet"])
def kind(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def open_table(kind: str, tmp_path: Path) -> Open:
    return opener(kind, tmp_path)
