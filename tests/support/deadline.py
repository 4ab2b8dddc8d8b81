"""Waiting for a condition: asked again and again until it holds or the time is up.

No test sleeps for a condition. Where time itself is the condition (an expiry interval that must
have passed), ``let_pass`` says so.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

DEADLINE_S: Final = 180.0  # long: a slow machine must not fail a test, only a wrong broker
_PAUSE_S: Final = 0.01

Found = TypeVar("Found")


def wait_for(what: str, probe: Callable[[], Found | None], within_s: float = DEADLINE_S) -> Found:
    """The first true value of ``probe``; AssertionError with ``what`` after ``within_s``."""
    ends_s = time.monotonic() + within_s
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < ends_s, f"waited {within_s:g} s for {what}"
        time.sleep(_PAUSE_S)


async def until(
    what: str, probe: Callable[[], Found | None], within_s: float = DEADLINE_S
) -> Found:
    """As ``wait_for``, for a condition that this event loop brings about."""
    ends_s = time.monotonic() + within_s
    while True:
        found = probe()
        if found:
            return found
        assert time.monotonic() < ends_s, f"waited {within_s:g} s for {what}"
        await asyncio.sleep(_PAUSE_S)


class Logging(Protocol):
    """A program that logs."""

    def log(self) -> str:
        """Return what it has logged until now."""


def wait_until_logged(program: Logging, words: str) -> None:
    """Wait for words in the log, which a thread of the program writes: a line may come later than
    the ready line or an answer that follows it."""
    wait_for(f"the log to say {words!r}", lambda: words in program.log())


def let_pass(duration_s: float) -> None:
    """Let time pass that a message or session is given to expire."""
    time.sleep(duration_s)
