"""With users, the stream service is closed without a token, and a token reaches what is its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.auth.tokens import OWN_FILE
from penstock.control.landed_requests import ReportProgress
from penstock.control.reader_requests import Lease
from penstock.errors import ConfigError, PenstockError
from penstock.stream.client import StreamClient
from penstock.stream.credentials import PLAIN, Credentials
from penstock.stream.requests import PublishBatchRequest, StageRowsRequest
from penstock.stream.rows import PUBLISH_SCHEMA
from tests.support.broker import Broker
from tests.support.deadline import DEADLINE_S
from tests.support.fixtures import Clients, running_broker

WHOLE, PLANT, OTHER, READER, SECOND = (f"{name}-0123456789abcdef" for name in "wpors")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    tokens = tmp_path / "tokens"
    tokens.write_text(
        f"{WHOLE}\nplant:{PLANT} read,lease,publish plant/#\nother:{OTHER} read,lease\n"
        f"reader:{READER} read plant/#\nsecond:{SECOND} publish\n"
    )
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite #\n")
    settings = {
        "stream.token_file": tokens,
        "access.acl_file": acl,
        "stream.readers_per_token_max": 2,
    }
    with running_broker(tmp_path, settings, stream=True) as started:
        yield started


def client(broker: Broker, credentials: Credentials | str) -> StreamClient:
    if isinstance(credentials, str):
        credentials = Credentials(token=credentials)
    address = ":".join(map(str, broker.stream_address))
    return StreamClient(address, DEADLINE_S, credentials)


def topics(broker: Broker, token: str, *wanted: str) -> list[str]:
    with client(broker, token) as reader:
        log = reader.offsets("messages")
        batches = reader.read("messages", log.epoch, 0, log.latest, topic_filters=wanted)
        return [topic for batch in batches for topic in batch.column("topic").to_pylist()]


def lease(reader: StreamClient, group: str, offset: int = 0) -> Lease:
    epoch = reader.offsets("messages").epoch
    return Lease(group, "messages", (), epoch, offset, 100.0)


def test_a_reader_sees_no_row_outside_its_filters(broker: Broker, clients: Clients) -> None:
    publisher = clients.join(broker, "p")
    for topic in ("plant/1", "office/1", "plant"):
        publisher.publish(topic, b"x")
    assert topics(broker, WHOLE) == topics(broker, OTHER) == ["plant/1", "office/1", "plant"]
    for token in (PLANT, READER):
        assert topics(broker, token) == ["plant/1", "plant"]
        assert topics(broker, token, "#") == ["plant/1", "plant"]
        assert topics(broker, token, "office/#") == []


def test_a_role_that_is_not_there_is_refused(broker: Broker) -> None:
    with client(broker, READER) as reader:
        log = reader.offsets("messages")
        rows = PUBLISH_SCHEMA.empty_table()
        for call in (
            lambda: reader.lease(lease(reader, "g")),
            lambda: reader.release("g"),
            reader.readers,
            reader.tables,
            lambda: reader.forget("t"),
            lambda: reader.report_progress(
                ReportProgress("t", "messages", ("plant/#",), log.epoch, 0, 0)
            ),
            lambda: reader.stage(StageRowsRequest("s", 0, "r", 0), rows),
            lambda: reader.publish(PublishBatchRequest("s", 0, "r")),
            lambda: reader.abandon(PublishBatchRequest("s", 0, "r")),
        ):
            with pytest.raises(ConfigError, match="the token has not the role"):
                call()


def test_nobody_moves_anothers_reader_or_takes_all_places(broker: Broker) -> None:
    with client(broker, PLANT) as plant, client(broker, OTHER) as other:
        plant.lease(lease(plant, "mine"))
        for call in (
            lambda: other.lease(lease(other, "mine")),
            lambda: other.release("mine"),
        ):
            with pytest.raises(ConfigError, match="registered with another token"):
                call()
        assert other.readers() == []
        other.lease(lease(other, "a"))
        other.lease(lease(other, "b"))
        with pytest.raises(ConfigError, match="readers_per_token_max"):
            other.lease(lease(other, "c"))
        assert [state.group for state in plant.readers()] == ["mine"]
    with client(broker, WHOLE) as whole:
        assert len(whole.readers()) == 3
        assert whole.release("mine")


def test_nobody_lands_for_another_or_beyond_its_filters(broker: Broker) -> None:
    with client(broker, PLANT) as plant, client(broker, OTHER) as other:
        epoch = plant.offsets("messages").epoch
        with pytest.raises(ConfigError, match="the token does not reach all of"):
            plant.report_progress(ReportProgress("t", "messages", (), epoch, 0, 0))
        assert (
            plant.report_progress(ReportProgress("t", "messages", ("plant/+",), epoch, 0, 0)) == 0
        )
        with pytest.raises(ConfigError, match="registered with another token"):
            other.report_progress(ReportProgress("t", "messages", ("plant/+",), epoch, 0, 0))
        with pytest.raises(ConfigError, match="registered with another token"):
            other.forget("t")
        assert other.tables() == []


def rows(topic: str) -> pa.Table:
    row = {"topic": topic, "payload": b"x", "qos": 1, "retain": False, "properties": None}
    return pa.Table.from_pylist([row], PUBLISH_SCHEMA)


def test_the_role_publish_reaches_its_topics_and_no_others(broker: Broker) -> None:
    with client(broker, PLANT) as plant:
        staged = plant.stage(StageRowsRequest("s", 0, "r", 0), rows("plant/1"))
        plant.publish(PublishBatchRequest("s", 0, "r", "spark", (staged,)))
        with pytest.raises(ConfigError, match="matches no topic filter of the token"):
            plant.stage(StageRowsRequest("s", 1, "r", 0), rows("office/1"))
    assert topics(broker, WHOLE) == ["plant/1"]
    for token in (OTHER, WHOLE):
        with (
            client(broker, token) as without,
            pytest.raises(PenstockError, match="role 'publish'"),
        ):
            without.stage(StageRowsRequest("s", 2, "r", 0), rows("plant/1"))


def test_nobody_moves_on_or_abandons_anothers_sink(broker: Broker) -> None:
    """Of batches with higher numbers a sink takes none that come later: they would be lost."""
    with client(broker, PLANT) as plant, client(broker, SECOND) as second:
        staged = plant.stage(StageRowsRequest("s", 0, "r", 0), rows("plant/1"))
        strange = second.stage(StageRowsRequest("s", 7, "r", 0), rows("strange"))
        assert second.publish(PublishBatchRequest("s", 7, "r", "x", (strange,))) == 0
        second.abandon(PublishBatchRequest("s", 0, "r"))
        assert plant.publish(PublishBatchRequest("s", 0, "r", "spark", (staged,))) == 0
        with pytest.raises(PenstockError, match="a name must be"):
            second.stage(StageRowsRequest("plant~s", 8, "r", 0), rows("strange"))
    assert topics(broker, WHOLE) == ["strange", "plant/1"]


@pytest.mark.parametrize(
    "is_open", [True, pytest.param(False, marks=pytest.mark.torture("one more broker"))]
)
def test_with_users_who_brings_no_token_is_refused(tmp_path: Path, is_open: bool) -> None:
    """The broker's own user finds a token in the data directory."""
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite #\n")
    settings = {"access.acl_file": acl, "stream.allow_anonymous": str(is_open).lower()}
    with running_broker(tmp_path, settings, stream=True) as broker:
        own = broker.data_dir / OWN_FILE
        assert own.exists() is not is_open
        with client(broker, PLAIN) as stranger:
            if is_open:
                assert stranger.offsets("messages").latest == 0
                return
            with pytest.raises(ConfigError, match="asks for a token"):
                stranger.offsets("messages")
        assert own.stat().st_mode & 0o777 == 0o600
        with client(broker, Credentials(token_file=str(own))) as local:
            assert local.offsets("messages").latest == 0
            local.lease(lease(local, "job"))
            broker.restart()
            assert [state.group for state in local.readers()] == ["job"]
