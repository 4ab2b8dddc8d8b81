"""Flight clients that know nothing of Penstock, and bytes that nobody meant as a request."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
    ("chosen", "offsets", "records"),
    [
        ({"start": 3}, range(3, 9), 6),
        ({"start": 2, "end": 5}, range(2, 5), 3),
        ({"start": 9}, range(0), 0),
        ({"since": "2023-11-14T22:13:26Z"}, range(6, 9), -1),
        ({"since": "2023-11-14T23:13:22+01:00", "until": 1_700_000_004_000_000}, range(2, 4), -1),
        ({"since": "2023-11-14T22:13:25Z", "until": "2023-11-14T22:13:25Z"}, range(0), -1),
        ({"start": 1, "until": "2023-11-14T22:13:27Z", "filter": "plant/2/#"}, (1, 4), -1),
    ],
)
def test_a_command_chooses_offsets_and_times(
    client: flight.FlightClient, chosen: dict[str, object], offsets: Sequence[int], records: int
) -> None:
    command = json.dumps({"stream": "messages", **chosen}).encode()
    info = client.get_flight_info(flight.FlightDescriptor.for_command(command))
    assert info.total_records == records
    assert rows(client, info) == list(offsets)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"start": 5, "end": 3}, "bad_request: the range ends at 3, before it starts at 5"),
        ({"end": 10}, "behind: the range ends at 10, and the log at 9"),
    ],
)
def test_offsets_that_are_not_there_are_refused_before_rows_are_asked_for(
    client: flight.FlightClient, chosen: dict[str, object], sentence: str
) -> None:
    command = json.dumps({"stream": "messages", **chosen}).encode()
    with pytest.raises(flight.FlightServerError, match=sentence):
        client.get_flight_info(flight.FlightDescriptor.for_command(command))


@pytest.mark.parametrize(
    "descriptor",
    [
        flight.FlightDescriptor.for_path("nothing"),
        flight.FlightDescriptor.for_path("messages", "more"),
        flight.FlightDescriptor.for_command(b"SELECT 1"),
        flight.FlightDescriptor.for_command(b'{"stream": "messages", "columns": ["x"]}'),
        flight.FlightDescriptor.for_command(b'{"stream": "messages", "begin": 1}'),
        flight.FlightDescriptor.for_command(b'{"stream": "messages", "end": -1}'),
        flight.FlightDescriptor.for_command(b'{"stream": "messages", "since": "yesterday"}'),
        flight.FlightDescriptor.for_command(b'{"stream": "messages", "until": "2026-11-26"}'),
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
def test_any_request_is_answered_or_refused(
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
