"""Publishing of staged rows: the control requests ``Publish`` and ``Abandon``.

::

      Publish ─▶ decided (a rename, synced) ─▶ piece by piece into the router ─▶ done ─▶ forgotten
         │                 ▲                      │ each piece with its position, in one commit
         │                 ╰── the broker starts: decided batches continue at their position
         ╰─ published before ─▶ answered as done

1. A decided batch will be published, once, whatever crashes: the decision is on disk before the
   first row is routed, the position moves with the rows (``engine.publishing.sink_positions``), and
   the files stay until the position beyond the batch is on disk.
2. A ``Publish`` request may be repeated at any time; its answer, with the number of rows published
   so far, is sent within ``ANSWER_S_MAX``.
3. Publishing delays the event loop less than one client does: a turn publishes a part of one
   client's share, a thread reads the files, a piece at a time, and a piece is on disk before the
   next piece of any sink begins.

A sink that gets an owner (``staging.owned_sink_name``) continues at the position that it had
without an owner: its query may repeat a batch that was published under the former name.

The batches of a sink are published in their order, those of different sinks in turn. While a queue
that rejects messages is full, or the store cannot write, a batch waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, final

from penstock.control.client import Abandon, Publish, PublishProgress
from penstock.engine.api import Server
from penstock.engine.values.clock import MICROSECONDS
from penstock.engine.values.sink_batches import (
    GAP,
    NEXT,
    OTHER_PAST,
    REPEATED,
    REPLANNED,
    SET_BACK,
    UNKNOWN,
    Row,
    judge_batch,
)
from penstock.errors import StoreError
from penstock.runtime.driver import Driver
from penstock.services.staged_copies import StagedCopies
from penstock.store.staging import StagedBatch, Staging, sink_name_without_owner
from penstock.telemetry.logs import get_logger

logger = get_logger(__name__)

ANSWER_S_MAX: Final = 2.0
PIECE_ROWS_MAX: Final = 2048
PIECE_BYTES_MAX: Final = 1_048_576  # the last row of a piece may exceed it
_RETRY_S: Final = 0.1  # between two attempts to publish while there is no room
_SWEEP_S: Final = 600.0

_NEW_CHECKPOINT: Final = (
    "start the query with a new checkpoint, and say with startingOffsets where it continues"
)
_ROWS_GONE: Final = (
    "of batch {batch} of this query {rows} rows are published, and its staged rows are gone: the"
    " directory staged in the broker's data directory was removed, or is of an older copy; it is"
    f" not known which rows are missing: {_NEW_CHECKPOINT}"
)
_REFUSALS: Final = {
    REPLANNED: (
        "the broker has published batch {batch} of this query, and Spark has planned another batch"
        " {batch}: its checkpoint was put back from an older copy, or two queries use it, and it is"
        f" not known which rows are published: {_NEW_CHECKPOINT}"
    ),
    UNKNOWN: (
        "the broker knows no batch of this query, and Spark runs batch {batch}: the broker's data"
        " directory is an older copy or that of another broker, or the query was silent for longer"
        " than the broker remembers sinks; start it with a new checkpoint to publish again what its"
        " sources still have, or once with failOnDataLoss false to continue with batch {batch}"
    ),
    GAP: (
        "the broker has published the batches of this query up to {latest}, and Spark runs batch"
        " {batch}: the broker's data directory was put back from an older copy; to publish the"
        " batches from {next} on again, stop the query and remove the files offsets/N and commits/N"
        " with N from {next} on from its checkpoint; to continue without them, start the query once"
        " with failOnDataLoss false"
    ),
    OTHER_PAST: (
        "the broker has published another batch {latest} of this query than the one before Spark's"
        " batch {batch}: the broker's data directory or the query's checkpoint was put back from an"
        f" older copy; {_NEW_CHECKPOINT}, or start the query once with failOnDataLoss false to"
        " continue with batch {batch}"
    ),
}

Result = TypeVar("Result")


@final
class StagedRowsPublisher:
    """Publishes staged rows.

    Args:
        server: the broker's engine.
        driver: the driver that runs the engine.
        staging: the staging area with the rows.
        expiry_s: seconds after which rows that are not decided are removed; 0 = never.
        copies: replicates decided batches to the other members of a cluster; None without a
            cluster.
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
        self._decided: dict[tuple[str, int], StagedBatch] = {}  # and not finished
        self._publish_tasks: dict[str, asyncio.Task[None]] = {}  # by sink
        self._decision_lock = asyncio.Lock()  # held while a batch is decided or removed
        self._piece_lock = asyncio.Lock()
        self._sweep_task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._is_restored = copies is None
        self._restore_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Continue to publish the batches that were decided in an earlier run.

        A member of a cluster restores the rows from the log first, in a task of its own: clients do
        not wait for it.
        """
        if self._is_restored:
            self._continue_decided()
        else:
            self._restore_task = asyncio.create_task(self._restore_or_log(), name="staged rows")
        self._sweep_task = asyncio.create_task(self._sweep_forever(), name="staging area")

    async def _restore_or_log(self) -> None:
        """Restore the decided batches; log a failure."""
        try:
            await self._restore()
        except StoreError as error:
            logger.error("decided rows wait for the next request of a sink: %s", error)

    async def _restore(self) -> None:
        """Restore the decided batches from the replicated log into the staging area and continue
        to publish them; do nothing if they are restored already.

        Raises:
            StoreError: the log cannot be read, or the staging area cannot be written.
        """
        if self._is_restored:
            return
        async with self._decision_lock:
            if not self._is_restored:
                assert self._copies is not None
                await _in_thread(self._copies.restore)
                self._is_restored = True
                self._continue_decided()

    def _continue_decided(self) -> None:
        for staged_batch in self._staging.decided_batches():
            self._decided[staged_batch.sink, staged_batch.batch] = staged_batch
            self._positions.renew(staged_batch.sink, self._driver.now())
            logger.info("continuing batch %d of the sink %s", staged_batch.batch, staged_batch.sink)
        for sink in {sink for sink, _ in self._decided}:
            self._ensure_task(sink)

    async def stop(self) -> None:
        """Stop publishing; the next run continues."""
        self._is_stopped = True
        if self._restore_task is not None:
            await self._restore_task  # its thread uses the store
        tasks = [*self._publish_tasks.values()]
        if self._sweep_task is not None:
            tasks.append(self._sweep_task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def publish(self, request: Publish) -> PublishProgress:
        """Decide a batch and publish its rows; return after ``ANSWER_S_MAX`` at the latest whether
        it is done, and how many rows are published.

        Raises:
            StoreError: the batch cannot be decided, or its rows cannot be read.
        """
        sink, batch = request.sink, request.batch
        await self._restore()
        if not await self._inherit_position(sink):
            return PublishProgress(False)
        async with self._decision_lock:
            latest, verdict = self._judge(request)
            if verdict == SET_BACK:
                return PublishProgress(True, later=latest)
            if verdict == REPLANNED or (
                verdict in (UNKNOWN, GAP, OTHER_PAST) and not request.accepts_loss
            ):
                return PublishProgress(False, refusal=refusal_text(verdict, latest, batch))
            if (sink, batch) not in self._decided:
                if self._positions.is_published(sink, batch):
                    return PublishProgress(True)
                if rows := self._positions.rows_published(sink, batch):
                    return PublishProgress(
                        False, rows, refusal=_ROWS_GONE.format(batch=batch, rows=rows)
                    )
                if verdict != NEXT:
                    assert verdict != REPEATED, "a repeated batch is decided, or published"
                    logger.warning("%s: that is accepted", refusal_text(verdict, latest, batch))
                if not self._positions.has_room(sink):
                    raise StoreError(
                        "there is no room for one more sink: durability.producers_max or"
                        " durability.producers_per_user_max are reached"
                    )
                self._decided[sink, batch] = await _in_thread(
                    partial(self._decide, sink, batch, request.proposal)
                )
        if self._is_stopped:  # a repeated request is answered by the next run
            return PublishProgress(False, self._positions.rows_published(sink, batch))
        task = self._ensure_task(sink)
        await asyncio.wait((task,), timeout=ANSWER_S_MAX)
        staged_batch = self._decided.get((sink, batch))
        if staged_batch is None:
            return PublishProgress(True)
        if task.done() and not task.cancelled():
            task.result()  # raises the failure
        return PublishProgress(False, self._positions.rows_published(sink, batch))

    async def abandon(self, request: Abandon) -> PublishProgress:
        """Remove the rows of an attempt if its batch is not decided; return whether the batch is
        done."""
        await self._restore()
        await self._inherit_position(request.sink)
        async with self._decision_lock:
            if (request.sink, request.batch) not in self._decided:
                await _in_thread(
                    partial(self._staging.discard_attempt, request.sink, request.batch, request.run)
                )
        return PublishProgress(self._is_done(request.sink, request.batch))

    def _judge(self, request: Publish) -> tuple[int, int]:
        """Return the latest batch of the request's sink, published or decided, and the verdict on
        the requested one."""
        sink = request.sink
        decided = [batch for name, batch in self._decided if name == sink]
        latest, plan = self._positions.latest(sink), self._positions.latest_plan(sink)
        if decided and max(decided) >= latest:
            latest = max(decided)
            plan = self._decided[sink, latest].plan
        if request.batch in decided and request.batch < latest:
            return latest, REPEATED
        return latest, judge_batch(latest, plan, request.batch, request.plan, request.previous)

    def _decide(self, sink: str, batch: int, proposal: str) -> StagedBatch:
        staged_batch = self._staging.decide(sink, batch, proposal)
        if self._copies is not None:
            self._copies.replicate(staged_batch)
        return staged_batch

    def _forget(self, sink: str, batch: int) -> None:
        if self._copies is not None:
            self._copies.remove(sink, batch)
        self._staging.remove_batch(sink, batch)

    def _is_done(self, sink: str, batch: int) -> bool:
        return (sink, batch) not in self._decided and self._positions.is_published(sink, batch)

    async def _inherit_position(self, sink: str) -> bool:
        """Give a sink with an owner the position that it had under its name without an owner.

        Return False while a batch is being published under that name; the caller tries again.
        """
        before = sink_name_without_owner(sink)
        if not before or self._positions.latest(sink) >= 0 or not self._positions.has_room(sink):
            return True
        if self._has_decided(before) and not self._is_stopped:
            task = self._ensure_task(before)
            await asyncio.wait((task,), timeout=ANSWER_S_MAX)
            if task.done() and not task.cancelled():
                task.result()  # raises the failure
        if self._has_decided(before):
            return False
        async with self._decision_lock:
            if not self._has_decided(sink):  # else it has a position of its own
                self._positions.continue_from(sink, before, self._driver.now_of_turn())
                self._driver.end_turn_soon()
        return True

    def _has_decided(self, sink: str) -> bool:
        return any(name == sink for name, _ in self._decided)

    # -- publishing --------------------------------------------------------------------

    def _ensure_task(self, sink: str) -> asyncio.Task[None]:
        """Return the task that publishes the decided batches of ``sink``; start it if there is
        none."""
        task = self._publish_tasks.get(sink)
        if task is None or task.done():
            task = asyncio.create_task(self._publish_all(sink), name=f"sink {sink}")
            task.add_done_callback(lambda done: self._end_task(sink, done))
            self._publish_tasks[sink] = task
        return task

    def _end_task(self, sink: str, task: asyncio.Task[None]) -> None:
        if self._publish_tasks.get(sink) is task:
            del self._publish_tasks[sink]
        if not task.cancelled() and task.exception() is not None:
            logger.error(
                "publishing of the sink %s stopped, and continues with its next request: %s",
                sink,
                task.exception(),
            )

    async def _publish_all(self, sink: str) -> None:
        while batches := [batch for name, batch in self._decided if name == sink]:
            await self._publish_batch(self._decided[sink, min(batches)])

    async def _publish_batch(self, staged_batch: StagedBatch) -> None:
        positions, sink, batch = self._positions, staged_batch.sink, staged_batch.batch
        if not positions.is_published(sink, batch):
            at = positions.rows_published(sink, batch)
            for file in staged_batch.files:
                while at < file.rows:
                    reading = partial(self._staging.read, staged_batch, file, at, PIECE_ROWS_MAX)
                    rows = await _in_thread(reading)
                    await self._publish_rows(staged_batch, rows)
                    at += len(rows)
                at -= file.rows
            positions.finish(sink, batch, staged_batch.plan, self._driver.now_of_turn())
        await self._driver.wait_durable()
        async with self._decision_lock:
            await _in_thread(partial(self._forget, sink, batch))
            del self._decided[sink, batch]
        logger.info("published batch %d of the sink %s: %d rows", batch, sink, staged_batch.rows)

    async def _publish_rows(self, staged_batch: StagedBatch, rows: list[Row]) -> None:
        at = 0
        while at < len(rows):
            async with self._piece_lock:
                end = _end_of_piece(rows, at)
                published = await self._publish_piece(staged_batch, rows[at:end])
            assert 0 <= published <= end - at, "a piece is published as far as there is room"
            at += published
            if published == 0:
                await asyncio.sleep(_RETRY_S)

    async def _publish_piece(self, staged_batch: StagedBatch, rows: list[Row]) -> int:
        """Publish rows as far as there is room; return how many, once they are on disk."""
        at = 0
        while at < len(rows):
            count = self._positions.publish(
                staged_batch.sink,
                staged_batch.batch,
                staged_batch.plan,
                staged_batch.client_id,
                rows,
                at,
                self._driver.now_of_turn(),
            )
            if count == 0:
                break
            at += count
            self._driver.end_turn_soon()
            await asyncio.sleep(0)  # serves clients
            if self._context.is_full():
                break
        await self._driver.wait_durable()
        return at

    # -- expiry ------------------------------------------------------------------------

    async def _sweep_forever(self) -> None:
        while self._expiry_s > 0:
            now = self._driver.now()
            # Times of files are of the wall clock; with its smallest lead so far, no jump of the
            # clock makes a file expire too early.
            self._lead_us = min(self._lead_us, now.lead_us)
            before_s = (now.steady_us + self._lead_us) / MICROSECONDS - self._expiry_s
            async with self._decision_lock:
                removed = await _in_thread(partial(self._staging.remove_expired, before_s))
            if removed:
                logger.info("removed %d staged files that were never published", removed)
            await asyncio.sleep(min(_SWEEP_S, self._expiry_s))


def _end_of_piece(rows: list[Row], first: int) -> int:
    """Return the index after the last row of the piece that begins with row ``first``."""
    at = first
    size_bytes = 0
    while at < len(rows) and size_bytes < PIECE_BYTES_MAX:
        topic, payload, _, _, properties = rows[at]
        size_bytes += len(topic) + len(payload) + len(properties)
        at += 1
    return at


def refusal_text(verdict: int, latest: int, batch: int) -> str:
    """Return why a batch is not published, and what to do, in one sentence.

    Args:
        verdict: the verdict on the batch, one of ``_REFUSALS``.
        latest: the latest batch of the sink; -1 if there is none.
        batch: the number of the batch.
    """
    return _REFUSALS[verdict].format(latest=latest, batch=batch, next=latest + 1)


async def _in_thread(call: Callable[[], Result]) -> Result:
    return await asyncio.get_running_loop().run_in_executor(None, call)
