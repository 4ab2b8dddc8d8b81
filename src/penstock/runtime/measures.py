"""Measurements of the driver's own work: commits, the loop's turns, how late its timer runs.

::

      seal ──────────────────────▶ committed        commit_s: what an acknowledgement waits for
            ╰─ store.commit ─╯                      write_s: the synced write, on its thread
      tick due ──▶ tick runs                        loop_lag_s: four times a second
      first input ──▶ end of turn                   slow_turns: longer than ``SLOW_TURN_S``

A commit is counted once, a turn costs one comparison. The worst of each is kept with its cause
until somebody takes it (``take_worst``), for a warning.
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
class WorstDelays:
    """The longest delays since ``take_worst`` was called last, each with its cause.

    Attributes:
        lag_s: seconds by which the timer ran late; 0 if it never did.
        lag_cpu_s: seconds of the processor that the loop's thread had from one timer to that one.
        read_s: seconds of handling what one socket had; 0 if none took ``SLOW_TURN_S``.
        read_client: the name of the client that sent it.
        encoding_s: seconds of encoding a commit on the loop; 0 if none took ``SLOW_TURN_S``.
        encoding_messages: messages in that commit.
        commit_s: seconds from sealing a batch until it was durable.
        commit_write_s: seconds of that which the synced write took.
        commit_messages: messages in it.
        commit_bytes: its size, about.
    """

    def __init__(self) -> None:
        self.lag_s = 0.0
        self.lag_cpu_s = 0.0
        self.read_s = 0.0
        self.read_client = ""
        self.encoding_s = 0.0
        self.encoding_messages = 0
        self.commit_s = 0.0
        self.commit_write_s = 0.0
        self.commit_messages = 0
        self.commit_bytes = 0


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
        self._worst = WorstDelays()
        self._sealed_messages = 0
        self._sealed_bytes = 0
        self._sealed_outages = 0

    def take_worst(self) -> WorstDelays:
        """Return the longest delays since the last call, and begin anew."""
        worst = self._worst
        self._worst = WorstDelays()
        return worst

    def ticked(self, lag_s: float, cpu_s: float) -> None:
        """Count a run of the timer.

        Args:
            lag_s: how late it was, seconds.
            cpu_s: seconds of the processor that the loop's thread had since the run before.
        """
        self.loop_lag_s.count(lag_s)
        if lag_s > self._worst.lag_s:
            self._worst.lag_s = lag_s
            self._worst.lag_cpu_s = cpu_s

    def read_was_slow(self, client: str, took_s: float) -> None:
        """Note that handling the bytes of ``client`` took longer than ``SLOW_TURN_S``."""
        if took_s > self._worst.read_s:
            self._worst.read_s = took_s
            self._worst.read_client = client

    def encoding_was_slow(self, took_s: float) -> None:
        """Note that encoding the batch sealed last took longer than ``SLOW_TURN_S``."""
        if took_s > self._worst.encoding_s:
            self._worst.encoding_s = took_s
            self._worst.encoding_messages = self._sealed_messages

    def sealed(self, messages: int, size_bytes: int) -> None:
        """Count a batch that is to be written."""
        self.commit_messages.count(messages)
        self.commit_bytes.count(size_bytes)
        self._sealed_messages = messages
        self._sealed_bytes = size_bytes
        self._sealed_outages = self.outages

    def committed(self, took_s: float, write_s: float) -> None:
        """Count a commit that is durable, ``took_s`` after it was sealed."""
        self.commit_s.count(took_s)
        self.write_s.count(write_s)
        worst = self._worst
        if took_s > worst.commit_s and self.outages == self._sealed_outages:  # else it was logged
            worst.commit_s = took_s
            worst.commit_write_s = write_s
            worst.commit_messages = self._sealed_messages
            worst.commit_bytes = self._sealed_bytes

    def turn_was_slow(self, took_s: float) -> None:
        """Count a turn longer than ``SLOW_TURN_S``."""
        self.slow_turns += 1
        self.slow_turns_s += took_s
