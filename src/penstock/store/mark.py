"""The mark of an offset: names the history of the log that the offset belongs to.

An offset is a number, and a log that is set back to an older copy gives the same numbers to other
messages. So each position that leaves the broker carries a mark beside epoch and offset. It is made
of the history before the offset (``store.history``):

* the *path*: the names of the last runs of the log, up to the run that wrote the message before the
  offset. A run begins whenever a broker opens the log for writing.
* the *digest* of the chain (``store.chain``) at the end of the chunk with that message.

A mark is text where it leaves the process, and compares as text::

      4be1d0c7a2f9,90d1c36b77aa/9f86d081884c7d65…
      └ path, oldest first      └ digest, 64 hexadecimal characters

The offset 0 has an empty mark, because nothing is before it, and so have positions that an older
version of Penstock stored.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PATH_RUNS_MAX: Final = 16
"""Greatest number of runs in a path: the newest ones."""

NONCE_CHARACTERS: Final = 12
"""Length of the name of a run, hexadecimal characters."""

MARK_CHARACTERS_MAX: Final = PATH_RUNS_MAX * (NONCE_CHARACTERS + 1) + 64
"""Greatest length of the text of a mark."""

_TEXT: Final = re.compile(r"((?:[0-9a-f]{12})(?:,[0-9a-f]{12}){0,15})?/([0-9a-f]{64})?")


class Mark(NamedTuple):
    """The history before an offset.

    Attributes:
        path: names of the last runs up to the one that wrote the message before the offset, oldest
            first.
        digest: the chain's digest, hexadecimal; empty where the log does not have that message any
            more.
    """

    path: tuple[str, ...] = ()
    digest: str = ""

    @property
    def is_empty(self) -> bool:
        """True where the mark says nothing."""
        return not self.path and not self.digest

    def __str__(self) -> str:
        return "" if self.is_empty else f"{','.join(self.path)}/{self.digest}"


NO_MARK: Final = Mark()
"""The mark of offset 0, and of positions of older versions."""


def parse_mark(text: str) -> Mark:
    """Return the mark that ``text`` is the text of.

    Raises:
        ValueError: it is no mark.
    """
    if not text:
        return NO_MARK
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:MARK_CHARACTERS_MAX]!r} is no mark of a position in a log")
    path, digest = found[1] or "", found[2] or ""
    return Mark(tuple(path.split(",")) if path else (), digest)
