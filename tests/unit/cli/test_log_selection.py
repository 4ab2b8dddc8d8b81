"""Messages chosen of a log of 2023, one a second from 22:13:20 UTC on; the clock shows 2026."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from penstock.cli.log_options import LogOptions
from penstock.cli.log_positions import Clock
from penstock.cli.log_selection import (
    LogSelection,
    messages_in,
    next_selection,
    read_selection,
    select_messages,
)
from penstock.config.address import Address
from penstock.config.stream import StreamDefinition
from penstock.errors import ConfigError, OffsetOutOfRange
from penstock.store.secondary import LogFollower
from penstock.stream.client import StreamClient, StreamOffsets, StreamUnavailable
from penstock.stream.service import StreamServer
from tests.spark.log_writer import LogWriter
from tests.support.deadline import DEADLINE_S

NOW = Clock(datetime(2026, 11, 26, 12, tzinfo=UTC), UTC)
STREAM = StreamDefinition(name="messages", topic_filters=("#",))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamClient]:
    """A log of which retention has removed the offsets before 10; it ends at 100."""
    with LogWriter(tmp_path_factory.mktemp("data")) as log:
        for _ in range(10):
            log.append(10)
        log.trim(10)
        served = StreamServer(Address("127.0.0.1", 0), LogFollower(log.data_dir), [STREAM])
        with StreamClient(f"127.0.0.1:{served.port}", DEADLINE_S) as made:
            yield made
        served.shutdown()


async def offsets(client: StreamClient, chosen: LogSelection) -> list[int]:
    found = []
    async for batch in read_selection(client, chosen):
        for received in messages_in(batch):
            assert received.log_entry is not None
            found.append(received.log_entry.offset)
    return found


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (LogOptions(), range(10, 100)),
        (LogOptions(begin="30", until="22:14"), range(30, 40)),  # of the day of its message
        (LogOptions(begin="2023-11-14T22:14:05", until="22:14:10"), range(45, 50)),
        (LogOptions(begin="95", until="latest"), range(95, 100)),
        (LogOptions(begin="100"), range(0)),
        (LogOptions(begin="-10m"), range(0)),
        (LogOptions(last=3), range(97, 100)),
        (LogOptions(last=2, topics=["plant/1/pressure"]), range(95, 100, 3)),
        (LogOptions(last=2, until="50"), range(48, 50)),
        (LogOptions(last=1000, begin="90"), range(90, 100)),
    ],
)
async def test_places_and_topics_choose_messages(
    client: StreamClient, options: LogOptions, wanted: range
) -> None:
    assert await offsets(client, select_messages(client, options, NOW)) == list(wanted)


def test_the_rest_has_the_same_end(client: StreamClient) -> None:
    assert (
        select_messages(client, LogOptions(begin="30"), NOW).options_from(42)
        == "--from 42 --until 100"
    )
    timed = select_messages(client, LogOptions(begin="30", until="22:14"), NOW)
    assert timed.options_from(35) == "--from 35 --until 2023-11-14T22:14:00+00:00"


def grown(selection: LogSelection, latest: int) -> StreamOffsets:
    return replace(selection.log, latest=latest)


async def test_messages_that_come_later_are_read_once(client: StreamClient) -> None:
    chosen = select_messages(client, LogOptions(begin="latest"), NOW)
    later = next_selection(chosen, grown(chosen, 100))
    assert (later.spans, await offsets(client, later)) == ([], [])
    later = next_selection(chosen, grown(chosen, 130))
    assert later.spans == [(100, 130)]
    assert next_selection(later, grown(later, 140)).spans == [(130, 140)]


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        (
            LogOptions(begin="5"),
            OffsetOutOfRange,
            r"which begins at offset 10, received 2023-11-14 22:13:30.000\+0000: give --from ear",
        ),
        (
            LogOptions(until="101"),
            OffsetOutOfRange,
            "--until 101 is not in the log yet, which ends before offset 100: give --until latest",
        ),
        (LogOptions(begin="20", until="15"), ConfigError, "they are offsets 20 and 15"),
        (
            LogOptions(begin="now", until="-1h"),
            ConfigError,
            "they are 2026-11-26 12:00:00.000.0000 and 2026-11-26 11:00",
        ),
        (LogOptions(stream="no"), ConfigError, "there is no stream 'no'; there is: messages"),
    ],
)
def test_a_mistake_says_what_there_is(
    client: StreamClient, options: LogOptions, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        select_messages(client, options, NOW)


def test_the_messages_that_retention_has_removed_are_noted(client: StreamClient) -> None:
    (note,) = select_messages(client, LogOptions(begin="2023-11-14T22:13:25"), NOW).notes
    assert note.startswith("the log begins at offset 10, received 2023-11-14 22:13:30.000+0000:")
    assert select_messages(client, LogOptions(begin="2023-11-14T22:13:31"), NOW).notes == ()


def test_a_service_that_was_never_there_is_not_waited_for_as_one_that_is_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.cli.log_selection.ANSWER_S", 0.1)
    with StreamClient("127.0.0.1:1", 60.0) as away, pytest.raises(StreamUnavailable) as raised:
        select_messages(away, LogOptions(), NOW)
    assert "is this its stream.bind? Waited 0.1 s" in str(raised.value)
