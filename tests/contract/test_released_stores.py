"""What each released version wrote is found by this one, whole.

tests/released has an archive for each, and beside it what was found in it when it was written. A
version is released with its archive, or `make test` fails.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pytest

from penstock.store.database import FORMAT
from tests.released.found import find_content
from tests.released.write import SIZE_BYTES_MAX, unpack
from tests.support.wall_clock import WallClock, needs_compiler

ROOT: Final = Path(__file__).resolve().parents[2]
RELEASED: Final = ROOT / "tests" / "released"
ARCHIVES: Final = sorted(RELEASED.glob("*.tar.xz"))
VERSIONS: Final = [path.name.removesuffix(".tar.xz") for path in ARCHIVES]


@pytest.mark.parametrize(
    "clock",
    [
        "the machine's",
        pytest.param("not synchronized", marks=needs_compiler),
        pytest.param("a year later", marks=needs_compiler),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_a_released_version_wrote_is_found(
    version: str, clock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever keeps the clock, and however long ago it was written."""
    if clock != "the machine's":
        is_later = clock == "a year later"
        given = WallClock(tmp_path / "wall_clock", synchronized=is_later)
        given.set(365 * 86_400 if is_later else 0)
        for name, value in given.environment.items():
            monkeypatch.setenv(name, value)
    unpack(RELEASED / f"{version}.tar.xz", tmp_path)
    written = json.loads((RELEASED / f"{version}.json").read_text())
    found = json.loads(json.dumps(find_content(tmp_path)))
    for name in {*written, *found}:
        assert found.get(name) == written.get(name), name


def test_every_released_version_has_its_archive() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (\d\S*) - ", changelog, re.MULTILINE)[::-1] == VERSIONS
    for path in ARCHIVES:
        assert path.stat().st_size <= SIZE_BYTES_MAX


def test_the_page_on_upgrading_tells_the_format_of_each_version() -> None:
    """One row for a version, and one for what is not released yet."""
    page = (ROOT / "docs" / "upgrading.md").read_text()
    rows = dict(re.findall(r"^\| (\d\S*|not released yet) \| (\d+) \|", page, re.MULTILINE))
    assert rows.pop("not released yet") == FORMAT.decode()
    assert rows == {
        version: json.loads((RELEASED / f"{version}.json").read_text())["store"]["format"]
        for version in VERSIONS
    }
