"""What others may not read is taken from them, and nothing else."""

import logging
import os
import stat
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.store.permissions import make_private, private_umask, warn_of_world_readable


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory of an older version, which everybody may read."""
    made = tmp_path / "data"
    (made / "store").mkdir(parents=True)
    for name in ("a", "store/b"):
        (made / name).write_text("x")
        (made / name).chmod(0o640)
    for path in (made, made / "store"):
        path.chmod(0o755)
    return made


def test_all_of_it_is_closed_once(data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert make_private(data_dir) == 4
        assert make_private(data_dir) == 0
    assert [mode_of(data_dir / name) for name in (".", "store", "a", "store/b")] == [
        0o700,
        0o700,
        0o600,
        0o600,
    ]
    assert len(caplog.records) == 1
    assert "it and 3 files in it" in caplog.text


def test_a_file_that_a_link_leads_to_is_left_alone(data_dir: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("x")
    elsewhere.chmod(0o644)
    (data_dir / "link").symlink_to(elsewhere)
    make_private(data_dir)
    assert mode_of(elsewhere) == 0o644


def test_in_a_directory_without_a_store_the_files_are_not_ours(data_dir: Path) -> None:
    (data_dir / "store").rename(data_dir.parent / "moved")
    assert make_private(data_dir) == 1
    assert [mode_of(data_dir / name) for name in (".", "a")] == [0o700, 0o640]


def test_a_directory_that_everybody_writes_to_is_left_as_it_is(
    data_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data_dir.chmod(0o1777)
    with caplog.at_level(logging.WARNING):
        assert make_private(data_dir) == 0
    assert [mode_of(data_dir / name) for name in (".", "a")] == [0o1777, 0o640]
    assert "shared with other users" in caplog.text


def test_one_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    assert make_private(tmp_path / "none") == 0
    assert list(tmp_path.iterdir()) == []


def test_one_that_may_not_be_entered_is_told_in_a_sentence(tmp_path: Path) -> None:
    """It was a traceback."""
    closed = tmp_path / "closed"
    (closed / "data").mkdir(parents=True)
    closed.chmod(0)
    user = os.geteuid()
    if user == 0:
        tmp_path.chmod(0o700)
        os.seteuid(65_534)
    try:
        with pytest.raises(ConfigError, match="cannot be entered: Permission denied; run the"):
            make_private(closed / "data")
    finally:
        os.seteuid(user)
        closed.chmod(0o700)


def test_a_file_made_meanwhile_is_private(tmp_path: Path) -> None:
    (tmp_path / "before").touch(0o666)
    with private_umask():
        (tmp_path / "made").touch(0o666)
    (tmp_path / "after").touch(0o666)
    assert mode_of(tmp_path / "made") == 0o600
    assert mode_of(tmp_path / "after") == mode_of(tmp_path / "before")


@pytest.mark.parametrize(("mode", "warnings"), [(0o644, 1), (0o604, 1), (0o640, 0), (0o602, 0)])
def test_a_file_that_every_user_can_read_is_said_once(
    mode: int, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        warn_of_world_readable(
            ("key", str(path)), ("key", str(path)), ("key", ""), ("key", str(tmp_path / "none"))
        )
    assert len(caplog.records) == warnings
