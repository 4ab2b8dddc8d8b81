"""The documents' examples of settings are settings."""

import re
from pathlib import Path

import pytest

from penstock.config.load import load_settings

ROOT = Path(__file__).resolve().parents[2]
TOML = re.compile(r"^```toml\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXAMPLES = [
    pytest.param(match[1], id=f"{document.name}-{number}")
    for document in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
    for number, match in enumerate(TOML.finditer(document.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_accepted(example: str, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(example)
    load_settings(file, {}, {})
