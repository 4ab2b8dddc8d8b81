"""What a checkpoint remembers of its query's choice. No Spark."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.errors import ConfigError
from penstock.spark.checkpoints import (
    SELECTION_NAME,
    offsets_per_second,
    read_watermark,
    store_selection,
)
from penstock.spark.offsets import Position


def plan(checkpoint: Path) -> None:
    """As Spark does, before it runs the first batch."""
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").write_text("v1\n{}\n-\n")


@pytest.mark.parametrize(
    ("stream", "topics"), [("messages", ("plant/#",)), ("other", ("plnt/#",)), ("messages", ())]
)
def test_another_choice_is_refused_once_batches_were_planned(
    tmp_path: Path, stream: str, topics: tuple[str, ...]
) -> None:
    store_selection(tmp_path, "messages", ("plnt/#",))
    plan(tmp_path)
    store_selection(tmp_path, "messages", ("plnt/#",))
    with pytest.raises(ConfigError, match=r"made for stream messages, topics plnt/#, .* remove"):
        store_selection(tmp_path, stream, topics)
    store_selection(tmp_path, "messages", ("plnt/#",))


def test_the_order_of_topics_is_no_choice(tmp_path: Path) -> None:
    store_selection(tmp_path, "messages", ("b", "a"))
    plan(tmp_path)
    before = (tmp_path / SELECTION_NAME).read_bytes()
    store_selection(tmp_path, "messages", ("a", "b", "a"))
    assert (tmp_path / SELECTION_NAME).read_bytes() == before


def test_before_the_first_batch_another_choice_is_free(tmp_path: Path) -> None:
    store_selection(tmp_path, "messages", ("plnt/#",))
    store_selection(tmp_path, "messages", ("plant/#",))
    plan(tmp_path)
    with pytest.raises(ConfigError):
        store_selection(tmp_path, "messages", ("plnt/#",))


def test_a_checkpoint_of_an_older_version_takes_the_choice_it_is_given(tmp_path: Path) -> None:
    plan(tmp_path)
    store_selection(tmp_path, "messages", ("a",))
    with pytest.raises(ConfigError):
        store_selection(tmp_path, "messages", ("b",))


@pytest.mark.parametrize("content", ["", "[]", "{}", "\x00"])
def test_a_file_that_is_damaged_is_told(tmp_path: Path, content: str) -> None:
    plan(tmp_path)
    (tmp_path / SELECTION_NAME).write_text(content)
    with pytest.raises(ConfigError, match=f"{SELECTION_NAME} cannot be used"):
        store_selection(tmp_path, "messages", ())


def test_something_else_made_of_the_same_messages_is_another_choice(tmp_path: Path) -> None:
    store_selection(tmp_path, "messages", ("a",), ", as windows of 60 s")
    plan(tmp_path)
    store_selection(tmp_path, "messages", ("a",), ", as windows of 60 s")
    with pytest.raises(ConfigError, match=r"topics a, as windows of 60 s, and with .* of 30 s"):
        store_selection(tmp_path, "messages", ("a",), ", as windows of 30 s")


def test_the_pace_is_that_of_the_latest_batches(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir(parents=True)
    (tmp_path / "offsets").mkdir()
    now_s = 1_700_000_000.0
    assert offsets_per_second(tmp_path, now_s) is None

    def done(batch: int, end: int, ago_s: float, epoch: str = "e") -> None:
        position = Position.of_single_log(epoch, end).to_json()
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{position}\n")
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}\n")
        os.utime(tmp_path / "commits" / str(batch), (now_s - ago_s,) * 2)

    done(8, 100, 3600)
    assert offsets_per_second(tmp_path, now_s) is None  # one batch tells no time
    done(9, 1000, 600)
    assert offsets_per_second(tmp_path, now_s) is None  # it rests
    done(10, 7000, 10)
    assert offsets_per_second(tmp_path, now_s) == 6000 / 590
    done(11, 8000, 0)
    assert offsets_per_second(tmp_path, now_s) == 1000 / 10  # without the time of rest
    done(12, 5, 0, epoch="f")
    assert offsets_per_second(tmp_path, now_s) is None  # of another log


def test_the_watermark_is_that_of_the_last_batch_that_was_planned(tmp_path: Path) -> None:
    assert read_watermark(tmp_path) is None
    (tmp_path / "offsets").mkdir()
    for batch, watermark_ms in ((9, 0), (10, 1_700_000_000_500)):
        written = f'v1\n{{"batchWatermarkMs":{watermark_ms},"batchTimestampMs":7}}\n-\n'
        (tmp_path / "offsets" / str(batch)).write_text(written)
        expected = datetime.fromtimestamp(1_700_000_000.5, UTC) if watermark_ms else None
        assert read_watermark(tmp_path) == expected
    (tmp_path / "offsets" / "11").write_text("v1\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_watermark(tmp_path)
