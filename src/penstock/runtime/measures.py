"""Measurements of the driver's own work: commits, the loop's turns, how late its timer runs.

::

      seal ──────────────────────▶ committed        commit_s: what an acknowledgement waits for
            ╰─ store.commit ─╯                      write_s: the synced write, on its thread
      tick due ──▶ tick runs                        loop_lag_s: four times a second
      first input ──▶ end of turn                   slow_turns: longer than ``SLOW_TURN_S``

A commit is counted once, a turn costs one comparison.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.reporting.histogram import Histogram

SLOW_TURN_S: Final = 0.1
"""A turn of the loop beyond this is counted as slow: a portion of work should take 20 ms."""

SECONDS: Final = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
MESSAGES: Final = (0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
BYTES: Final = (256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 16_777_216.0)


@final
class LoopMeasures:
    """The measurements of one driver since the broker started.

    Attributes:
        commit_s: seconds from sealing a batch until it is durable, by commit.
        write_s: seconds of the store's synced write, by commit.
        commit_messages: messages that a commit appends to the log.
        commit_bytes: bytes of a batch, about.
        loop_lag_s: seconds by which the driver's timer ran late.
        slow_turns: turns longer than ``SLOW_TURN_S``.
        slow_turns_s: seconds that those took.
        outages: how often the store could not write any more.
    """

    def __init__(self) -> None:
        self.commit_s = Histogram(SECONDS)
        self.write_s = Histogram(SECONDS)
        self.commit_messages = Histogram(MESSAGES)
        self.commit_bytes = Histogram(BYTES)
        self.loop_lag_s = Histogram(SECONDS)
        self.slow_turns = 0
        self.slow_turns_s = 0.0
        self.outages = 0

    def sealed(self, messages: int, size_bytes: int) -> None:
        """Count a batch that is to be written."""
        self.commit_messages.count(messages)
        self.commit_bytes.count(size_bytes)

    def committed(self, took_s: float, write_s: float) -> None:
        """Count a commit that is durable, ``took_s`` after it was sealed."""
        self.commit_s.count(took_s)
        self.write_s.count(write_s)

    def turn_was_slow(self, took_s: float) -> None:
        """Count a turn longer than ``SLOW_TURN_S``."""
        self.slow_turns += 1
        self.slow_turns_s += took_s
