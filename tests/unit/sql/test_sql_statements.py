"""How Ctrl-C ends the statements of `penstock sql`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import final

import pytest

from penstock.cli.sql_statements import Interrupted, SqlOutput, run_statements
from penstock.config.address import Address
from penstock.config.stream import StreamDefinition
from penstock.sql.session import SqlSession
from penstock.store.secondary import LogFollower
from penstock.stream.client import StreamClient
from penstock.stream.service import StreamServer
from tests.spark.log_writer import LogWriter
from tests.support.deadline import DEADLINE_S

ENDLESS = "SELECT count(*) FROM range(1000000000000) t(n) WHERE md5(n::VARCHAR) = ''"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[SqlSession]:
    stream = StreamDefinition(name="messages", topic_filters=("#",))
    with LogWriter(tmp_path):
        served = StreamServer(Address("127.0.0.1", 0), LogFollower(tmp_path), [stream])
        with SqlSession(lambda: StreamClient(f"127.0.0.1:{served.port}", DEADLINE_S)) as made:
            yield made
        served.shutdown()


@final
class PressesCtrlC:
    """Ctrl-C comes while an object is destroyed, where Python can raise nothing."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("text", [ENDLESS, f"SELECT 1; {ENDLESS}; SELECT 2"])
def test_ctrl_c_is_heard_whatever_is_done_at_that_moment(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    looks = iter((PressesCtrlC(),))

    def has_spilled(_: SqlSession) -> bool:
        pressed = next(looks, None)
        del pressed
        return False

    monkeypatch.setattr(SqlSession, "has_spilled", property(has_spilled))
    former = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted):
        run_statements(session, text, SqlOutput(None, as_json=True, force=False), explain=False)
    assert signal.getsignal(signal.SIGINT) is former


def test_no_further_statement_runs_after_ctrl_c(
    session: SqlSession, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """It came while the rows of the first were printed."""
    interrupts = iter((True,))
    write = SqlOutput.write_result

    def write_result(self: SqlOutput, *given: object) -> None:
        write(self, *given)  # type: ignore[arg-type]
        if next(interrupts, False):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SqlOutput, "write_result", write_result)
    output = SqlOutput(None, as_json=True, force=False)
    with pytest.raises(Interrupted):
        run_statements(session, "SELECT 1 a; SELECT 2 a", output, explain=False)
    assert b'{"a":2}' not in capsysbinary.readouterr().out
