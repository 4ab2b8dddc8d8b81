"""Who was told that a queue has no room is told when it gives a place up.

::

      no room ─▶ mark at the session ── a place is given up ─▶ its number in the asker's list
"""

from __future__ import annotations

from typing import final


@final
class FullMark:
    """One who does not ask again before there is a place.

    Args:
        told: where ``number`` is put then.
        number: what the asker knows the session by.
    """

    def __init__(self, told: list[int], number: int) -> None:
        self._told = told
        self._number = number

    def tell(self) -> None:
        """A place was given up."""
        self._told.append(self._number)
