"""Positions that readers and tables show, and those in state files: are they of this history?"""

from __future__ import annotations

import asyncio

from penstock.errors import ConfigError, EpochMismatch
from penstock.store.history import parted_in_words
from penstock.store.mark import Verdict, parse_mark
from penstock.store.port import Store


def judge_text(store: Store, epoch: str, offset: int, mark: str) -> Verdict:
    """Return whether a position belongs to the log; its mark is text. This reads the log.

    Raises:
        ConfigError: the mark is none.
        StoreError: the log cannot be read.
    """
    try:
        return store.judge(epoch, offset, parse_mark(mark))
    except ValueError as error:
        raise ConfigError(str(error)) from None


async def refuse_other_history(store: Store, who: str, epoch: str, offset: int, mark: str) -> None:
    """Raise if the position of a reader or table is not of the log's history; an offset behind the
    log's end is left to the caller.

    Args:
        store: the store with the log.
        who: the reader or table, for the error.
        epoch: epoch of the position.
        offset: its offset.
        mark: the text of its mark; empty where it has none.

    Raises:
        ConfigError: the mark is none.
        EpochMismatch: the position is of another history.
        StoreError: the log cannot be read.
    """
    loop = asyncio.get_running_loop()
    verdict = await loop.run_in_executor(None, judge_text, store, epoch, offset, mark)
    if verdict.is_same:
        return
    if verdict.parts_at is None and epoch == store.epoch and offset > store.log_extent().end:
        return
    if verdict.parts_at is not None:
        raise EpochMismatch(f"{who}: {parted_in_words(epoch, offset, verdict)}")
    raise EpochMismatch(
        f"the offset {offset} of {who} belongs to epoch {epoch}, and the log is now of epoch"
        f" {store.epoch}: it was restored or created anew, or lacks that message"
    )
