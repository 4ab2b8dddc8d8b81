"""The delivery audit: its tables, measures and report, of a traffic that is known."""

from __future__ import annotations

import contextlib
import re
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.errors import ConfigError
from penstock.spark.audit.events import read_events
from penstock.spark.audit.job import AuditSettings, audit, trace_message
from penstock.spark.audit.measures import Flow, Latency, Measures, measure
from penstock.spark.audit.report import render
from penstock.spark.audit.tables import (
    Landings,
    join_connections,
    join_deliveries,
    select_drops,
    with_landings,
    write_tables,
)
from penstock.spark.audit.trace import trace
from penstock.stream.client import StreamClient
from tests.spark.audit_events import EPOCH, START_US, Story
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients

HOSTILE = "<script>alert(1)</script> $x^{2}$ & \"'\x00\x1b[31m\u202e ]]> --> {{ 7*7 }} \U0001f6a8"


def story() -> Story:
    """Ten messages to two clients, and each way in which one may end."""
    told = Story()
    told.tell("started", 0, epoch=EPOCH, next_offset=0)
    told.tell("connected", 1, client="fast", protocol=5, transport="tcp", receive_maximum=10)
    for offset in range(10):
        told.message(offset, 100 * offset, f"plant/{offset % 2}", sessions=1)
        told.delivered(offset, 100 * offset, "fast", 10 + offset)
    told.message(10, 2000, "plant/0", sessions=2)  # one is queued and dropped, one is on its way
    told.tell("queued", 2000, offset=10, client="slow", qos=1, queue=7)
    told.tell("dropped", 2001, offset=10, client="slow", reason="queue_full", messages=1)
    told.tell("sent", 2002, offset=10, client="fast", qos=1)
    told.tell("resent", 3000, offset=10, client="fast", qos=1)
    told.message(11, 2100, "plant/0", sessions=1, qos=0)
    told.tell("sent", 2100, offset=11, client="fast", qos=0)
    told.message(12, 2200, "plant/0", sessions=0)
    told.message(13, 2300, "plant/0", sessions=3)  # of which two are unaccounted for
    told.tell("queued", 2300, offset=13, client="slow", qos=1, queue=8)
    told.message(14, 2400, "plant/0", sessions=1)
    told.tell("queued", 2400, offset=14, client="slow", qos=1, queue=9)
    told.tell("expired", 9000, offset=14, client="slow", reason="expired", messages=1)
    told.message(15, 2500, "plant/0", sessions=1)  # one member had it, another got it
    told.tell("sent", 2502, offset=15, client="member-1", qos=1)
    told.tell("moved", 2600, offset=15, client="member-1", qos=1)
    told.delivered(15, 2600, "member-2", 5)
    told.tell("acknowledged", 10, offset=-7, client="fast", qos=1)  # from before the range
    told.tell("dropped", 5000, client="slow", reason="qos_0_while_offline", messages=40)
    for at_ms, window in ((1000, 10), (2000, 10), (3000, 5), (4000, 0)):
        told.tell("flow", at_ms, client="fast", window=window, window_size=10, queue=0,
                  queue_bytes=0, unsent_bytes=0, connected=True)  # fmt: skip
    told.tell("disconnected", 6000, client="fast", by="network", reason="connection reset",
              code=0, duration_us=5_999_000, received=0, sent=13, resent=1, acknowledged=10,
              dropped=0)  # fmt: skip
    for number in range(6):  # a storm
        told.tell("connected", 70_000 + number, client="storm", protocol=4, transport="tcp")
        told.tell("disconnected", 70_000 + number + 0.5, client="storm", by="client",
                  reason="client disconnected", code=0)  # fmt: skip
    told.tell("refused", 80_000, client="stranger", user="x", code=0x87, reason="not authorized")
    return told


@pytest.fixture(scope="module")
def measures(spark: SparkSession) -> Measures:
    events = story().frame(spark)
    landings = [Landings(EPOCH, (5, 12), (START_US + 1_000_000, START_US + 4_000_000))]
    followed = with_landings(join_deliveries(events), landings).persist()
    return measure(events, followed, join_connections(events), select_drops(events))


