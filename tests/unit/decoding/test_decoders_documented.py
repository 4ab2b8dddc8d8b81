"""docs/decoders.md: its examples are decoders, and it names every setting and kind."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from penstock.config.column_type import SCALAR_TYPES
from penstock.config.decoder import Column, DecoderDefinition, Kind

DOCUMENT = (Path(__file__).parents[3] / "docs/decoders.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```toml decoder\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_a_decoder(example: str) -> None:
    DecoderDefinition.model_validate(tomllib.loads(example))


@pytest.mark.parametrize(
    "name", [*get_args(Kind), *Column.model_fields, *DecoderDefinition.model_fields, *SCALAR_TYPES]
)
def test_each_setting_and_kind_is_named(name: str) -> None:
    written = DOCUMENT.replace("kind = ", "`kind` = ")
    assert f"`{name}`" in written or f"`{name} = " in written or f"\n{name} = " in written
