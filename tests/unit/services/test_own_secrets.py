"""The broker's own secrets: the same after a restart, whole, and readable by its owner alone."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.auth.tokens import OWN_FILE, read_grants
from penstock.errors import ConfigError
from penstock.services.own_secrets import (
    LOGIN_SECRET_FILE,
    SECRET_BYTES,
    login_secret,
    stream_token_file,
)

Keep = Callable[[Path], object]

BOTH = pytest.mark.parametrize(
    ("keep", "name"), [(login_secret, LOGIN_SECRET_FILE), (stream_token_file, OWN_FILE)]
)


@BOTH
def test_a_secret_is_made_once_and_nobody_else_reads_it(
    keep: Keep, name: str, tmp_path: Path
) -> None:
    keep(tmp_path)
    made = (tmp_path / name).read_bytes()
    (tmp_path / name).chmod(0o644)
    keep(tmp_path)
    assert (tmp_path / name).read_bytes() == made
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [name]


@BOTH
@pytest.mark.parametrize("left", [b"", b"short\n"])
def test_a_damaged_one_is_made_anew(keep: Keep, name: str, left: bytes, tmp_path: Path) -> None:
    """A power cut may leave a file without its bytes, where somebody else wrote it."""
    (tmp_path / name).write_bytes(left)
    keep(tmp_path)
    assert len((tmp_path / name).read_bytes()) >= SECRET_BYTES


@BOTH
def test_the_bytes_of_a_secret_are_synced_before_its_name_is(
    keep: Keep, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync
    synced: list[tuple[Path, bool]] = []  # what, and whether the secret had its name then

    def noted(handle: int) -> None:
        sync(handle)
        synced.append((Path(f"/proc/self/fd/{handle}").readlink(), (tmp_path / name).exists()))

    monkeypatch.setattr(os, "fsync", noted)
    keep(tmp_path)
    assert synced == [(tmp_path / f".{name}.new", False), (tmp_path, True)]


@BOTH
def test_a_directory_that_is_not_there(keep: Keep, name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{name} cannot be used: No such file"):
        keep(tmp_path / "none")


def test_the_token_may_do_everything(tmp_path: Path) -> None:
    (grant,) = read_grants(stream_token_file(tmp_path))
    assert grant.owner == ""
