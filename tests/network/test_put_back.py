"""A real broker whose data directory comes back from an older copy: what its readers are told."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.control.landed_requests import ReportProgress
from penstock.control.reader_requests import Lease
from penstock.errors import ConfigError, EpochMismatch, OffsetOutOfRange
from penstock.store.mark import NO_MARK, Mark
from penstock.stream.client import Continuation, StreamClient
from tests.support.broker import Broker
from tests.support.commands import run, running
from tests.support.deadline import wait_for, wait_until_logged
from tests.support.fixtures import Clients, running_broker
from tests.support.pipelines import server_of


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with running_broker(tmp_path, stream=True) as started:
        yield started


@pytest.fixture
def stream(broker: Broker) -> Iterator[StreamClient]:
    with StreamClient(server_of(broker), connect_timeout_s=60) as client:
        yield client


def publish(broker: Broker, clients: Clients, count: int) -> None:
    publisher = clients.join(broker, "publisher")
    for number in range(count):
        assert publisher.publish("plant/1", str(number).encode(), qos=1) == 0


def position(stream: StreamClient) -> tuple[str, int, Mark]:
    """Where a reader is that has read all."""
    log = stream.offsets("messages")
    assert log.mark == stream.mark_at("messages", log.epoch, log.latest)
    return log.epoch, log.latest, log.mark


def test_a_reader_goes_on_where_it_was_after_a_restart(
    broker: Broker, stream: StreamClient, clients: Clients
) -> None:
    publish(broker, clients, 3)
    epoch, offset, mark = position(stream)
    assert stream.check_position("messages", epoch, offset, mark) == Continuation(epoch, 3)
    broker.restart()  # by SIGKILL
    publish(broker, clients, 2)
    assert stream.check_position("messages", epoch, offset, mark) == Continuation(epoch, 3)
    assert stream.check_position("messages", epoch, 2, NO_MARK) == Continuation(epoch, 2)
    with pytest.raises(OffsetOutOfRange, match="the position is at offset 9, and the log ends at"):
        stream.check_position("messages", epoch, 9, stream.mark_at("messages", epoch, 5))
    with pytest.raises(OffsetOutOfRange, match="offset 9 is asked for"):
        stream.mark_at("messages", epoch, 9)
    with pytest.raises(EpochMismatch, match="it is not known where they part"):
        stream.check_position("messages", epoch, 3, Mark(mark.path, "0" * 64))
    with pytest.raises(EpochMismatch, match="belong to epoch 20200101T000000-00000000"):
        stream.check_position("messages", "20200101T000000-00000000", 3, NO_MARK)
    with pytest.raises(ConfigError, match="'x' is no mark of a position"):
        stream._call_any("check", {"stream": "messages", "epoch": epoch, "offset": 1, "mark": "x"})


def copy(broker: Broker, to: Path) -> Path:
    broker.stop()
    shutil.copytree(broker.data_dir, to)
    broker.start()
    return to


def put_back(broker: Broker, copied: Path) -> None:
    broker.stop()
    shutil.rmtree(broker.data_dir)
    shutil.copytree(copied, broker.data_dir)
    broker.start()


def payloads(stream: StreamClient, epoch: str, start: int, end: int) -> list[bytes]:
    batches = stream.read("messages", epoch, start, end, columns=["payload"])
    return [value for batch in batches for value in batch.column("payload").to_pylist()]


def test_a_log_that_was_put_back_goes_on_under_a_new_epoch_when_a_reader_of_the_lost_future_comes(
    broker: Broker, stream: StreamClient, clients: Clients, tmp_path: Path
) -> None:
    publish(broker, clients, 4)
    copied = copy(broker, tmp_path / "copy")
    publish(broker, clients, 4)
    epoch, offset, mark = position(stream)
    old = stream.mark_at("messages", epoch, 4)
    put_back(broker, copied)
    publish(broker, clients, 6)
    same_epoch, _, living = position(stream)
    assert same_epoch == epoch

    with pytest.raises(EpochMismatch, match="they part at offset 4"):
        list(stream.read("messages", epoch, 0, 8, before=(offset, mark)))
    lost = Lease("etl", "messages", (), epoch, offset, 60.0, mark=str(mark))
    with pytest.raises(EpochMismatch, match="they part at offset 4"):
        stream.lease(lost)
    landed = ReportProgress("t", "messages", (), epoch, 0, offset, mark=str(mark))
    with pytest.raises(EpochMismatch, match="they part at offset 4"):
        stream.report_progress(landed)

    found = stream.check_position("messages", epoch, offset, mark)
    assert (found.offset, found.parts_at) == (4, 4)
    assert found.epoch != epoch
    assert f"offset 8 of epoch {epoch} is of a history that this log does not have" in found.why
    assert "they part at offset 4" in found.why
    wait_until_logged(broker, f"the log goes on under the new epoch {found.epoch} from offset 4 on")
    wait_for("the new epoch", lambda: stream.offsets("messages").epoch == found.epoch)
    assert stream.offsets("messages").lineage == ((epoch, 4),)

    # Who asks again, who is at the place where they part, and who is of the living history.
    assert stream.check_position("messages", epoch, offset, mark) == found
    assert stream.check_position("messages", epoch, 4, old) == Continuation(found.epoch, 4)
    assert stream.check_position("messages", epoch, 10, living) == Continuation(found.epoch, 10)
    assert payloads(stream, epoch, 0, 4) == payloads(stream, found.epoch, 0, 4)
    assert payloads(stream, found.epoch, 4, 10) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    with pytest.raises(EpochMismatch, match="the log is now of epoch"):
        payloads(stream, epoch, 4, 5)
    granted = stream.lease(Lease("etl", "messages", (), epoch, 10, 60.0, mark=str(living)))
    assert (granted.epoch, granted.offset) == (found.epoch, 10)

    broker.restart()
    assert stream.check_position("messages", epoch, offset, mark) == found
    (reader,) = stream.readers()
    assert reader.offset == 10
    broker.stop()
    code, said, told = run("store", "check", "--data-dir", str(broker.data_dir))
    assert code == 0, said + told
    code, said, told = run("store", "inspect", "--data-dir", str(broker.data_dir))
    assert f"{epoch}, up to offset 4" in said.decode(), told


@pytest.mark.parametrize("is_running", [True, False])
def test_the_command_forks_the_log_and_says_before_what_that_means(
    broker: Broker, stream: StreamClient, clients: Clients, is_running: bool
) -> None:
    publish(broker, clients, 4)
    epoch, offset, mark = position(stream)
    stranger = Mark(mark.path, "0" * 64)  # as after a memory snapshot
    with pytest.raises(EpochMismatch, match="'penstock store fork --at OFFSET' names that offset"):
        stream.check_position("messages", epoch, offset, stranger)
    if not is_running:
        broker.stop()
    command = ("store", "fork", "--data-dir", str(broker.data_dir), "--at")
    code, _, told = run(*command, "5")
    assert (code, b"the log has no offset 5: it ends at 4" in told) != (0, True)
    code, said, told = run(*command, "1", "--dry-run")
    assert code == 0, told
    assert said.startswith(b"the log keeps all its messages; 3 of them, from offset 1 on, are of a")
    assert b"was left as it is" in said
    code, said, told = run(*command, "1")
    assert code == 0, told
    new_epoch = said.decode().split()[-1]
    if not is_running:
        broker.start()
    wait_for("the new epoch", lambda: stream.offsets("messages").epoch == new_epoch)
    found = stream.check_position("messages", epoch, offset, stranger)
    assert (found.epoch, found.offset, found.parts_at) == (new_epoch, 1, 1)
    assert stream.check_position("messages", epoch, offset, mark) == Continuation(new_epoch, 4)


def test_tail_ends_in_a_sentence_when_the_log_goes_on_from_an_older_copy(
    broker: Broker, clients: Clients, tmp_path: Path
) -> None:
    publish(broker, clients, 2)
    copied = copy(broker, tmp_path / "copy")
    publish(broker, clients, 3)
    command = ("tail", "--follow", "--server", server_of(broker), "--from", "earliest")
    with running(*command) as tail:
        for _ in range(5):
            assert tail.line()
        put_back(broker, copied)
        publish(broker, clients, 7)
        code, _, told = tail.finish()
    assert code == 1
    assert b"they part at offset 2" in told
    assert b"start tail again" in told


@pytest.mark.parametrize("copied", ["empty", "of another installation"])
def test_a_reader_of_another_log_is_refused_and_told_which_log_it_read(
    broker: Broker, clients: Clients, tmp_path: Path, copied: str
) -> None:
    with StreamClient(server_of(broker), connect_timeout_s=60) as stream:
        publish(broker, clients, 4)
        epoch, offset, mark = position(stream)
    broker.stop()
    shutil.rmtree(broker.data_dir)
    if copied != "empty":
        (tmp_path / "other").mkdir()
        with running_broker(tmp_path / "other", stream=True) as other:
            publish(other, clients, 9)
            other.stop()
        shutil.copytree(other.data_dir, broker.data_dir)
    broker.start()
    publish(broker, clients, 1)
    with StreamClient(server_of(broker), connect_timeout_s=60) as stream:
        found = stream.offsets("messages").epoch
        assert found != epoch
        with pytest.raises(EpochMismatch, match=f"{epoch}, and the log is now of epoch {found}"):
            stream.check_position("messages", epoch, offset, mark)
        with pytest.raises(EpochMismatch, match=f"{epoch}, and the log is now of epoch {found}"):
            list(stream.read("messages", epoch, 0, 4))
        with pytest.raises(EpochMismatch, match=epoch):
            stream.lease(Lease("etl", "messages", (), epoch, offset, 60.0, mark=str(mark)))
