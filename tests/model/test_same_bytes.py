"""``tests.model.same_bytes`` finds what another engine says otherwise, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.model.same_bytes import HERE, compare

SEEDS = range(4)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A copy of this source."""
    for part in ("src", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(HERE / part, tmp_path / part, ignore=ignored)
    return tmp_path


def test_the_same_engine_says_the_same(earlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare("stored", earlier, HERE, SEEDS) == 0
    assert "stored: 4 seeds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "line", "instead", "event"),
    [
        pytest.param(
            "engine/wire/packet_buffer.py",
            "writer.append(2)",
            "writer.append(3); writer.append(0)",
            "promised",
            id="on-the-wire",
        ),
        pytest.param(
            "store/records.py",
            "            progress.next_sequence,\n",
            "            progress.next_sequence + 1,\n",
            "stored",
            id="on-disk",
        ),
    ],
)
def test_an_engine_that_says_something_else_is_found(
    earlier: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    line: str,
    instead: str,
    event: str,
) -> None:
    changed = earlier / "src/penstock" / file
    text = changed.read_text()
    assert text.count(line) == 1
    changed.write_text(text.replace(line, instead))
    assert compare("stored", earlier, HERE, SEEDS) > 0
    said = capsys.readouterr().out
    assert "differs from event" in said
    assert f"later    {event} " in said
