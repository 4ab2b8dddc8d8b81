"""Commands on a log with a damaged block: who needs none of it gets all, others are told of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from penstock.cli.damaged_log import damage_handler
from penstock.cli.log_options import LogOptions
from penstock.cli.log_selection import select_messages
from penstock.config.address import Address
from penstock.errors import StoreUnavailable
from penstock.sql.session import SqlError, SqlSession
from penstock.store.secondary import LogFollower
from penstock.stream.birth_store import BirthStore
from penstock.stream.client import StreamClient
from penstock.stream.service import StreamServer
from tests.contract.test_examination import END, ROWS, flip, with_incompressible_chunks
from tests.unit.cli.test_log_selection import NOW, STREAM, offsets

HIDDEN = re.compile(r"the offsets (\d+) to (\d+) cannot be read")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A log with a damaged block in its middle."""
    with_incompressible_chunks(tmp_path)
    flip(tmp_path, 0.5)
    return tmp_path


@pytest.fixture
def server(data_dir: Path) -> Iterator[StreamServer]:
    served = StreamServer(Address("127.0.0.1", 0), LogFollower(data_dir), [STREAM])
    yield served
    served.shutdown()


def client(server: StreamServer, *, skips: bool = False) -> StreamClient:
    address = f"127.0.0.1:{server.port}"
    return StreamClient(address, 5.0, on_damage=damage_handler(skips=skips))


async def read(server: StreamServer, options: LogOptions, *, skips: bool = False) -> list[int]:
    with client(server, skips=skips) as made:
        return await offsets(made, select_messages(made, options, NOW))


async def hidden(server: StreamServer) -> range:
    """What a reader of all is told."""
    with pytest.raises(StoreUnavailable) as caught:
        await read(server, LogOptions())
    found = HIDDEN.search(str(caught.value))
    assert found is not None
    return range(int(found[1]), int(found[2]) + 1)


async def test_the_error_names_offsets_and_remedies(server: StreamServer, data_dir: Path) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await read(server, LogOptions())
    assert HIDDEN.match(str(caught.value))
    assert f"run 'penstock store repair --data-dir {data_dir}'" in str(caught.value)
    assert str(caught.value).endswith("; --skip-damaged leaves them out")


async def test_a_reader_that_needs_nothing_of_the_block_is_not_disturbed(
    server: StreamServer,
) -> None:
    """The last messages are searched for in larger and larger portions, times in an index."""
    assert await read(server, LogOptions(last=2)) == [END - 2, END - 1]
    gone = await hidden(server)
    assert await read(server, LogOptions(until=str(gone[0]))) == list(range(gone[0]))
    assert await read(server, LogOptions(begin=str(gone[-1] + 1))) == [*range(gone[-1] + 1, END)]
    last_chunk = LogOptions(begin=f"1970-01-01T00:00:{END // ROWS:02}")
    assert await read(server, last_chunk) == list(range(END - ROWS, END))


async def test_with_skip_damaged_all_others_are_read_and_the_gap_is_told_once(
    server: StreamServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """This is the remedy that the error names."""
    gone = await hidden(server)
    whole = [n for n in range(END) if n not in gone]
    assert await read(server, LogOptions(), skips=True) == whole
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"penstock: offsets {gone[0]} to {gone[-1]} are left out: ")
    last = await read(server, LogOptions(last=END - gone[0]), skips=True)
    assert last == whole[-(END - gone[0]) :]


async def test_births_of_sparkplug_in_the_block_are_a_gap_and_no_end(
    server: StreamServer,
) -> None:
    """A table of Sparkplug reads births of the whole log, whatever it lands."""
    gone = await hidden(server)
    with client(server) as made:
        found = BirthStore(None, "messages", ("t/#",)).preview(made)
    assert found.gaps == [(gone[0], gone[-1] + 1)]
    assert sum(table.num_rows for table in found.tables) == END - len(gone)


async def test_sql_does_the_same(server: StreamServer, capsys: pytest.CaptureFixture[str]) -> None:
    gone = await hidden(server)
    with SqlSession(partial(client, server), ()) as session:
        (statement,) = session.statements("select count(*) from messages")
        with pytest.raises((SqlError, StoreUnavailable), match=r"--skip-damaged leaves them out"):
            list(statement.rows())
    with SqlSession(partial(client, server, skips=True), ()) as session:
        (statement,) = session.statements("select count(*) from messages")
        assert list(statement.rows()) == [(str(END - len(gone)),)]
    assert capsys.readouterr().err.count("are left out") == 1
