"""Batches of rows that Spark publishes: each whole and exactly once, some rows in each turn.

A *sink* publishes numbered *batches*; a batch is a list of rows that is on disk until it is
published (``store.staging``). The progress of a sink is one number that only grows::

      position = batch · 2^32 + number of published rows of this batch

      (batch, 0) ─ some rows ─▶ (batch, n) ─ … ─▶ (batch, all) ── finish ──▶ (batch + 1, 0)

1. Rows are published in the order of the batch, and one commit stores the rows and the position,
   so that no crash can separate them: the log always has as many rows as the position says.
2. A batch is *done* when the position is at a later batch: it is not published again.
3. The rows published in one turn are limited by the work that they cost, like the packets of a
   client, but to a smaller share.

A position is stored like the number of a producer (``producers``), under a name that no client can
have, and expires like one.

``judge_batch`` says whether a batch is the next one, or which of the two ends was put back.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.publishing.producers import Producers
from penstock.engine.routing.router import Router
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.engine.values.producer_properties import ProducerSequence
from penstock.engine.values.sink_batches import ROWS_MAX, Row
from penstock.engine.work_budget import WORK_PER_PACKET, WORK_PER_TURN_MAX

SHARE: Final = WORK_PER_TURN_MAX // 5  # units of work in a turn: clients have precedence


_SHIFT: Final = 32
_USER: Final = "$sinks"  # the user of all sinks, as producers
_SINK_PREFIX: Final = "\0"  # no producer's name of a client may contain it [MQTT-1.5.4-2]


@final
class SinkPositions:
    """The positions of all sinks: the batch of each, and the number of its published rows.

    Args:
        context: the parts of the broker that it acts on.
        router: publishes the rows.
        producers: stores the positions.
    """

    def __init__(self, context: EngineContext, router: Router, producers: Producers) -> None:
        self._context = context
        self._router = router
        self._producers = producers

    def has_room(self, sink: str) -> bool:
        """Return whether the limits of producers allow to store the position of ``sink``."""
        return self._producers.has_room(_USER, _SINK_PREFIX + sink)

    def is_published(self, sink: str, batch: int) -> bool:
        """Return whether the whole of ``batch`` is published, in the open commit or before."""
        return self._position(sink) >> _SHIFT > batch

    def rows_published(self, sink: str, batch: int) -> int:
        """Return the number of published rows of ``batch``, which is not finished yet."""
        position = self._position(sink)
        return position & ROWS_MAX if position >> _SHIFT == batch else 0

    def latest(self, sink: str) -> int:
        """Return the batch of which the sink last published rows; -1 if there is none."""
        position = self._position(sink)
        batch = position >> _SHIFT
        return batch if position & ROWS_MAX else batch - 1

    def latest_plan(self, sink: str) -> str:
        """Return the plan of the ``latest`` batch; empty if it is not known."""
        return self._producers.latest_mark(_USER, _SINK_PREFIX + sink)

    def renew(self, sink: str, now: Now) -> None:
        """Store the position of ``sink`` again, so that it does not expire while rows wait to be
        published."""
        position = self._position(sink)
        if position > 0:
            self._store(sink, position, self.latest_plan(sink), now)

    def continue_from(self, sink: str, before: str, now: Now) -> None:
        """Set the position of ``sink``, if it has none yet, to that of the sink ``before``."""
        position = self._position(before)
        if position > self._position(sink) == 0:
            self._store(sink, position, self.latest_plan(before), now)

    def publish(
        self,
        sink: str,
        batch: int,
        plan: str,
        client_id: str,
        rows: list[Row],
        first: int,
        now: Now,
    ) -> int:
        """Publish ``rows`` from ``first`` on, which follow those published so far.

        At most ``SHARE`` units of work are done; a row for which there is no room ends the call.

        Args:
            sink: the sink of the rows.
            batch: the batch of the rows.
            plan: the plan of the batch; empty if it is not known.
            client_id: the client identifier that the log records as their publisher.
            rows: the next rows of the batch.
            first: index of the next row to publish.
            now: the time of the turn.

        Returns:
            The number of rows that were published.
        """
        context = self._context
        router = self._router
        work_budget = context.turn.work_budget
        before: i64 = work_budget.work_done
        at = first
        while at < len(rows) and work_budget.work_done - before < SHARE:
            if context.store_health.is_failing:
                break
            topic, payload, qos, retain, properties = rows[at]
            message = Message(
                topic,
                payload,
                qos,
                retain,
                client_id,
                now.wall_us,
                properties,
                lead_us=now.lead_us,
            )
            if router.publish_if_room(message, None, now) is not None:
                break
            work_budget.work_done += WORK_PER_PACKET
            at += 1
        if at > first:
            rows_published = self.rows_published(sink, batch) + at - first
            self._store(sink, batch << _SHIFT | rows_published, plan, now)
        return at - first

    def finish(self, sink: str, batch: int, plan: str, now: Now) -> None:
        """Move the position to the next batch: all rows of ``batch`` are published."""
        self._store(sink, (batch + 1) << _SHIFT, plan, now)

    def _position(self, sink: str) -> int:
        return self._producers.latest(_USER, _SINK_PREFIX + sink)

    def _store(self, sink: str, position: int, plan: str, now: Now) -> None:
        number = ProducerSequence(_SINK_PREFIX + sink, position, mark=plan)
        self._producers.record_published(_USER, number, now)
