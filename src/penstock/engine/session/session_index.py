"""The sessions of a broker in the order of their numbers, so that a walk may begin anywhere.

A listing of a million sessions visits some of them at a time, and meanwhile sessions begin and end.
Numbers ascend and are never reused, so that a walk can continue after the number of the last
session that it visited, even if that session has ended::

      numbers   1 … 700 │ 709 … 1300 │ 1301 …        chunks of at most ``CHUNK_MAX`` sessions
                                ▲
           after(1000, …) ──────╯   found by bisection; nearly empty neighbours are merged

No method takes time linear in the number of sessions.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

from penstock.engine.session.session import Session

CHUNK_MAX: Final = 512


@final
class SessionIndex:
    """The sessions of one broker, by number."""

    def __init__(self) -> None:
        self._begins: list[int] = []  # the lowest number that each chunk may have
        self._chunks: list[dict[int, Session]] = []

    def add(self, session: Session) -> None:
        """Add ``session``, whose number must be greater than that of all sessions before."""
        if not self._chunks or len(self._chunks[-1]) >= CHUNK_MAX:
            self._begins.append(session.number)
            self._chunks.append({})
        self._chunks[-1][session.number] = session

    def remove(self, session: Session) -> None:
        """Remove ``session``, which must be in the index."""
        at = bisect_right(self._begins, session.number) - 1
        del self._chunks[at][session.number]
        if at > 0:
            self._unite(at - 1)
        elif len(self._chunks) > 1:
            self._unite(0)

    def sessions_after(self, number: int, count: int) -> list[Session]:
        """Return at most ``count`` sessions with numbers above ``number``, by ascending number; []
        if there are none."""
        found: list[Session] = []
        at = max(0, bisect_right(self._begins, number) - 1)
        while at < len(self._chunks):
            for session in self._chunks[at].values():
                if session.number > number:
                    found.append(session)
                    if len(found) >= count:
                        return found
            at += 1
        return found

    def _unite(self, at: int) -> None:
        """Merge the chunk at this index with the next one, if both are nearly empty."""
        first = self._chunks[at]
        second = self._chunks[at + 1]
        if len(first) + len(second) <= CHUNK_MAX // 2:
            first.update(second)
            self._chunks.pop(at + 1)
            self._begins.pop(at + 1)
