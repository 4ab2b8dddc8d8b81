"""The mark of an offset: names the history of the log that the offset belongs to.

An offset is a number, and a log that is set back to an older copy gives the same numbers to other
messages. So each position that leaves the broker carries a mark beside epoch and offset. It is made
of the history before the offset (``store.history``):

* the *path*: the last runs of the log, up to the run that wrote the message before the offset. A
  run begins whenever a broker opens the log for writing, and has a name.
* the *digest* of the chain (``store.chain``) at the end of the chunk with that message.

A mark is text where it leaves the process, and compares as text::

      0-4be1d0c7a2f9,20-90d1c36b77aa/9f86d081884c7d65…
      └ path, oldest first           └ digest, 64 hexadecimal characters
        20: offset of the run's first message

The offset 0 has an empty mark, because nothing is before it, and so have positions that an older
version of Penstock stored.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

PATH_RUNS_MAX: Final = 16
"""Greatest number of runs in a path: the newest ones."""

NAME_CHARACTERS: Final = 12
"""Length of the name of a run, hexadecimal characters."""

_QUOTED_CHARACTERS_MAX: Final = 100
_RUN: Final = r"[0-9]{1,19}-[0-9a-f]{12}"
_TEXT: Final = re.compile(rf"({_RUN}(?:,{_RUN}){{0,{PATH_RUNS_MAX - 1}}})?/([0-9a-f]{{64}})?")


class Run(NamedTuple):
    """A run of a log: the offset of its first message, and its name."""

    begin: int
    name: str


class Mark(NamedTuple):
    """The history before an offset.

    Attributes:
        path: the last runs up to the one that wrote the message before the offset, oldest first.
        digest: the chain's digest, hexadecimal; empty where the log does not have that message any
            more.
    """

    path: tuple[Run, ...] = ()
    digest: str = ""

    @property
    def is_empty(self) -> bool:
        """True where the mark says nothing."""
        return not self.path and not self.digest

    def __str__(self) -> str:
        if self.is_empty:
            return ""
        path = ",".join(f"{run.begin}-{run.name}" for run in self.path)
        return f"{path}/{self.digest}"


NO_MARK: Final = Mark()
"""The mark of offset 0, and of positions of older versions."""


class Verdict(NamedTuple):
    """The answer whether a position belongs to the history of a log.

    Attributes:
        is_same: whether the messages before the position are those of the log. The log then goes on
            at the position's offset.
        parts_at: the offset at which the two histories part; None where ``is_same``, or where it is
            not known.
    """

    is_same: bool
    parts_at: int | None = None


def parse_mark(text: str) -> Mark:
    """Return the mark that ``text`` is the text of.

    Raises:
        ValueError: it is no mark.
    """
    if not text:
        return NO_MARK
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:_QUOTED_CHARACTERS_MAX]!r} is no mark of a position in a log")
    runs = (run.split("-") for run in (found[1] or "").split(",") if run)
    return Mark(tuple(Run(int(begin), name) for begin, name in runs), found[2] or "")
