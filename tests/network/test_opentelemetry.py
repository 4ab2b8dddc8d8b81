"""A real broker's OpenTelemetry process and a collector: metrics, traces, either of them away."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")
pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed"
)

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from penstock.control.admin_requests import Reload, Reloaded
from penstock.control.client import ask
from penstock.control.metric_families import FAMILIES
from penstock.control.metric_requests import Metrics, ReadMetrics
from penstock.otlp.metric_points import name_of
from penstock.protocol.properties import Properties
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.dial import Authority
from tests.support.fixtures import Clients, running_broker
from tests.support.otlp_receiver import OtlpReceiver, attributes_of

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
TRACEPARENT = ("traceparent", f"00-{TRACE}-{PARENT}-01")
EVENTS: dict[str, object] = {"events.enabled": "true", "events.topic_filters": '["#"]'}


def settings(collector: OtlpReceiver, **more: object) -> dict[str, object]:
    named = {f"opentelemetry.{name}": value for name, value in more.items()}
    return {"opentelemetry.endpoint": collector.url, "opentelemetry.interval_s": 0.2} | named


def otlp_processes(broker: Broker) -> list[int]:
    """The processes of the broker's family that send to the collector."""
    found = []
    for pid in broker.family():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"penstock.otlp.service" in command:
            found.append(pid)
    return found


def is_reading(collector: OtlpReceiver, clients: Clients, broker: Broker) -> None:
    """Wait until messages become traces: those before the process reads are in none."""
    publisher = clients.join(broker, "first")

    def has_one() -> bool:
        publisher.publish("first", b"", 1)
        return bool(collector.spans())

    wait_for("the first trace", has_one)


def of_topic(collector: OtlpReceiver, topic: str) -> dict[tuple[str, str], Span]:
    """The spans of one topic, by their name and client."""
    found = {}
    for span in collector.spans():
        attributes: dict[str, Any] = attributes_of(span.attributes)
        if attributes["messaging.destination.name"] == topic:
            found[span.name, attributes["messaging.client.id"]] = span
    return found


@pytest.fixture
def collector() -> Iterator[OtlpReceiver]:
    with OtlpReceiver() as receiver:
        yield receiver


@pytest.fixture
def traced(tmp_path: Path, collector: OtlpReceiver) -> Iterator[Broker]:
    """A broker whose stream service asks for a token: the process has the broker's own."""
    tokens = tmp_path / "tokens"
    tokens.write_text("reader-0123456789abcdef\n")
    tokens.chmod(0o600)
    more = settings(collector) | EVENTS | {"stream.token_file": tokens}
    with running_broker(tmp_path, more, stream=True) as broker:
        yield broker


def test_a_message_becomes_a_trace_below_its_publishers(
    traced: Broker, collector: OtlpReceiver, clients: Clients
) -> None:
    is_reading(collector, clients, traced)
    reader = clients.join(traced, "reader")
    reader.subscribe("plant/#", qos=1)
    properties = Properties(user_properties=[("line", "7"), TRACEPARENT])
    clients.join(traced, "press").publish("plant/7", b"21.5", 1, properties=properties)
    message = reader.take()
    assert message.properties is not None
    assert message.properties.user_properties == [("line", "7"), TRACEPARENT]  # handed on
    wait_for("both spans", lambda: len(of_topic(collector, "plant/7")) == 2)
    spans = of_topic(collector, "plant/7")
    root, delivery = spans["receive", "press"], spans["deliver", "reader"]
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, PARENT)
    assert (delivery.trace_id, delivery.parent_span_id) == (root.trace_id, root.span_id)
    assert root.kind == Span.SPAN_KIND_CONSUMER
    assert delivery.kind == Span.SPAN_KIND_PRODUCER
    assert root.start_time_unix_nano <= root.end_time_unix_nano
    assert [event.name for event in delivery.events] == ["sent", "acknowledged"]
    (resource,) = {str(one["service.name"]) for one in collector.resources}
    assert resource == "penstock"


def test_a_dropped_message_is_an_error(
    traced: Broker, collector: OtlpReceiver, clients: Clients
) -> None:
    is_reading(collector, clients, traced)
    reader = clients.join(traced, "reader", properties=Properties(maximum_packet_size=100))
    reader.subscribe("big", qos=1)
    clients.join(traced, "press").publish("big", bytes(200), 1)
    wait_for("the drop", lambda: ("deliver", "reader") in of_topic(collector, "big"))
    drop = of_topic(collector, "big")["deliver", "reader"]
    assert (drop.status.code, drop.status.message) == (
        Status.STATUS_CODE_ERROR,
        "packet_too_large_for_the_receiver",
    )
    assert drop.trace_id == of_topic(collector, "big")["receive", "press"].trace_id


