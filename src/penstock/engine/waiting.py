"""The register of what waits until work can go on: for the next turn, a tick, or a sealed batch.

::

      until_tick ──────── tick ───╮
      until_sealed ────── seal ───┤
      until_turn ─────────────────┴─▶ next turn ─▶ resume

Whoever waits is resumed in a later turn and never at once, so that what wakes it may go on. It is
once in the next turn, however often it is woken. A link's room is the link's own
(``Link.resume_when_room``), the lines of publishers are ``blocked_publishers``: both wake by
``until_turn``.
"""

from __future__ import annotations

from typing import final

from penstock.engine.values.clock import Now


class Resumable:
    """The port of an object that works in portions: a later turn calls ``resume`` to continue."""

    def __init__(self) -> None:
        self.waits_for_turn = False

    def resume(self, now: Now) -> None:
        """Do the next portion."""


@final
class Waiting:
    """All that wait in one broker, usually connections."""

    def __init__(self) -> None:
        self._next_turn: list[Resumable] = []
        self._found_room: list[Resumable] = []
        self._tick: dict[Resumable, None] = {}
        self._sealed: list[Resumable] = []
        self._sealed_first: list[Resumable] = []

    @property
    def has_turn(self) -> bool:
        """Return whether somebody waits for the next turn."""
        return len(self._next_turn) > 0

    @property
    def has_seal(self) -> bool:
        """Return whether somebody waits until the open batch is sealed."""
        return len(self._sealed) > 0 or len(self._sealed_first) > 0

    def until_turn(self, resumable: Resumable | None) -> None:
        """Have ``resumable`` resumed in the next turn; None waits for nothing."""
        if resumable is not None and not resumable.waits_for_turn:
            resumable.waits_for_turn = True
            self._next_turn.append(resumable)

    def until_tick(self, resumable: Resumable) -> None:
        """Have ``resumable`` resumed after the next tick."""
        self._tick[resumable] = None

    def until_sealed(self, resumable: Resumable) -> None:
        """Have ``resumable`` resumed when the open batch is sealed."""
        self._sealed.append(resumable)

    def first_until_sealed(self, resumable: Resumable) -> None:
        """Have ``resumable`` resumed when the open batch is sealed, before the others."""
        self._sealed_first.append(resumable)

    def note_resumed(self, resumable: Resumable) -> None:
        """Note that ``resumable`` was resumed outside of its turn: there was room for it."""
        self._found_room.append(resumable)

    def tick(self) -> None:
        """Wake those that wait for the tick."""
        if self._tick:
            woken = self._tick
            self._tick = {}
            for resumable in woken:
                self.until_turn(resumable)

    def sealed(self) -> None:
        """Wake those that wait for the seal: the open batch was sealed, or none will be."""
        if self.has_seal:
            woken = self._sealed_first + self._sealed
            self._sealed_first = []
            self._sealed = []
            for resumable in woken:
                self.until_turn(resumable)

    def resume(self, now: Now) -> list[Resumable]:
        """Begin a turn: resume those that wait for it, and return them with those that were resumed
        since the last one because there was room. They may wait again afterwards."""
        resumed = self._next_turn
        self._next_turn = []
        for resumable in resumed:
            resumable.waits_for_turn = False
            resumable.resume(now)
        if self._found_room:
            resumed.extend(self._found_room)
            self._found_room = []
        return resumed
