"""Leases and tables of a broker: what is kept, what is told, and that each receipt is published."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.stream import Stream
from penstock.control.landed_requests import ForgetTable, ListTables, ReportProgress
from penstock.control.reader_requests import Lease, ListReaders, Release
from penstock.engine.batch.commit import Commit
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.errors import EpochMismatch, StoreUnavailable
from penstock.services.landed_tables import LandedTables
from penstock.services.reader_leases import ReaderLeases
from penstock.services.receipts import ReceiptCounts
from penstock.store.memory import MemoryStore
from penstock.store.port import NOTHING_LEASED
from tests.support.budget import budget

EPOCH = "e1"
END = 40


class Publisher:
    """Stands for ``Receipts``; fails as often as it is told to."""

    def __init__(self) -> None:
        self.told: Counter[int] = Counter()
        self.failures: list[bool] = []

    async def publish(self, _table: str, asking: Sequence[int]) -> ReceiptCounts:
        self.told.update(asking)
        if asking and self.failures and self.failures.pop():
            raise StoreUnavailable("published, and not durable as far as anybody knows")
        return ReceiptCounts(len(asking), 0)


def log(epoch: str = EPOCH) -> MemoryStore:
    store = MemoryStore(epoch)
    commit = Commit(0)
    commit.messages = [Message("t", b"x", 1, received_at_us=1, offset=n) for n in range(END)]
    store.commit(commit)
    return store


def now() -> Now:
    """The wall clock was set back by an hour, and the messages are five seconds old."""
    return Now(5.0, 5_000_001 - 3_600_000_000, -3_600_000_000)


def leases(path: Path, store: MemoryStore | None = None, epoch: str = EPOCH) -> ReaderLeases:
    return ReaderLeases(path, store or log(epoch), Stream(), now)


def tables(path: Path, publisher: Publisher) -> LandedTables:
    return LandedTables(path, log(), publisher, Stream(), now)  # type: ignore[arg-type]


def asks(offset: int, epoch: str = EPOCH) -> Lease:
    return Lease("etl", "messages", (), epoch, offset, 60.0)


def landed(
    end: int, begin: int = 0, until: int | None = None, asking: Sequence[int] = ()
) -> ReportProgress:
    return ReportProgress("t", "messages", (), EPOCH, 0, end, begin, until, tuple(asking))


async def test_a_lease_is_kept_before_it_is_granted_and_a_renewal_soon_after(
    tmp_path: Path,
) -> None:
    first = leases(tmp_path)
    assert (await first.lease(asks(5))).offset == 5
    assert leases(tmp_path).lowest_leased_offset() == 5
    await first.lease(asks(9))
    assert leases(tmp_path).lowest_leased_offset() == 5, "an older offset holds more"
    await first.tick()
    assert leases(tmp_path).lowest_leased_offset() == 9
    assert leases(tmp_path, epoch="e2").lowest_leased_offset() == NOTHING_LEASED, "of another log"
    assert await first.release(Release("etl"))
    assert leases(tmp_path).lowest_leased_offset() == NOTHING_LEASED


async def test_a_position_of_another_log_gets_no_lease_and_no_receipts(tmp_path: Path) -> None:
    with pytest.raises(EpochMismatch, match="the offset 5 of group etl belongs to epoch old, and"):
        await leases(tmp_path).lease(asks(5, "old"))
    with pytest.raises(EpochMismatch, match="the offset 20 of the table t belongs to epoch old"):
        await tables(tmp_path, Publisher()).record_progress(
            msgspec.structs.replace(landed(20), epoch="old")
        )


async def test_no_lease_is_granted_while_messages_leave_the_log(tmp_path: Path) -> None:
    made = leases(tmp_path)
    async with made.trim_lock:
        asked = asyncio.create_task(made.lease(asks(5)))
        await asyncio.sleep(0)
        assert made.lowest_leased_offset() == NOTHING_LEASED
    assert (await asked).offset == 5


async def test_a_lease_that_cannot_be_kept_is_not_granted(tmp_path: Path) -> None:
    made = leases(tmp_path / "missing")
    with pytest.raises(StoreUnavailable, match=r"readers.json cannot be written: No such file"):
        await made.lease(asks(5))
    with pytest.raises(StoreUnavailable, match=r"readers.json cannot be written: No such file"):
        await made.lease(asks(5))  # as its client does, which is told to try again
    await asyncio.to_thread((tmp_path / "missing").mkdir)
    assert (await made.lease(asks(5))).offset == 5
    assert leases(tmp_path / "missing").lowest_leased_offset() == 5


async def test_a_reader_that_asks_again_before_the_lease_is_kept_waits_for_it_too(
    tmp_path: Path,
) -> None:
    made = leases(tmp_path)
    asked = [asyncio.create_task(made.lease(asks(5))) for _ in range(2)]
    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert leases(tmp_path).lowest_leased_offset() == 5
    assert [task.result().offset for task in done] == [5] * len(done)
    await asyncio.gather(*asked)


async def test_the_lag_is_told_in_messages_and_seconds(tmp_path: Path) -> None:
    made = leases(tmp_path)
    await made.lease(asks(30))
    (state,) = await made.readers(ListReaders())
    assert (state.offset, state.lag_messages) == (30, 10)
    assert state.lag_s == 5.0
    await made.lease(asks(END))
    (state,) = await made.readers(ListReaders())
    assert (state.lag_messages, state.lag_s) == (0, 0.0)


async def test_every_topic_of_readers_and_tables_is_documented_and_no_other(tmp_path: Path) -> None:
    readers, landing = leases(tmp_path), tables(tmp_path, Publisher())
    await readers.lease(asks(0))
    await landing.record_progress(landed(0))
    told = {
        re.sub(r"^(\w+)/\w+/", r"\1/+/", name) for name, _ in [*readers.status(), *landing.status()]
    }
    page = await asyncio.to_thread(Path("docs/sys_topics.md").read_text)
    assert {
        name for name in re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE) if "/+/" in name
    } == told


async def test_a_table_moves_only_over_ranges_that_begin_where_it_is(tmp_path: Path) -> None:
    publisher = Publisher()
    made = tables(tmp_path, publisher)
    assert (await made.record_progress(landed(20))).offset == 0
    assert (await made.record_progress(landed(20, 5, 10, [6]))).offset == 0
    assert (await made.record_progress(landed(20, 0, 10, [1, 2]))).offset == 10
    assert (await made.record_progress(landed(20, 0, 10, [1, 2]))).offset == 10, "asked again"
    assert publisher.told == {1: 1, 2: 1}
    again = tables(tmp_path, publisher)
    (state,) = await again.tables(ListTables())
    assert (state.offset, state.receipts) == (10, 2)
    assert await again.forget(ForgetTable("t"))
    assert not await again.forget(ForgetTable("t"))


@settings(max_examples=budget(40), deadline=None)
@given(
    asking=st.sets(st.integers(0, END - 1)),
    steps=st.lists(
        st.tuples(
            st.integers(1, END),  # how far the table is
            st.integers(1, 15),  # offsets of a range
            st.sampled_from(["goes well", "fails", "broker is killed", "call is lost"]),
        ),
        max_size=12,
    ),
)
def test_each_receipt_is_published_before_the_table_has_moved_past_whatever_is_killed(
    asking: set[int], steps: list[tuple[int, int, str]]
) -> None:
    async def live(path: Path) -> None:
        publisher = Publisher()
        made = tables(path, publisher)
        end = 0
        for length, span, what in [*steps, *[(END, END, "goes well")]]:
            end = max(end, length)
            begin = (await made.record_progress(landed(end))).offset
            until = min(end, begin + span)
            wanted = sorted(offset for offset in asking if begin <= offset < until)
            publisher.failures = [what == "fails"]
            try:
                if what != "call is lost":
                    await made.record_progress(landed(end, begin, until, wanted))
            except StoreUnavailable:
                assert wanted
            if what == "broker is killed":
                made = tables(path, publisher)
            (state,) = await made.tables(ListTables())
            for offset in asking:
                assert publisher.told[offset] or offset >= state.offset
        if (await made.record_progress(landed(END))).offset == END:
            assert set(publisher.told) >= asking

    with tempfile.TemporaryDirectory() as path:
        asyncio.run(live(Path(path)))
