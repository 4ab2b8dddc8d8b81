"""A read of the log that fails is told, with whom it concerns, and tried again."""

import asyncio
import logging

import pytest

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.reporting.drop_counts import Drops
from penstock.engine.session.session import Session
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.engine.values.message import Message
from penstock.errors import StoreUnavailable
from penstock.runtime.bodies import BodyReader
from tests.support.deadline import DEADLINE_S

OFFSETS = [41, 45]


class ShakyLog:
    """A log whose first reads fail."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.reads: list[list[int]] = []

    def read(self, offsets: list[int]) -> dict[int, Message]:
        self.reads.append(offsets)
        if len(self.reads) <= self.failures:
            raise StoreUnavailable("Corruption: block checksum mismatch")
        return {offset: Message("t", b"x", offset=offset) for offset in offsets}


def asking() -> Session:
    """A session that waits for bodies."""
    session = Session("pump-7", 1, 1, EngineContext(100), EngineLimits(), Drops())
    session.transmission.requested_offsets = OFFSETS
    return session


async def test_a_read_that_fails_is_told_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, supplied = ShakyLog(2), asyncio.Event()
    reader = BodyReader(log.read, lambda: Now(0.0, 0), supplied.set, retry_s=0.0)
    with caplog.at_level(logging.WARNING):
        reader.fetch(asking(), OFFSETS)
        await asyncio.wait_for(supplied.wait(), DEADLINE_S)
    assert log.reads == [OFFSETS] * 3
    (told,) = caplog.messages  # the second is like the first
    assert told.startswith(
        "messages that wait for client pump-7, offsets 41 to 45, cannot be read from the log;"
        " trying again: Corruption: block checksum mismatch;"
    )


async def test_a_body_in_memory_is_read_in_the_loop() -> None:
    log, supplied = ShakyLog(0), asyncio.Event()
    reader = BodyReader(log.read, lambda: Now(0.0, 0), supplied.set, blocks=False)
    reader.fetch(asking(), OFFSETS)
    await asyncio.sleep(0)
    assert log.reads == [OFFSETS]
    assert supplied.is_set()


async def test_one_that_fails_there_keeps_no_other_from_its_bodies() -> None:
    log, supplied = ShakyLog(1), asyncio.Event()
    failures: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: failures.append(context["exception"]))
    reader = BodyReader(log.read, lambda: Now(0.0, 0), supplied.set, blocks=False)
    reader.fetch(asking(), OFFSETS)
    reader.fetch(asking(), OFFSETS)
    await asyncio.sleep(0)
    assert [type(failure) for failure in failures] == [StoreUnavailable]
    assert supplied.is_set()


async def test_a_body_not_wanted_any_more_is_not_read() -> None:
    log = ShakyLog(0)
    reader = BodyReader(log.read, lambda: Now(0.0, 0), lambda: None)
    reader.fetch(asking(), [41])
    assert log.reads == []


async def test_a_broker_that_ends_does_not_try_again(caplog: pytest.LogCaptureFixture) -> None:
    log = ShakyLog(9)
    reader = BodyReader(log.read, lambda: Now(0.0, 0), lambda: None, retry_s=0.0)
    reader.fetch(asking(), OFFSETS)
    reader.stop()
    async with asyncio.timeout(DEADLINE_S):
        while not caplog.messages:  # noqa: ASYNC110 - a log has no event
            await asyncio.sleep(0)
    for _ in range(3):  # where a second attempt would begin
        await asyncio.sleep(0)
    await asyncio.get_running_loop().shutdown_default_executor()
    assert log.reads == [OFFSETS]
