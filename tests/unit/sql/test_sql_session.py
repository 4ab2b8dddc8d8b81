"""SQL over a log that a service in this process serves: views, push-down, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.config.address import Address
from penstock.config.decoder import DecoderDefinition
from penstock.config.stream import StreamDefinition
from penstock.config.table import TableDefinition
from penstock.errors import PenstockError
from penstock.sql.log_dataset import Scan
from penstock.sql.session import SqlError, SqlLimits, SqlSession, batches
from penstock.store.secondary import LogFollower
from penstock.stream.client import StreamClient
from penstock.stream.service import StreamServer
from tests.spark.log_writer import LogWriter
from tests.support.deadline import DEADLINE_S

STREAMS = [
    StreamDefinition(name="messages", topic_filters=("#",)),
    StreamDefinition(name="pressures", topic_filters=("+/+/pressure",)),
]
MESSAGES = 90
FIRST = "2023-11-14 22:13:20+00"


def payload(n: int) -> bytes:
    return b"broken" if n == 7 else b'{"v": %d.5, "name": "n%d"}' % (n, n)


READINGS = TableDefinition.model_validate(
    {
        "name": "readings",
        "topics": "plant/{line:int}/+",
        "decoder": {
            "kind": "json",
            "columns": {"v": "float64", "topic": {"type": "string", "path": "name"}},
        },
    }
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StreamServer]:
    with LogWriter(tmp_path_factory.mktemp("data")) as log:
        for _ in range(3):
            log.append(MESSAGES // 3, payload=payload)
        served = StreamServer(Address("127.0.0.1", 0), LogFollower(log.data_dir), STREAMS)
        yield served
        served.shutdown()


def opened(server: StreamServer, *, pushes: bool = True) -> SqlSession:
    plain = READINGS.model_copy(
        update={
            "name": "plain",
            "decoder": DecoderDefinition.model_validate(
                {"kind": "json", "columns": {"v": "float64"}}
            ),
        }
    )
    return SqlSession(
        lambda: StreamClient(f"127.0.0.1:{server.port}", DEADLINE_S),
        (READINGS, plain),
        pushes=pushes,
    )


@pytest.fixture(scope="module")
def session(server: StreamServer) -> Iterator[SqlSession]:
    with opened(server) as made:
        yield made


@pytest.fixture(scope="module")
def unpushed(server: StreamServer) -> Iterator[SqlSession]:
    with opened(server, pushes=False) as made:
        yield made


def rows(session: SqlSession, text: str) -> list[tuple[str | None, ...]]:
    (statement,) = session.statements(text)
    return list(statement.rows())


def scan(session: SqlSession) -> Scan:
    (found,) = session.scans.found
    return found


def test_there_is_a_view_for_each_stream_and_declared_table(session: SqlSession) -> None:
    assert list(session.views) == ["messages", "pressures", "readings", "plain"]
    assert rows(session, "SELECT count(*) FROM messages") == [("90",)]
    assert scan(session).columns == ("epoch",)  # and no payloads
    assert rows(session, "SELECT count(*), min(topic) FROM pressures") == [
        ("30", "plant/1/pressure")
    ]


def test_a_declared_table_has_the_rows_that_would_land(session: SqlSession) -> None:
    found = rows(
        session, 'SELECT "offset", line, v, client_id FROM plain WHERE "offset" > 5 LIMIT 2'
    )
    assert found == [("6", "1", "6.5", "device-0"), ("8", "1", "8.5", "device-0")]
    assert rows(session, "SELECT count(*), avg(v) FROM plain") == [("89", "45.42134831460674")]
    assert (scan(session).messages_read, scan(session).rows, scan(session).undecoded_messages) == (
        90,
        89,
        1,
    )


def test_a_column_of_a_declaration_goes_before_that_of_the_message(session: SqlSession) -> None:
    assert rows(session, "SELECT count(*) FROM readings WHERE topic = 'n3'") == [("1",)]
    assert scan(session).pushed.topics == ("plant/+/+",)


@pytest.mark.parametrize(
    ("where", "count", "read"),
    [
        ('"offset" >= 80', 10, 10),
        ('"offset" BETWEEN 20 AND 22 AND qos = 0', 1, 3),
        ('"offset" IN (3, 5, 40)', 3, 38),
        ('"offset" < 3 OR "offset" > 87', 5, 90),
        (f"received_at >= TIMESTAMPTZ '{FIRST}' + INTERVAL 85 SECOND", 5, 5),
        (f"received_at < '{FIRST}'", 0, 0),
        ("received_at > now() - INTERVAL 1 HOUR", 0, 0),
        ("received_at > 'infinity'", 0, 90),
        ("topic = 'plant/1/pressure'", 30, 30),
        ("topic IN ('plant/1/pressure', 'plant/2/temperature', 'x')", 60, 60),
        ("topic = 'a' AND topic = 'b'", 0, 0),
        ("topic = 'plant/1/pressure' AND \"offset\" < 10", 3, 3),
        ("client_id = '(offset >= 80) topic == \"x\"'", 0, 90),
        ("topic <> 'plant/1/pressure'", 60, 90),
    ],
)
def test_the_log_applies_offsets_times_and_topics(
    session: SqlSession, where: str, count: int, read: int
) -> None:
    assert rows(session, f"SELECT count(*) FROM messages WHERE {where}") == [(str(count),)]
    assert sum(one.messages_read for one in session.scans.found) == read


TOPICS = ["plant/1/temperature", "plant/2/temperature", "plant/1/pressure", "no", "q\"\\'é\n"]
OFFSETS = st.integers(-2, MESSAGES + 2)
QUOTED = st.sampled_from(TOPICS).map(lambda text: "'" + text.replace("'", "''") + "'")
COMPARISONS = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])
TIMES = st.integers(-3, MESSAGES + 3).map(
    lambda n: f"TIMESTAMPTZ '{FIRST}' + INTERVAL ({n}) SECOND"
)
ATOMS = st.one_of(
    st.builds('"offset" {} {}'.format, COMPARISONS, OFFSETS),
    st.builds("received_at {} {}".format, COMPARISONS, TIMES),
    st.builds("topic {} {}".format, COMPARISONS, QUOTED),
    st.lists(QUOTED, min_size=1, max_size=3).map(lambda some: f"topic IN ({', '.join(some)})"),
    st.lists(OFFSETS, min_size=1, max_size=3).map(
        lambda some: f'"offset" NOT IN ({", ".join(map(str, some))})'
    ),
    st.just("qos = 1"),
    st.just("topic IS NOT NULL"),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("(NOT {})".format, inner),
    ),
    max_leaves=6,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CONDITIONS)
def test_push_down_changes_what_is_read_and_never_the_answer(
    session: SqlSession, unpushed: SqlSession, condition: str
) -> None:
    text = f'SELECT "offset", topic FROM messages WHERE {condition} ORDER BY 1'
    assert rows(session, text) == rows(unpushed, text)


def test_a_view_may_be_read_several_times_in_a_statement(session: SqlSession) -> None:
    text = """
        SELECT count(*) FROM messages a JOIN messages b ON a."offset" = b."offset" + 1
        WHERE a."offset" < 10 AND b.topic = 'plant/1/temperature'"""
    assert rows(session, text) == [("3",)]
    assert len(session.scans.found) == 2


def test_values_are_what_they_are(session: SqlSession) -> None:
    text = (
        "SELECT 1 a, 2 a, 'infinity'::TIMESTAMPTZ, '12:00:00+02'::TIMETZ, INTERVAL 1 MONTH,"
        " '101'::BIT, 9223372036854775807, NULL"
    )
    assert rows(session, text) == [
        ("1", "2", "infinity", "12:00:00+02", "1 month", "101", "9223372036854775807", None)
    ]
    (statement,) = session.statements(text)
    assert statement.rows().names[:2] == ("a", "a")


def test_rows_come_in_arrow(session: SqlSession) -> None:
    (statement,) = session.statements('SELECT "offset", payload FROM messages ORDER BY 1 DESC')
    found = list(batches(session, statement.arrow()))
    assert found[0].column(0)[0].as_py() == MESSAGES - 1
    assert sum(one.num_rows for one in found) == MESSAGES
    (other,) = session.statements("CREATE TABLE t (a INTEGER)")
    with pytest.raises(SqlError, match="only a query has rows"):
        other.arrow()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "COPY (SELECT 1) TO '/tmp/never.csv'",
        "ATTACH '/tmp/never.db'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "SET temp_directory = '/tmp'",
        "SELECT * FROM STREAMS",
    ],
)
def test_a_statement_reads_the_log_and_nothing_else(session: SqlSession, text: str) -> None:
    with pytest.raises(SqlError):
        rows(session, text)
    assert not Path("/tmp/never.csv").exists()


def test_nothing_but_rows_goes_to_standard_output(session: SqlSession) -> None:
    """DuckDB shows there how far a statement is that takes longer than two seconds."""
    assert rows(session, "SELECT current_setting('enable_progress_bar')") == [("false",)]


def test_a_mistake_says_how_to_write_the_offset(session: SqlSession) -> None:
    with pytest.raises(SqlError, match='write "offset" for the column'):
        session.statements("SELECT offset FROM messages")


def test_a_loss_is_told_and_an_error_of_the_log_is_in_its_own_words(tmp_path: Path) -> None:
    with LogWriter(tmp_path) as log:
        for _ in range(3):
            log.append(9)
        log.give_up(9, 18)
        served = StreamServer(Address("127.0.0.1", 0), LogFollower(tmp_path), STREAMS)
        address = f"127.0.0.1:{served.port}"
        with SqlSession(lambda: StreamClient(address, 0.5)) as session:
            assert rows(session, "SELECT count(*) FROM messages") == [("18",)]
            assert scan(session).given_up == [(9, 18)]
            rows(session, 'SELECT count(*) FROM messages WHERE "offset" >= 18')
            assert scan(session).given_up == []
            served.shutdown()
            with pytest.raises(PenstockError, match="no stream service answers"):
                rows(session, "SELECT count(*) FROM messages")


def test_a_statement_that_needs_more_than_its_memory_uses_the_disk(server: StreamServer) -> None:
    connect = lambda: StreamClient(f"127.0.0.1:{server.port}", DEADLINE_S)  # noqa: E731
    with SqlSession(connect, limits=SqlLimits(64 * 2**20, 2**30)) as session:
        text = "SELECT n, md5(n::VARCHAR) FROM range(1500000) t(n) ORDER BY 2"
        (statement,) = session.statements(text)
        found = iter(statement.rows())
        next(found)
        assert session.has_spilled
        del found
