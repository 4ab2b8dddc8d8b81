"""The login secret: the same after a restart, and readable by its owner alone."""

import stat
from pathlib import Path

import pytest

from penstock.broker.login_secret import NAME, SECRET_BYTES, login_secret
from penstock.errors import ConfigError


def test_it_is_made_once(tmp_path: Path) -> None:
    secret = login_secret(tmp_path)
    assert len(secret) == SECRET_BYTES
    assert login_secret(tmp_path) == secret
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_others_may_not_read_it(tmp_path: Path) -> None:
    login_secret(tmp_path)
    (tmp_path / NAME).chmod(0o644)
    login_secret(tmp_path)
    assert stat.S_IMODE((tmp_path / NAME).stat().st_mode) == 0o600


def test_a_damaged_one_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"short")
    assert len(login_secret(tmp_path)) == SECRET_BYTES


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used: No such file"):
        login_secret(tmp_path / "none")
