"""Measurements of the driver's own work: commits, turns, and the lag of the event loop.

::

      seal ──────────────────────▶ committed        commit_s: the wait of an acknowledgement
            ╰─ store.commit ─╯                      write_s: the synced write, on its thread
      tick due ──▶ tick runs                        loop_lag_s: four times a second
      first input ──▶ end of turn                   slow_turns: longer than ``SLOW_TURN_S``

A commit is counted once, a turn costs one comparison. The longest delay of each kind is kept with
its cause until ``take_worst``, for a warning.
"""

from __future__ import annotations

from typing import Final, final

from penstock.telemetry.histogram import Histogram

SLOW_TURN_S: Final = 0.1
"""Duration in seconds above which a turn is counted as slow; a portion of work should take 20
ms."""

# Of these bounds mypyc would make tuples of a fixed length, which it takes for unset.
SECONDS: Final[tuple[float, ...]] = (
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
MESSAGES: Final[tuple[float, ...]] = (0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
BYTES: Final[tuple[float, ...]] = (
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    16_777_216.0,
)


@final
class WorstDelays:
    """The longest delays since the last ``take_worst``, each with its cause.

    Attributes:
        lag_s: seconds by which the timer ran late; 0 if it never did.
        lag_cpu_s: seconds of processor time that the loop's thread had since the timer before.
        read_s: seconds of handling the bytes of one read; 0 if none took ``SLOW_TURN_S``.
        read_client: the name of the client that sent those bytes.
        encoding_s: seconds of encoding a commit on the event loop; 0 if none took ``SLOW_TURN_S``.
        encoding_messages: the number of messages in that commit.
        commit_s: seconds from sealing a batch until it was durable.
        commit_write_s: seconds of the synced write of that batch.
        commit_messages: the number of messages in that batch.
        commit_bytes: the approximate size of that batch in bytes.
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
        commit_s: histogram of the seconds from sealing a batch until it is durable.
        write_s: histogram of the seconds of the store's synced write.
        commit_messages: histogram of the messages that a commit appends to the log.
        commit_bytes: histogram of the approximate bytes of a batch.
        loop_lag_s: histogram of the seconds by which the driver's timer ran late.
        slow_turns: the number of turns longer than ``SLOW_TURN_S``.
        slow_turns_s: the seconds that those turns took together.
        outages: the number of times that the store began to fail.
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
        """Return the longest delays since the last call, and reset them."""
        worst = self._worst
        self._worst = WorstDelays()
        return worst

    def record_tick(self, lag_s: float, cpu_s: float) -> None:
        """Count a run of the timer.

        Args:
            lag_s: seconds by which it ran late.
            cpu_s: seconds of processor time that the loop's thread had since the run before.
        """
        self.loop_lag_s.count(lag_s)
        if lag_s > self._worst.lag_s:
            self._worst.lag_s = lag_s
            self._worst.lag_cpu_s = cpu_s

    def record_slow_read(self, client: str, took_s: float) -> None:
        """Record a read of ``client`` whose bytes took ``took_s``, more than ``SLOW_TURN_S``."""
        if took_s > self._worst.read_s:
            self._worst.read_s = took_s
            self._worst.read_client = client

    def record_slow_encoding(self, took_s: float) -> None:
        """Record that encoding the last sealed batch took ``took_s``, more than
        ``SLOW_TURN_S``."""
        if took_s > self._worst.encoding_s:
            self._worst.encoding_s = took_s
            self._worst.encoding_messages = self._sealed_messages

    def record_seal(self, messages: int, size_bytes: int) -> None:
        """Count a sealed batch, which is to be written."""
        self.commit_messages.count(messages)
        self.commit_bytes.count(size_bytes)
        self._sealed_messages = messages
        self._sealed_bytes = size_bytes
        self._sealed_outages = self.outages

    def record_commit(self, took_s: float, write_s: float) -> None:
        """Count a commit that is durable.

        Args:
            took_s: seconds since its batch was sealed.
            write_s: seconds of its synced write.
        """
        self.commit_s.count(took_s)
        self.write_s.count(write_s)
        worst = self._worst
        if took_s > worst.commit_s and self.outages == self._sealed_outages:  # an outage is logged
            worst.commit_s = took_s
            worst.commit_write_s = write_s
            worst.commit_messages = self._sealed_messages
            worst.commit_bytes = self._sealed_bytes

    def record_slow_turn(self, took_s: float) -> None:
        """Count a turn that took ``took_s``, more than ``SLOW_TURN_S``."""
        self.slow_turns += 1
        self.slow_turns_s += took_s
