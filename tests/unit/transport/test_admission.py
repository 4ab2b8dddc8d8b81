"""How many and how fast: pure counters, and the limit of open files."""

import asyncio
import logging
import resource

import pytest

from penstock.config.settings import Settings
from penstock.transport import descriptors
from penstock.transport.admission import WAITING_MAX, Admission, Descriptors, TokenBucket


def taken(bucket: TokenBucket, now_s: float, wanted: int) -> int:
    """How many of ``wanted`` tokens there are now."""
    for number in range(wanted):
        if bucket.wait_s(now_s) > 0.0:
            return number
        bucket.take()
    return wanted


def test_a_second_of_tokens_at_once_then_as_many_a_second() -> None:
    bucket = TokenBucket(10, 100.0)
    assert taken(bucket, 100.0, 50) == 10
    assert bucket.wait_s(100.0) == pytest.approx(0.1)
    assert taken(bucket, 100.05, 50) == 0
    assert taken(bucket, 100.5, 50) == 5
    assert taken(bucket, 1000.0, 50) == 10  # saved up for one second, no longer


def test_after_the_wait_there_is_a_token() -> None:
    for per_s in (1, 3, 7, 1_000_000):
        bucket = TokenBucket(per_s, 0.0)
        now_s = 0.0
        taken(bucket, now_s, per_s)
        for _ in range(50):
            now_s += bucket.wait_s(now_s) + 1e-9
            assert bucket.wait_s(now_s) == 0.0
            bucket.take()


def test_no_rate_is_no_limit() -> None:
    assert taken(TokenBucket(0, 0.0), 0.0, 100_000) == 100_000


def test_a_place_is_given_back_once() -> None:
    shared = Descriptors(10)
    admission = Admission("a", 2, shared)
    first, second = admission.admit("p"), admission.admit("p")
    assert first is not None
    assert second is not None
    assert admission.admit("p") is None
    first.release()
    first.release()
    assert (admission.open_count, shared.open_count) == (1, 1)
    assert admission.admit("p") is not None
    assert admission.admit("p") is None


def test_connections_of_one_address_have_a_number_and_others_come_in() -> None:
    admission = Admission("a", 100, Descriptors(100), per_address_max=2)
    slots = [admission.admit("p", "192.0.2.1") for _ in range(3)]
    assert [slot is not None for slot in slots] == [True, True, False]
    assert admission.admit("p", "192.0.2.2") is not None
    exempt = [admission.admit("p") for _ in range(5)]
    assert None not in exempt
    for _ in range(2):
        assert slots[0] is not None
        slots[0].release()
        slots[0] = admission.admit("p", "192.0.2.1")
        assert slots[0] is not None
        assert admission.admit("p", "192.0.2.1") is None


def test_an_address_that_a_header_told_counts_and_is_given_back() -> None:
    admission = Admission("a", 100, Descriptors(100), per_address_max=1)
    for _ in range(3):
        first, second = admission.admit("proxy"), admission.admit("proxy")
        assert first is not None
        assert second is not None
        assert admission.count_address(first, "192.0.2.1")
        assert not admission.count_address(second, "192.0.2.1")
        assert admission.count_address(second, None)
        first.release()
        second.release()


def test_of_addresses_without_a_connection_nothing_is_kept() -> None:
    admission = Admission("a", 1, Descriptors(100), per_address_max=1)
    for number in range(100):
        slot = admission.admit("p", f"192.0.2.{number}")
        assert slot is not None
        slot.release()
    assert len(admission._by_source) == 0


def test_all_listeners_share_the_descriptors(caplog: pytest.LogCaptureFixture) -> None:
    shared = Descriptors(3)
    one, two = Admission("one", 10, shared), Admission("two", 10, shared)
    slots = [one.admit("p"), one.admit("p"), two.admit("p")]
    assert None not in slots
    with caplog.at_level(logging.WARNING):
        assert [two.admit("p"), one.admit("p")] == [None, None]
    assert len(caplog.records) == 1  # said once
    assert "LimitNOFILE" in caplog.text


