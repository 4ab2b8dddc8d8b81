"""docs/cookbook.md as a person follows it: all of its commands, in their order."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support.followed import blocks_of, commands_of, follow

LIMIT_S = 900  # some thirty processes start, and other tests may have the cores


@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_every_recipe_works(tmp_path: Path) -> None:
    said = follow(commands_of(blocks_of("cookbook.md")), tmp_path, LIMIT_S)
    assert "plant/state running\n" in said
    lines = (tmp_path / "plant/since_yesterday.csv").read_text().splitlines()
    assert [line.split(",")[3] for line in lines[1:]] == ["plant/state", "plant/line1/temp"]
    assert len((tmp_path / "plant/yesterday.csv").read_text().splitlines()) == 1
    first, renewed = re.findall(r"server.pem (expires on|is valid until) \d{4}", said)[-2:]
    assert (first, renewed) == ("expires on", "is valid until")
    assert (tmp_path / "plant/data.damaged").is_dir()
