"""Publishing of staged rows: the control requests ``Publish`` and ``Abandon``.

::

      Publish ─▶ decided (a rename, synced) ─▶ piece by piece into the router ─▶ done ─▶ forgotten
         │                 ▲                      │ each with its position, in one commit
         │                 ╰── the broker starts: what was decided goes on where its position is
         ╰─ done before ─▶ answered as done

1. A decided batch will be published, once, whatever crashes: the decision is on disk before the
   first row is routed, the position moves with the rows (``engine.publishing.sink_positions``), and
   the files stay until the position is beyond the batch, on disk.
2. ``Publish`` may be asked again at any time; the answer, how far the set is, comes within
   ``ANSWER_S_MAX``.
3. The event loop is held up less than by one client: a turn publishes a part of one client's share,
   files are read in a thread, a piece at a time, and a piece is on disk before the next one, of
   whichever sink, begins.

A sink that gets an owner (``staging.owned_sink_name``) goes on where it was without one: its query
may repeat a batch that was published under the name it had before.

A sink's batches are published in their order, those of different sinks in turn. Where a queue that
rejects is full, or the store cannot write, a set waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, final

from penstock.control.client import Abandon, Publish, PublishProgress
from penstock.engine.clock import MICROSECONDS
from penstock.engine.publishing.sink_positions import Row
from penstock.engine.server.server import Server
from penstock.errors import StoreError
from penstock.runtime.driver import Driver
from penstock.services.staged_copies import StagedCopies
from penstock.store.staging import RowSet, Staging, sink_name_without_owner
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

ANSWER_S_MAX: Final = 2.0
PIECE_ROWS_MAX: Final = 2048
PIECE_BYTES_MAX: Final = 1_048_576  # and one row
_RETRY_S: Final = 0.1  # whether there is room
_SWEEP_S: Final = 600.0

Result = TypeVar("Result")


@final
class StagedRowsPublisher:
    """Publishes staged rows.

    Args:
        server: the engine.
        driver: runs it.
        staging: the staging area with the rows.
        expiry_s: how long rows that are not decided are kept, seconds; 0 = for ever.
        copies: keeps what is decided for the other members of a cluster; None: there are none.
    """

    def __init__(
        self,
        server: Server,
        driver: Driver,
        staging: Staging,
        expiry_s: float,
        copies: StagedCopies | None = None,
    ) -> None:
        self._copies = copies
        self._positions = server.sink_positions
        self._context = server.context
        self._driver = driver
        self._staging = staging
        self._expiry_s = expiry_s
        self._lead_us = driver.now().lead_us
        self._decided: dict[tuple[str, int], RowSet] = {}  # and not finished
        self._at_work: dict[str, asyncio.Task[None]] = {}  # by sink
        self._deciding = asyncio.Lock()  # or removing
        self._piece = asyncio.Lock()
        self._sweeping: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._is_begun = copies is None
        self._beginning: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Continue to publish the batches that were decided in an earlier run.

        A member of a cluster first takes the rows out of the log, beside all else: its clients do
        not wait for that.
        """
        if self._is_begun:
            self._continue_decided()
        else:
            self._beginning = asyncio.create_task(self._begin_soon(), name="staged rows")
        self._sweeping = asyncio.create_task(self._sweep_forever(), name="staging area")

    async def _begin_soon(self) -> None:
        try:
            await self._begin()
        except StoreError as error:
            logger.error("decided rows wait for the next request of a sink: %s", error)

    async def _begin(self) -> None:
        """Restore the decided batches from the replicated log into the staging area and continue
        to publish them; do nothing once that is done.

        Raises:
            StoreError: it cannot be read or written.
        """
        if self._is_begun:
            return
        async with self._deciding:
            if not self._is_begun:
                assert self._copies is not None
                await _in_thread(self._copies.restore)
                self._is_begun = True
                self._continue_decided()

    def _continue_decided(self) -> None:
        for row_set in self._staging.decided_batches():
            self._decided[row_set.sink, row_set.batch] = row_set
            self._positions.renew(row_set.sink, self._driver.now())
            logger.info("going on with batch %d of the sink %s", row_set.batch, row_set.sink)
        for sink in {sink for sink, _ in self._decided}:
            self._work(sink)

    async def stop(self) -> None:
        """Stop publishing; the next run continues."""
        self._is_stopped = True
        if self._beginning is not None:
            await self._beginning  # its thread uses the store
        tasks = [*self._at_work.values()]
        if self._sweeping is not None:
            tasks.append(self._sweeping)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def publish(self, request: Publish) -> PublishProgress:
        """Publish a set of rows; return how far it is after a while.

        Raises:
            StoreError: it is not decided, and why; or it is, and cannot be read.
        """
        sink, batch = request.sink, request.batch
        await self._begin()
        if not await self._continue_without_owner(sink):
            return PublishProgress(False)
        async with self._deciding:
            if (sink, batch) not in self._decided:
                if self._positions.is_done(sink, batch):
                    latest = self._positions.latest(sink)
                    return PublishProgress(True, later=latest if latest > batch else 0)
                if not self._positions.has_room(sink):
                    raise StoreError(
                        "there is no room for one more sink: durability.producers_max or"
                        " durability.producers_per_user_max are reached"
                    )
                self._decided[sink, batch] = await _in_thread(
                    partial(self._decide, sink, batch, request.proposal)
                )
        if self._is_stopped:  # a repeated request will find the next run
            return PublishProgress(False, self._positions.rows_done(sink, batch))
        at_work = self._work(sink)
        await asyncio.wait((at_work,), timeout=ANSWER_S_MAX)
        row_set = self._decided.get((sink, batch))
        if row_set is None:
            return PublishProgress(True)
        if at_work.done() and not at_work.cancelled():
            at_work.result()  # raises what went wrong
        return PublishProgress(False, self._positions.rows_done(sink, batch))

    async def abandon(self, request: Abandon) -> PublishProgress:
        """Remove the rows of an attempt, if it is not decided; return whether the batch is done."""
        await self._begin()
        await self._continue_without_owner(request.sink)
        async with self._deciding:
            if (request.sink, request.batch) not in self._decided:
                await _in_thread(
                    partial(self._staging.discard_attempt, request.sink, request.batch, request.run)
                )
        return PublishProgress(self._is_done(request.sink, request.batch))

    def _decide(self, sink: str, batch: int, proposal: str) -> RowSet:
        row_set = self._staging.decide(sink, batch, proposal)
        if self._copies is not None:
            self._copies.keep(row_set)
        return row_set

    def _forget(self, sink: str, batch: int) -> None:
        if self._copies is not None:
            self._copies.drop(sink, batch)
        self._staging.remove_batch(sink, batch)

    def _is_done(self, sink: str, batch: int) -> bool:
        return (sink, batch) not in self._decided and self._positions.is_done(sink, batch)

    async def _continue_without_owner(self, sink: str) -> bool:
        """Give a sink with an owner the position that it had under its name without one.

        Return False while a batch is still being published under that name: try again.
        """
        before = sink_name_without_owner(sink)
        if not before or self._positions.latest(sink) >= 0 or not self._positions.has_room(sink):
            return True
        if self._has_decided(before) and not self._is_stopped:
            at_work = self._work(before)
            await asyncio.wait((at_work,), timeout=ANSWER_S_MAX)
            if at_work.done() and not at_work.cancelled():
                at_work.result()  # raises what went wrong
        if self._has_decided(before):
            return False
        async with self._deciding:
            if not self._has_decided(sink):  # else it began without
                self._positions.continue_from(sink, before, self._driver.now_of_turn())
                self._driver.end_turn_soon()
        return True

    def _has_decided(self, sink: str) -> bool:
        return any(name == sink for name, _ in self._decided)

    # -- publishing --------------------------------------------------------------------

    def _work(self, sink: str) -> asyncio.Task[None]:
        """Return the task that publishes the decided batches of ``sink``; start it if there is
        none."""
        task = self._at_work.get(sink)
        if task is None or task.done():
            task = asyncio.create_task(self._publish_all(sink), name=f"sink {sink}")
            task.add_done_callback(lambda done: self._ended(sink, done))
            self._at_work[sink] = task
        return task

    def _ended(self, sink: str, task: asyncio.Task[None]) -> None:
        if self._at_work.get(sink) is task:
            del self._at_work[sink]
        if not task.cancelled() and task.exception() is not None:
            why = task.exception()
            logger.error(
                "publishing of the sink %s stopped, and goes on with its next request: %s",
                sink,
                why,
            )

    async def _publish_all(self, sink: str) -> None:
        while batches := [batch for name, batch in self._decided if name == sink]:
            await self._publish_set(self._decided[sink, min(batches)])

    async def _publish_set(self, row_set: RowSet) -> None:
        positions, sink, batch = self._positions, row_set.sink, row_set.batch
        if not positions.is_done(sink, batch):
            at = positions.rows_done(sink, batch)
            for file in row_set.files:
                while at < file.rows:
                    reading = partial(self._staging.read, row_set, file, at, PIECE_ROWS_MAX)
                    rows = await _in_thread(reading)
                    await self._publish_rows(row_set, rows)
                    at += len(rows)
                at -= file.rows
            positions.finish(sink, batch, self._driver.now_of_turn())
        await self._driver.wait_durable()
        async with self._deciding:
            await _in_thread(partial(self._forget, sink, batch))
            del self._decided[sink, batch]
        logger.info("published batch %d of the sink %s: %d rows", batch, sink, row_set.rows)

    async def _publish_rows(self, row_set: RowSet, rows: list[Row]) -> None:
        at = 0
        while at < len(rows):
            async with self._piece:
                end = _end_of_piece(rows, at)
                published = await self._publish_piece(row_set, rows[at:end])
            assert 0 <= published <= end - at, "a piece is published as far as there is room"
            at += published
            if published == 0:
                await asyncio.sleep(_RETRY_S)

    async def _publish_piece(self, row_set: RowSet, rows: list[Row]) -> int:
        """Publish rows as far as there is room; return how many are published, and on disk."""
        at = 0
        while at < len(rows):
            count = self._positions.publish(
                row_set.sink, row_set.batch, row_set.client_id, rows, at, self._driver.now_of_turn()
            )
            if count == 0:
                break
            at += count
            self._driver.end_turn_soon()
            await asyncio.sleep(0)  # the others' turn
            if self._context.store.is_full():
                break
        await self._driver.wait_durable()
        return at

    # -- the time limit ----------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        while self._expiry_s > 0:
            now = self._driver.now()
            # Files are dated by the wall clock: by the one that was behind most nothing goes early.
            self._lead_us = min(self._lead_us, now.lead_us)
            before_s = (now.steady_us + self._lead_us) / MICROSECONDS - self._expiry_s
            async with self._deciding:
                removed = await _in_thread(partial(self._staging.remove_expired, before_s))
            if removed:
                logger.info("removed %d staged files that were never published", removed)
            await asyncio.sleep(min(_SWEEP_S, self._expiry_s))


def _end_of_piece(rows: list[Row], first: int) -> int:
    """Return the end of the piece that begins with row ``first``."""
    at = first
    size_bytes = 0
    while at < len(rows) and size_bytes < PIECE_BYTES_MAX:
        topic, payload, _, _, properties = rows[at]
        size_bytes += len(topic) + len(payload) + len(properties)
        at += 1
    return at


async def _in_thread(call: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(None, call)
