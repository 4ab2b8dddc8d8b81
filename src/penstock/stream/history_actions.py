"""The stream service's actions for positions that come back: whose history are they of?

A reader stores its position with a mark (``penstock.store.mark``), and shows both when it goes on,
perhaps to a broker whose data directory was set back to an older copy meanwhile::

    mark    ─▶ the mark of an offset, to be stored beside it
    check   ─▶ same: go on at that offset, under the log's present epoch
            ─▶ the log parts from the reader's history at N: go on at N. Where the log still has
               the reader's epoch, the broker begins a new one at N first (`log_forks`)
            ─▶ refused: another log, or nobody knows where they part
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.auth.tokens import LEASE, Grant
from penstock.config.stream import StreamDefinition
from penstock.control.history_requests import ForkLog, LogForked
from penstock.store.history import History, parted_in_words
from penstock.store.mark import Mark, parse_mark
from penstock.store.secondary import LogFollower
from penstock.stream.reader_actions import Action, ask_broker, check_epoch, unknown_history
from penstock.stream.requests import Refusal, RequestError, read_offset, read_text

DESCRIPTIONS: Final = (
    ("mark", "the mark of an offset, which names its history, as JSON"),
    ("check", "where a reader with a position and its mark goes on, as JSON"),
)


class HistoryActions:
    """The actions mark and check.

    Args:
        log: the log.
        stream: returns a stream by its name; raises RequestError if there is none.
    """

    def __init__(self, log: LogFollower, stream: Callable[[str], StreamDefinition]) -> None:
        self._log = log
        self._stream = stream
        self.actions: Mapping[str, Action] = {"mark": self._mark, "check": self._check}

    def _mark(self, fields: dict[str, Any], _grant: Grant) -> object:
        self._stream(read_text(fields, "stream"))
        offset = read_offset(fields, "offset")
        history = self._log.history()
        check_epoch(read_text(fields, "epoch"), history.epoch)
        _refuse_ahead(offset, history)
        return {"mark": str(self._log.mark_at(offset))}

    def _check(self, fields: dict[str, Any], grant: Grant) -> object:
        self._stream(read_text(fields, "stream"))
        epoch, offset = read_text(fields, "epoch"), read_offset(fields, "offset")
        mark = read_mark(fields)
        history = self._log.history()
        verdict = self._log.judge(epoch, offset, mark)
        if verdict.is_same:
            return {"epoch": history.epoch, "offset": offset, "parts_at": None, "why": ""}
        if verdict.parts_at is None:
            raise unknown_history(history, epoch, offset)
        why = parted_in_words(epoch, offset, verdict)
        present, at = history.epoch, verdict.parts_at
        if epoch == present:
            if LEASE not in grant.roles:
                raise RequestError(
                    Refusal.EPOCH_MISMATCH, f"{why}; 'penstock store fork' lets the log go on"
                )
            fork = ForkLog(None, epoch, offset, str(mark))
            forked = ask_broker(self._log.data_dir, fork, LogForked)
            present, at = forked.epoch, forked.at
        return {"epoch": present, "offset": at, "parts_at": at, "why": why}


def read_mark(fields: dict[str, Any]) -> Mark:
    """Return the field `mark` of a request, empty if it is missing; raise RequestError if it is no
    mark."""
    text = read_text(fields, "mark") if "mark" in fields else ""
    try:
        return parse_mark(text)
    except ValueError as error:
        raise RequestError(Refusal.BAD_REQUEST, str(error)) from None


def _refuse_ahead(offset: int, history: History) -> None:
    if offset > history.end:
        raise RequestError(
            Refusal.BEHIND, f"offset {offset} is asked for, and the log ends at {history.end}"
        )
