"""A first-in, first-out queue on a list, whose removed items are deleted in portions.

::

      [ removed · removed · first · … · last ] ◀─ append
                            ╰─ pop ─▶

A ``deque`` does the same, but in compiled code each of its operations is a call by name, which
those of a list are not, and an empty ``deque`` takes 760 bytes.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar, cast, final

from mypy_extensions import i64

T = TypeVar("T")

_REMOVED_MAX: Final = 64  # removed items in the list, or as many as items that wait, if more


@final
class Fifo(Generic[T]):
    """One first-in, first-out queue."""

    def __init__(self) -> None:
        self._items: list[T | None] = []  # None: removed
        self._start: i64 = 0  # index of the first item

    def __len__(self) -> int:
        return len(self._items) - self._start

    def append(self, item: T) -> None:
        """Add ``item`` at the end."""
        self._items.append(item)

    def first(self) -> T:
        """Return the first item and leave it in place. The queue must not be empty."""
        return cast(T, self._items[self._start])

    def at(self, position: i64) -> T:
        """Return the item at ``position``, 0 = the first, and leave it in place.

        The queue must have more than ``position`` items.
        """
        return cast(T, self._items[self._start + position])

    def pop(self) -> T:
        """Remove and return the first item. The queue must not be empty."""
        at = self._start
        places = self._items
        item = cast(T, places[at])
        places[at] = None
        at += 1
        if at == len(places):
            self._items = []
            at = 0
        elif at > _REMOVED_MAX and 2 * at > len(places):
            self._items = places[at:]
            at = 0
        self._start = at
        return item

    def remove(self, item: T) -> None:
        """Remove ``item`` from any position. The queue must contain it."""
        if self.first() == item:
            self.pop()
        else:
            self._items.remove(item)

    def push_front(self, item: T) -> None:
        """Add ``item`` at the front."""
        if self._start > 0:
            self._start -= 1
            self._items[self._start] = item
        else:
            self._items.insert(0, item)

    def items(self) -> list[T]:
        """Return all items, from the first to the last."""
        return cast(list[T], self._items[self._start :])

    def clear(self) -> None:
        """Remove all items."""
        self._items = []
        self._start = 0
