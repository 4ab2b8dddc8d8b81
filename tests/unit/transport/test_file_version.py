"""Files that are read again when they have changed."""

from pathlib import Path

import pytest

from penstock.config.admin import Admin
from penstock.services.admin_process import file_versions
from penstock.transport.file_version import file_version


def test_a_file_that_is_not_set_never_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty name was the working directory: any file made there logged all operators out."""
    monkeypatch.chdir(tmp_path)
    before = file_versions(Admin())
    (tmp_path / "new").touch()
    assert file_versions(Admin()) == before == [None, None, None]


def test_a_file_has_another_version_once_it_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert file_version(str(file)) is None
    file.write_text("a")
    before = file_version(str(file))
    file.write_text("ab")
    assert None is not before != file_version(str(file))
