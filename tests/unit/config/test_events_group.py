"""The settings of events, and the stream they are offered as."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from penstock.config.durability import Durability
from penstock.config.events import Events
from penstock.config.settings import Settings
from penstock.config.stream import Stream, StreamDefinition


def test_off_there_is_no_stream_of_events() -> None:
    assert [stream.name for stream in Settings().streams] == ["messages"]


def test_on_there_is_one_unless_the_user_has_made_it() -> None:
    streams = Settings(events=Events(enabled=True)).streams
    assert [(stream.name, stream.topic_filters) for stream in streams] == [
        ("messages", ("#",)), ("events", ("$events/#",)),
    ]  # fmt: skip
    own = StreamDefinition(name="events", topic_filters=("$events/#",), retention_s=5)
    assert Settings(events=Events(enabled=True), stream=Stream(streams=(own,))).streams == (own,)


def test_a_stream_of_that_name_with_other_messages_is_refused() -> None:
    own = StreamDefinition(name="events", topic_filters=("plant/#",))
    assert Settings(stream=Stream(streams=(own,))).streams == (own,)
    with pytest.raises(ValidationError, match=r"give it the topic filter \$events/#"):
        Settings(events=Events(enabled=True), stream=Stream(streams=(own,)))


@pytest.mark.parametrize(
    ("stream", "durability"),
    [(Stream(enabled=False), Durability()), (Stream(), Durability(persistence="memory"))],
)
def test_events_need_a_log_that_is_read(stream: Stream, durability: Durability) -> None:
    with pytest.raises(ValidationError, match=r"events\.enabled needs the log and its service"):
        Settings(events=Events(enabled=True), stream=stream, durability=durability)


def test_events_about_events_and_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValidationError, match="no events about events"):
        Events(topic_filters=("$events/#",))
    with pytest.raises(ValidationError, match="one of started, stopped"):
        Events(kinds=("recieved",))