def test_metrics_are_those_of_the_broker(tmp_path: Path, clients: Clients) -> None:
    authority = Authority(tmp_path)
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer secret-0123456789\n")
    headers.chmod(0o600)
    with OtlpReceiver(certificate=authority.issue("collector", "127.0.0.1")) as collector:
        more = settings(
            collector,
            ca_file=authority.file,
            headers_file=headers,
            resource_attributes='{"plant": "7"}',
        )
        with running_broker(tmp_path, more) as broker:
            clients.join(broker, "press").publish("t", b"x", 1)
            wait_for(
                "the message",
                lambda: collector.points("penstock_messages_received").get(("1",)) == 1,
            )
            found = ask(broker.data_dir, ReadMetrics(), Metrics, 5.0)
            sent = collector.metrics()
            for name in (*found.samples, *found.distributions):
                family = FAMILIES[name]
                if family.kind == "gaugehistogram":
                    assert f"{name_of(family)}_bucket" in sent
                else:
                    assert name_of(family) in sent
            total = sent["penstock_messages_received"]
            assert total.sum.is_monotonic
            assert total.sum.aggregation_temporality == 2  # cumulative
            commits = sent["penstock_commit_duration_seconds"].histogram.data_points[0]
            assert (sent["penstock_commit_duration_seconds"].unit, commits.count > 0) == ("s", True)
            assert sum(commits.bucket_counts) == commits.count
            assert not commits.HasField("min")
            assert collector.headers[0]["authorization"] == "Bearer secret-0123456789"
            assert collector.resources[0]["plant"] == "7"
            headers.write_text("Authorization: Bearer another-0123456789\n")
            reloaded = ask(broker.data_dir, Reload(), Reloaded, 5.0)
            assert reloaded.read == ["the files of the OpenTelemetry process"]
            wait_for(
                "the other token",
                lambda: collector.headers[-1]["authorization"] == "Bearer another-0123456789",
            )
            wait_for("one process", lambda: len(otlp_processes(broker)) == 1)
            assert b"another" not in Path(f"/proc/{otlp_processes(broker)[0]}/cmdline").read_bytes()


def test_a_collector_that_is_away_costs_the_broker_nothing_and_is_found_again(
    tmp_path: Path, clients: Clients
) -> None:
    with OtlpReceiver() as first:
        port = first.port
    more = settings(first, unsent_spans_max=100) | EVENTS
    with running_broker(tmp_path, more, stream=True) as broker:
        wait_for("the line", lambda: "/v1/metrics: " in broker.log())  # it reads events, too
        publisher = clients.join(broker, "press")
        for _ in range(150):
            publisher.publish("t", b"x", 1)
        wait_for("the line about traces", lambda: "/v1/traces" in broker.log())
        with OtlpReceiver(port) as again:
            wait_for(
                "what was dropped",
                lambda: again.points("penstock_opentelemetry_spans_dropped").get((), 0) > 0,
            )
            wait_for("the spans", lambda: len(again.spans()) >= 100)
            wait_for("the line", lambda: "/v1/traces again" in broker.log())
        assert broker.log().count("does not take") <= 4  # no line for each attempt


def test_a_killed_process_is_started_again(
    traced: Broker, collector: OtlpReceiver, clients: Clients
) -> None:
    is_reading(collector, clients, traced)
    (pid,) = otlp_processes(traced)
    os.kill(pid, signal.SIGKILL)
    wait_for("another one", lambda: otlp_processes(traced) not in ([], [pid]))
    publisher = clients.join(traced, "press")

    def is_traced() -> bool:
        publisher.publish("after", b"x", 1)
        return bool(of_topic(collector, "after"))

    wait_for("traces of the new one", is_traced)
    restarts = collector.points("penstock_child_restarts")
    assert restarts["OpenTelemetry process",] == 1
    assert traced.stop() == 0
    assert traced.family() == []


def test_the_process_ends_with_a_broker_that_is_killed(traced: Broker) -> None:
    wait_for("the process", lambda: bool(otlp_processes(traced)))
    traced.kill()
    wait_for("nothing to be left", lambda: traced.family() == [])
