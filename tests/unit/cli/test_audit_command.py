"""`penstock audit`: mistakes in its options, told before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli.audit import audit
from penstock.errors import ConfigError


def test_a_time_that_is_none_is_told() -> None:
    with pytest.raises(ConfigError, match=r"--from must be a time such as .* not 'yesterday'"):
        audit(since="yesterday")


def test_a_report_needs_a_directory_and_a_comparison_needs_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no directory to write the report to"):
        audit(output=tmp_path / "nowhere" / "report.html")
    with pytest.raises(ConfigError, match="there is no table in"):
        audit(landed=tmp_path)