def test_a_tenth_of_the_files_and_at_least_100_are_kept() -> None:
    assert descriptors.connections_within(1024) == 922
    assert descriptors.connections_within(256) == 156
    assert descriptors.connections_within(100_000) == 90_000
    assert descriptors.connections_within(50) == 1


@pytest.mark.parametrize(
    ("limits", "raised", "now"),
    [
        ((1024, 4096), (4096, 4096), 4096),
        ((4096, 4096), None, 4096),
        ((1024, resource.RLIM_INFINITY), (4_000_000, resource.RLIM_INFINITY), 4_000_000),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None, 4_000_000),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one(
    monkeypatch: pytest.MonkeyPatch,
    limits: tuple[int, int],
    raised: tuple[int, int] | None,
    now: int,
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: set_to.append(wanted))
    assert descriptors.raise_limit() == now
    assert set_to == ([raised] if raised else [])


def test_a_limit_that_cannot_be_raised_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int, wanted: tuple[int, int]) -> None:
        raise ValueError(wanted)

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert descriptors.raise_limit() == 256


def test_a_limit_below_max_connections_is_said_at_the_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    with caplog.at_level(logging.WARNING):
        assert descriptors.prepare_descriptors(Settings()).connections_max == 922
    assert "the limit of open files is 1024: at most 922 connections" in caplog.text


def test_a_place_goes_to_the_address_that_left_it() -> None:
    """Others that knock do not take it away from who closes and comes back."""

    async def scene() -> tuple[bool, int]:
        admission = Admission("a", 2, Descriptors(100))
        admission.admit("stays", "192.0.2.1")
        leaves = admission.admit("leaves", "192.0.2.2")
        assert leaves is not None
        knocking = [
            asyncio.create_task(admission.wait("x", f"198.51.100.{number}"))
            for number in range(1, 40)
        ]
        returns = asyncio.create_task(admission.wait("leaves", "192.0.2.2"))
        await asyncio.sleep(0)
        leaves.release()
        got_in = await returns is not None
        for task in knocking:
            task.cancel()
        await asyncio.gather(*knocking, return_exceptions=True)
        return got_in, admission.open_count

    assert asyncio.run(scene()) == (True, 2)


def test_a_client_cut_off_while_it_waits_leaves_no_place_taken() -> None:
    async def scene() -> int:
        shared = Descriptors(100)
        admission = Admission("a", 1, shared)
        first = admission.admit("p")
        assert first is not None
        waiting = asyncio.create_task(admission.wait("p", None))
        await asyncio.sleep(0)
        first.release()  # it has the slot now, and does not know
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return admission.open_count + shared.open_count

    assert asyncio.run(scene()) == 0


def test_few_wait_and_the_oldest_of_them_is_refused_for_the_newest() -> None:
    async def scene() -> tuple[list[bool], int]:
        admission = Admission("a", 1, Descriptors(100))
        assert admission.admit("p") is not None
        waiting = [asyncio.create_task(admission.wait("p", None)) for _ in range(WAITING_MAX + 2)]
        for _ in range(3):  # each begins, those that are refused are told, and end
            await asyncio.sleep(0)
        done = [task.done() for task in waiting]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return done, admission.refused

    done, refused = asyncio.run(scene())
    assert done == [True, True, *[False] * WAITING_MAX]
    assert refused == 2


def test_a_place_that_became_free_before_anybody_waited_is_taken_at_once() -> None:
    async def scene() -> bool:
        admission = Admission("a", 1, Descriptors(100))
        first = admission.admit("p")
        assert first is not None
        assert admission.admit("p") is None
        first.release()
        waiting = asyncio.create_task(admission.wait("p", None))
        await asyncio.sleep(0)
        return waiting.done() and waiting.result() is not None

    assert asyncio.run(scene())
