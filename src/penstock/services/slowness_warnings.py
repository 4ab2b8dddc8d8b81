"""Logs a warning when the event loop runs late or a commit takes long, with the likeliest cause.

::

      the loop is late ─┬─ the thread had no processor ─────────▶ other programs, swapping
                        ├─ one client's packets took most of it ─▶ its name
                        ├─ encoding a commit took most of it ───▶ the number of its messages
                        ╰─ none of these ───────────────────────▶ many small things

      a commit is slow ─┬─ writing and syncing took most of it ─▶ the disk
                        ╰─ they did not ────────────────────────▶ the processor

Both delay all clients, so one delay is worth a log line, and many delays are worth no more: there
is at most one line of each kind in ten seconds, with the number of similar ones. A store that fails
is logged by the driver.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.clock import Now
from penstock.runtime.driver import Driver
from penstock.runtime.measures import WorstDelays
from penstock.telemetry.logs import RepeatLimiter, Sentence, get_logger, warn_limited

logger = get_logger(__name__)

_MAJOR_SHARE: Final = 0.5  # a part that took at least this share of a delay is its cause


@final
class SlownessWarnings:
    """Warns of a slow loop and of slow commits.

    Args:
        driver: the driver, which measures loop and commits.
        loop_s: lag of the event loop in seconds from which on it is logged; 0 = never.
        commit_s: duration of a commit in seconds from which on it is logged; 0 = never.
        is_replicated: whether commits wait for the log of a cluster, and not for this disk.
    """

    def __init__(
        self, driver: Driver, loop_s: float, commit_s: float, is_replicated: bool = False
    ) -> None:
        self.loop_s = loop_s
        self.commit_s = commit_s
        self.is_replicated = is_replicated
        self._driver = driver
        self._limiter = RepeatLimiter()

    def tick(self, now: Now) -> None:
        """Log the longest delays since the last call, if they exceed the settings."""
        worst = self._driver.measures.take_worst()
        now_s = now.monotonic_s
        if 0 < self.loop_s <= worst.lag_s:
            warn_limited(
                logger,
                self._limiter,
                now_s,
                "loop",
                "all clients waited: the event loop ran %.1f s late: %s",
                worst.lag_s,
                Sentence(cause_of_lag(worst)),
            )
        if self.commit_s <= 0:
            return
        waits_s = self._driver.commit_waits_s()
        if waits_s >= self.commit_s and not self._driver.store_fails:
            warn_limited(
                logger,
                self._limiter,
                now_s,
                "commit under way",
                "a commit has taken %.1f s until now, and acknowledgements wait for it: %s has not"
                " answered yet",
                waits_s,
                "the cluster's log" if self.is_replicated else "the disk",
            )
        elif worst.commit_s >= self.commit_s:
            warn_limited(
                logger,
                self._limiter,
                now_s,
                "commit",
                "acknowledgements waited %.1f s for a commit of %d messages, %d bytes: %s",
                worst.commit_s,
                worst.commit_messages,
                worst.commit_bytes,
                Sentence(cause_of_commit(worst, self.is_replicated)),
            )


def cause_of_lag(worst: WorstDelays) -> str:
    """Return the likeliest cause of a late event loop, with a remedy if there is one.

    While the thread has no processor, whatever it does takes long: no client is to blame for that.
    """
    if worst.lag_cpu_s < worst.lag_s * _MAJOR_SHARE:
        return (
            f"it had the processor for {worst.lag_cpu_s:.1f} s of that time only; other programs"
            " had it, or the machine swaps or was stopped"
        )
    if worst.read_s >= worst.lag_s * _MAJOR_SHARE:
        return (
            f"what client {worst.read_client} sent kept it busy for {worst.read_s:.1f} s; a"
            " message for very many subscribers may"
        )
    if worst.encoding_s >= worst.lag_s * _MAJOR_SHARE:
        return (
            f"encoding a commit of {worst.encoding_messages} messages took"
            f" {worst.encoding_s:.1f} s; durability.commit_bytes_max bounds its size"
        )
    return (
        f"it was busy for {worst.lag_cpu_s:.1f} s with nothing that stands out; the processor is"
        " too slow for the load"
    )


def cause_of_commit(worst: WorstDelays, is_replicated: bool = False) -> str:
    """Return the likeliest cause of a slow commit, with a remedy if there is one."""
    if worst.commit_write_s >= worst.commit_s * _MAJOR_SHARE:
        if is_replicated:
            return (
                f"the cluster's log and this disk took {worst.commit_write_s:.1f} s of it; look at"
                " the cluster's log with 'penstock cluster status'"
            )
        return (
            f"writing and syncing took {worst.commit_write_s:.1f} s of it; look at the disk, and at"
            " what else writes there"
        )
    return (
        f"writing and syncing took only {worst.commit_write_s:.1f} s of it; the processor was busy,"
        " with this broker or with other programs"
    )
