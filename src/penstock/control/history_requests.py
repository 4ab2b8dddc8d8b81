"""The requests about the history of the log: a fork of its epoch (``control.client``).

The log *forks* at an offset where it goes on under a new epoch from there, because a reader has
messages with the same epoch and offsets from a history that the log does not have
(``store.history``). Nothing of the log is removed or moved.
"""

from __future__ import annotations

import msgspec


class ForkLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fork", tag_field="do"):
    """Begin a new epoch at an offset of the log; ``done`` is ``LogForked``.

    Attributes:
        at: the offset from which on the log is of the new epoch; None to take it from ``mark``.
        epoch: epoch of a position of a history that the log does not have.
        offset: offset of that position.
        mark: its mark.
        is_dry_run: tell what would happen, and change nothing.
    """

    at: int | None = None
    epoch: str = ""
    offset: int = 0
    mark: str = ""
    is_dry_run: bool = False


class LogForked(msgspec.Struct, frozen=True):
    """The outcome of a fork.

    Attributes:
        epoch: the epoch of the log from ``at`` on; of a dry run the present one.
        former_epoch: the epoch that ended.
        at: the offset at which it ended.
        end: the offset after the last message of the log.
    """

    epoch: str
    former_epoch: str
    at: int
    end: int


HistoryRequest = ForkLog