def test_every_delivery_has_one_end(measures: Measures) -> None:
    assert measures.messages == 16
    assert measures.deliveries == 10 + 2 + 1 + 0 + 3 + 1 + 1
    assert measures.states == {
        "acknowledged": 11, "sent, QoS 0": 1, "sent, not acknowledged": 1, "queued": 1,
        "dropped": 1, "expired": 1, "moved to another member": 1, "no subscriber": 1,
        "unaccounted": 2,
    }  # fmt: skip
    ends = sum(measures.states.values())
    assert ends - measures.states["moved to another member"] - 1 == measures.deliveries
    assert measures.unknown_deliveries == 1


def test_latencies_are_those_of_the_traffic(measures: Measures) -> None:
    by_step = {latency.step: latency for latency in measures.latencies}
    assert by_step["committed"].p50_ms == by_step["committed"].max_ms == 2.0
    acknowledged = by_step["acknowledged"]
    assert (acknowledged.count, acknowledged.max_ms) == (11, 105.0)
    assert acknowledged.p50_ms == 15.0
    landed = by_step["in the table"]
    assert landed.max_ms == 4000.0 - 500  # offset 5 came at 500 ms and landed with the second
    first = next(latency for latency in measures.by_topic if latency.name == "plant/1")
    assert (first.step, first.count) == ("in the table", 5)
    clients = {latency.name: latency.count for latency in measures.by_client}
    assert clients == {"fast": 10, "member-2": 1}


def test_windows_queues_drops_resends_and_storms_are_those_of_the_traffic(
    measures: Measures,
) -> None:
    (flow,) = measures.flows
    assert (flow.client, flow.samples, flow.full_share, flow.window_size) == ("fast", 4, 0.5, 10)
    assert [max(value for _, value in line) for line in measures.window.values()] == [1.0]
    assert {client: max(v for _, v in line) for client, line in measures.queue.items()} == {
        "slow": 9.0
    }
    assert measures.drops_by_reason == {"qos_0_while_offline": 40, "expired": 1, "queue_full": 1}
    assert measures.resends_by_client == [("fast", 1)]
    storm = measures.reconnects[0]
    assert (storm.client, storm.per_minute_max, storm.refused) == ("storm", 6, 0)
    assert measures.connections == 7
    assert ("network", "connection reset", 1) in measures.ends
    stranger = next(each for each in measures.reconnects if each.client == "stranger")
    assert (stranger.connections, stranger.refused) == (0, 1)


