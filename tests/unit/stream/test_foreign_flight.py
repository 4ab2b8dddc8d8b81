"""Flight clients that know nothing of Penstock, and bytes that nobody meant as a request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config.address import Address
from penstock.config.stream import StreamDefinition
from penstock.store.secondary import LogFollower
from penstock.stream.rows import STREAM_SCHEMA
from penstock.stream.service import StreamServer
from tests.spark.log_writer import LogWriter

STREAMS = [
    StreamDefinition(name="messages", topic_filters=("#",)),
    StreamDefinition(name="pressures", topic_filters=("+/+/pressure",)),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    with LogWriter(tmp_path_factory.mktemp("data")) as log:
        log.append(9)
        served = StreamServer(Address("127.0.0.1", 0), LogFollower(log.data_dir), STREAMS)
        yield served
        served.shutdown()


@pytest.fixture
def client(server: StreamServer) -> Iterator[flight.FlightClient]:
    with flight.FlightClient(f"grpc://127.0.0.1:{server.port}") as made:
        yield made


def rows(client: flight.FlightClient, info: flight.FlightInfo) -> list[int]:
    return [
        offset
        for endpoint in info.endpoints
        for offset in client.do_get(endpoint.ticket).read_all().column("offset").to_pylist()
    ]


def test_a_generic_client_reads_a_stream(client: flight.FlightClient) -> None:
    """Only calls of Flight itself: list, info, schema, get."""
    for listed in client.list_flights():
        info = client.get_flight_info(listed.descriptor)
        assert info.schema == STREAM_SCHEMA == client.get_schema(listed.descriptor).schema
        assert info.total_records == 9
        assert info.total_bytes == -1
        assert info.endpoints == listed.endpoints
    assert rows(client, client.get_flight_info(flight.FlightDescriptor.for_path("messages"))) == (
        list(range(9))
    )


def test_a_command_chooses_rows_and_columns(client: flight.FlightClient) -> None:
    command = {"stream": "messages", "filter": "plant/2/#", "columns": ["offset", "topic"]}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    info = client.get_flight_info(descriptor)
    assert info.schema.names == ["offset", "topic"]
    assert info.total_records == -1
    assert rows(client, info) == [1, 4, 7]


@pytest.mark.parametrize(
    "descriptor",
    [
        flight.FlightDescriptor.for_path("nothing"),
        flight.FlightDescriptor.for_path("messages", "more"),
        flight.FlightDescriptor.for_command(b"SELECT 1"),
        flight.FlightDescriptor.for_command(b'{"stream": "messages", "columns": ["x"]}'),
        flight.FlightDescriptor.for_command(b'{"stream": "messages", "end": 1}'),
    ],
)
def test_a_descriptor_of_nothing_is_refused(
    client: flight.FlightClient, descriptor: flight.FlightDescriptor
) -> None:
    for ask in (client.get_flight_info, client.get_schema):
        with pytest.raises(pa.ArrowException, match=r"bad_request|unknown_stream"):
            ask(descriptor)  # pyarrow's client knows the refusal of a schema by its text only


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"", b'"\\ud800"'])
def test_a_ticket_of_nonsense_is_a_bad_request(client: flight.FlightClient, data: bytes) -> None:
    with pytest.raises(flight.FlightServerError, match="bad_request: "):
        client.do_get(flight.Ticket(data)).read_all()
    with pytest.raises(flight.FlightServerError, match="bad_request: "):
        list(client.do_action(flight.Action("offsets", data)))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["messages", "#", "a/#/b", "offset"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
FIELDS = [
    "stream",
    "epoch",
    "start",
    "end",
    "filter",
    "columns",
    "received_at",
    "group",
    "topics",
    "offset",
    "ttl_s",
    "about",
    "do",
    "table",
    "since",
    "until",
    "begin",
    "asking",
    "sink",
    "batch",
    "run",
    "partition",
    "first_row",
    "client_id",
    "files",
]
OBJECTS = st.dictionaries(st.sampled_from(FIELDS), VALUES).map(lambda made: json.dumps(made))
REQUESTS = st.binary(max_size=200) | OBJECTS.map(str.encode)
ACTIONS = [
    "streams",
    "offsets",
    "offset_at",
    "received_between",
    "lease",
    "release",
    "readers",
    "landed",
    "tables",
    "forget",
    "publish",
    "abandon",
    "no",
]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(REQUESTS, st.sampled_from(ACTIONS))
def test_whatever_comes_is_answered_or_refused(
    server: StreamServer, request_made: bytes, action: str
) -> None:
    """Any other exception would be a traceback in the log, and an internal error for the caller."""
    command = flight.FlightDescriptor.for_command(request_made)
    for ask in (
        lambda: server.do_get(None, flight.Ticket(request_made)),
        lambda: server.do_action(None, flight.Action(action, request_made)),
        lambda: server.get_flight_info(None, command),
        lambda: server.get_schema(None, command),
    ):
        with suppress(flight.FlightServerError, flight.FlightUnavailableError):
            ask()
