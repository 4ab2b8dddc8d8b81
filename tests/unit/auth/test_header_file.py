"""The file of headers: each line is one, and a mistake is told without what it says."""

from pathlib import Path

import pytest

from penstock.auth.header_file import read_headers
from penstock.errors import ConfigError


def test_a_line_is_a_header(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("# a collector\nAuthorization: Bearer a:b\n\nX-Scope-OrgID:7\n")
    assert read_headers(file) == {"authorization": "Bearer a:b", "x-scope-orgid": "7"}


@pytest.mark.parametrize("line", ["secret", ": secret", "a b: secret", "a: secr\u00e9t", "a:"])
def test_a_line_that_is_no_header_is_refused_without_quoting_it(tmp_path: Path, line: str) -> None:
    file = tmp_path / "headers"
    file.write_text(f"# first\n{line}\n")
    with pytest.raises(ConfigError, match="line 2 is no header") as refused:
        read_headers(file)
    assert "secr" not in str(refused.value)
