"""Device families through infer, validate and landing: by value right, as the document says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.decoding.inference.column_names import path_of
from tests.unit.decoding.inference.device_families import FAMILIES, Family
from tests.unit.decoding.inference.inferring import the_one

DOCUMENT = (Path(__file__).parents[4] / "docs/decoders.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_message_of_a_family_is_a_row_with_its_values(family: Family) -> None:
    landed = the_one([(family.topic, family.message)] * 2)
    assert landed.kind == family.kind
    columns = {
        one.settings.get("path", one.name): one.name for one in landed.tried.table.decoder.columns
    }
    row = landed.rows[0]

    def value_at(path: str) -> Any:
        for written in (path, path_of(tuple(path.split("."))), "$"):
            if written in columns:
                return row[columns[written]]
        (only,) = columns.values() if len(columns) == 1 and path not in row else (path,)
        return row[only]

    found = {path: value_at(path) for path in family.values}
    assert found == {
        path: pytest.approx(value) if isinstance(value, float) else value
        for path, value in family.values.items()
    }


def test_the_document_lists_the_families_and_their_decoders() -> None:
    listed = re.findall(r"^\| ([^|]+) \| `(\w+)` \| (?:values|bytes) \|$", DOCUMENT, re.MULTILINE)
    assert listed == [(family.name, family.kind) for family in FAMILIES]
