"""Batches of rows that Spark publishes, each whole and exactly once, some rows in each turn.

A *sink* publishes numbered *batches*; a batch is a list of rows that is on disk until it is
published (``store.staging``). The progress of a sink is one number that only grows::

      position = batch · 2^32 + number of its rows that are published

      (batch, 0) ─ some rows ─▶ (batch, n) ─ … ─▶ (batch, all) ── finish ──▶ (batch + 1, 0)

1. Rows are published in the order of the batch, and the position moves in the commit of the rows:
   no crash can separate the two. After a crash the log has as many rows as the position says.
2. A batch is *done* when the position is at the next one, or beyond: it is not published again.
3. Rows published in one turn are bounded by the work they make, as a client's packets are, and
   by a smaller share.

A position is stored like the number of a producer (``producers``), under a name that no client can
have, and expires like one.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from mypy_extensions import i64

from penstock.engine.batch.engine_context import EngineContext
from penstock.engine.clock import Now
from penstock.engine.message import Message
from penstock.engine.publishing.producers import Producers, ProducerSequence
from penstock.engine.routing.router import Router
from penstock.engine.work_budget import WORK_PER_PACKET, WORK_PER_TURN_MAX

# topic, payload, qos, retain, encoded properties
Row: TypeAlias = tuple[str, bytes, int, bool, bytes]

BATCH_MAX: Final = 2**31 - 2
ROWS_MAX: Final = 2**32 - 1  # rows of one batch

SHARE: Final = WORK_PER_TURN_MAX // 5  # part of a turn's work: clients come first

_SHIFT: Final = 32
_USER: Final = "$sinks"  # the user whose producers all sinks are
_SINK_PREFIX: Final = "\0"  # no MQTT string has it, so no producer's name [MQTT-1.5.4-2]


@final
class SinkPositions:
    """The positions of all sinks: how many rows of which batch are published.

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
        """Return whether the position of ``sink`` can be stored."""
        return self._producers.has_room(_USER, _SINK_PREFIX + sink)

    def is_done(self, sink: str, batch: int) -> bool:
        """Return whether all of ``batch`` is published, in the open batch or before."""
        return self._position(sink) >> _SHIFT > batch

    def rows_done(self, sink: str, batch: int) -> int:
        """Return how many rows of ``batch``, which is not done, are published."""
        position = self._position(sink)
        return position & ROWS_MAX if position >> _SHIFT == batch else 0

    def latest(self, sink: str) -> int:
        """Return the batch that the sink published last, or is publishing; -1 if it has none."""
        position = self._position(sink)
        batch = position >> _SHIFT
        return batch if position & ROWS_MAX else batch - 1

    def renew(self, sink: str, now: Now) -> None:
        """Renew the position of ``sink``, which has rows to publish, so that it does not expire
        meanwhile."""
        position = self._position(sink)
        if position > 0:
            self._move(sink, position >> _SHIFT, position & ROWS_MAX, now)

    def continue_from(self, sink: str, before: str, now: Now) -> None:
        """Give ``sink`` the position of the sink ``before``, if it has published nothing yet."""
        position = self._position(before)
        if position > self._position(sink) == 0:
            self._move(sink, position >> _SHIFT, position & ROWS_MAX, now)

    def publish(
        self, sink: str, batch: int, client_id: str, rows: list[Row], first: int, now: Now
    ) -> int:
        """Publish ``rows`` from ``first`` on, which follow the already published ones.

        It publishes at most the share of a turn, and stops where there is no room for a row now.

        Args:
            sink: the sink of the rows.
            batch: the batch of the rows.
            client_id: the client identifier that the log records as their publisher.
            rows: the next rows of the batch.
            first: index of the next row to publish.
            now: the time of the turn.

        Returns:
            How many were published.
        """
        context = self._context
        router = self._router
        work_budget = context.turn.work_budget
        before: i64 = work_budget.spent
        at = first
        while at < len(rows) and work_budget.spent - before < SHARE:
            if context.store.fails:
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
            work_budget.spent += WORK_PER_PACKET
            at += 1
        if at > first:
            self._move(sink, batch, self.rows_done(sink, batch) + at - first, now)
        return at - first

    def finish(self, sink: str, batch: int, now: Now) -> None:
        """Move the position to the next batch: all rows of ``batch`` are published."""
        self._move(sink, batch + 1, 0, now)

    def _position(self, sink: str) -> int:
        return self._producers.latest(_USER, _SINK_PREFIX + sink)

    def _move(self, sink: str, batch: int, rows: int, now: Now) -> None:
        number = ProducerSequence(_SINK_PREFIX + sink, batch << _SHIFT | rows)
        self._producers.published(_USER, number, now)