class Page(HTMLParser):
    """A page as a browser takes it apart."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def check_stands_alone(text: str) -> Page:
    """No script, nothing fetched, every link of the contents leads somewhere, no id twice."""
    page = Page(text)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in page.tags:
        assert tag not in {"script", "iframe", "img", "link", "object", "embed", "base"}
        for name, value in attrs.items():
            assert not name.startswith("on")
            if name in {"href", "xlink:href", "src"}:
                assert value is not None
                assert value.startswith("#")
                assert value[1:] in ids
    assert not re.search(r"url\((?!#)", text)
    return page


def test_the_report_shows_it_and_stands_alone(measures: Measures) -> None:
    text = render(measures, "events of 127.0.0.1:8815")
    page = check_stands_alone(text)
    assert text.count("<svg") >= 8
    assert "16 messages were followed" in page.text
    assert "2 deliveries are unaccounted for" in page.text
    for name in ("plant/1", "member-2", "queue_full", "storm", "connection reset"):
        assert name in page.text


def test_names_that_clients_choose_stay_text(measures: Measures) -> None:
    slow = Latency(HOSTILE, "acknowledged", 1, 1.0, 2.0, 3.0, 4.0)
    line = {HOSTILE: [(datetime(2026, 11, 22, tzinfo=UTC), 1.0)], "": [], "$" * 300: []}
    reconnects = measures.reconnects[0]
    hostile = replace(
        measures,
        epochs=(HOSTILE,),
        kinds={HOSTILE: 1},
        by_topic=[slow],
        by_client=[slow, replace(slow, name="$" * 300), replace(slow, name="")],
        flows=[Flow(HOSTILE, 1, 1.0, 1, 1, 1)],
        window=line,
        queue=line,
        drops=line,
        drops_by_reason={HOSTILE: 1},
        drops_by_client=[(HOSTILE, HOSTILE, 1)],
        resends_by_client=[(HOSTILE, 1)],
        reconnects=[replace(reconnects, client=HOSTILE)],
        ends=[("broker", f"not a topic: {HOSTILE}", 1)],
    )
    text = render(hostile, HOSTILE)
    page = check_stands_alone(text)
    assert "<script" not in text
    assert text.replace("\n", "").isprintable()
    assert page.text.count("<script>alert(1)</script>") >= 8  # shown as what it is
    assert "{{ 7*7 }}" in page.text


def test_without_any_event_there_is_a_report_that_says_so(measures: Measures) -> None:
    empty: dict[str, Any] = {
        field.name: type(value)() if isinstance(value, dict | list | tuple) else 0
        for field in fields(Measures)
        for value in [getattr(measures, field.name)]
    }
    empty |= {"first": None, "last": None, "bucket_s": 1}
    nothing = Measures(**empty)
    page = check_stands_alone(render(nothing, "nothing"))
    assert "No message was followed" in page.text


def test_the_way_of_one_message(spark: SparkSession) -> None:
    steps = trace(story().frame(spark), 10)
    assert [(step.kind, step.client) for step in steps] == [
        ("received", "publisher"), ("queued", "slow"), ("dropped", "slow"), ("committed", None),
        ("sent", "fast"), ("resent", "fast"),
    ]  # fmt: skip
    assert steps[0].details == "topic plant/0, QoS 1, 4 bytes, for 2 sessions"


@pytest.mark.parametrize(
    "table_format",
    ["delta", pytest.param("parquet", marks=pytest.mark.torture("the same in another format"))],
)
def test_tables_are_written_anew_but_not_over_others(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    events = story().frame(spark)
    frames = {"deliveries": join_deliveries(events), "drops": select_drops(events)}
    for _ in range(2):
        write_tables(tmp_path / "audit", frames, table_format)
    assert spark.read.parquet(str(tmp_path / "audit" / "drops")).count() == 3
    if table_format == "delta":
        table = DeltaTable(tmp_path / "audit" / "deliveries").to_pyarrow_table()
        assert table.num_rows == frames["deliveries"].count()
    others = tmp_path / "others"
    (others / "drops").mkdir(parents=True)
    with pytest.raises(ConfigError, match="tables that no audit has written"):
        write_tables(others, frames, table_format)


@pytest.mark.torture("one more run of Spark")
def test_the_audit_of_a_running_broker(
    spark: SparkSession, clients: Clients, tmp_path: Path
) -> None:
    """From sockets to the page: each message is received, committed, sent, acknowledged."""
    broker = Broker(
        tmp_path, {"events.enabled": "true", "events.topic_filters": '["#"]'}, stream=True
    )
    try:
        broker.start()
        host, port = broker.stream_address
        settings = AuditSettings(f"{host}:{port}", output=tmp_path / "report.html")
        now, hour = datetime.now(UTC), timedelta(hours=1)
        receiver = clients.join(broker, "receiver")
        receiver.subscribe("plant/#", qos=1)
        publisher = clients.join(broker, "publisher")
        for number in range(20):
            publisher.publish(f"plant/{number % 4}", b"21.5", qos=1)
        for _ in range(20):
            receiver.take()
        wait_for("the last event to be in the log", lambda: _told(settings.server, 20))

        def open_spark(*_: object) -> Any:
            return contextlib.nullcontext(spark.newSession())

        measures = audit(settings, open_spark)
        assert (measures.messages, measures.deliveries) == (20, 20)
        assert measures.states == {"acknowledged": 20}
        assert [latency.count for latency in measures.latencies] == [20, 20, 20]
        assert len(measures.by_topic) == 4
        check_stands_alone(settings.output.read_text() if settings.output else "")
        events = read_events(spark, {"server": settings.server})
        offsets = [row["offset"] for row in events.where("kind = 'received'").collect()]
        kinds = [step.kind for step in trace_message(settings, offsets[3], open_spark)]
        assert kinds == ["received", "committed", "sent", "acknowledged"]
        for since, until, count in ((None, now, 0), (now - hour, None, 20), (now + hour, None, 0)):
            events = read_events(spark, {"server": settings.server}, since, until)
            assert events.where("kind = 'received'").count() == count
    finally:
        broker.close()


def _told(server: str, acknowledged: int) -> bool:
    with StreamClient(server) as client:
        log = client.offsets("events")
        batches = client.read("events", log.epoch, log.earliest, log.latest)
        rows = [row for batch in batches for row in batch.to_pylist()]
    told = [row["payload"].count(b'"n":') for row in rows if row["topic"] == "$events/acknowledged"]
    return bool(sum(told) == acknowledged)
