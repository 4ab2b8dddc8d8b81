"""Finds the offsets, times of receipt and topics without which a filter of DuckDB is not true.

DuckDB hands a scan its filter as an Arrow expression, which Python cannot take apart. But Arrow can
be asked whether any row of a part of the data could pass: that is how it skips files of a
partitioned table. So the constants in the expression's text are *candidates* for bounds, and each
one counts only if Arrow proves it:

    filter   (offset >= 100) and (topic == "a/b") and (v > 3)
    text     candidates 100, 3 for offsets; "a/b" for topics
    proof    of the rows with offset < 100 none can pass    ─▶ offsets begin at 100
             with offset < 101 some may                     ─▶ and not at 101
             of topic < "a/b" none, of topic > "a/b" none   ─▶ the topic is a/b

A bound that is not found costs time: the log sends more, and the filter is applied to every row
anyway. A bound cannot be wrong, whatever the text looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from penstock.stream.pushed_filters import TOPICS_MAX, IntRange, PushedFilters
from penstock.stream.rows import STREAM_SCHEMA

CANDIDATES_MAX: Final = 2 * TOPICS_MAX
"""Most constants of a filter that are tried; of a longer one nothing is pushed down."""

_NUMBER: Final = re.compile(r"-?\d{1,19}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?")
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMAT: Final = ds.ParquetFileFormat()
_NOWHERE: Final = pyarrow.fs.LocalFileSystem()

NAMES: Final = ("offset", "received_at", "topic")
"""The columns by which the log chooses messages."""


def pushed_by(
    predicate: pc.Expression | None,
    schema: pa.Schema,
    chosen: PushedFilters,
    names: Sequence[str] = NAMES,
) -> PushedFilters:
    """Return the filters that the log may apply for a filter of DuckDB, as far as they are found.

    Args:
        predicate: the filter; None for none.
        schema: the columns that it may name.
        chosen: filters that count already.
        names: the ones of `NAMES` that are columns of the log in `schema`.
    """
    if predicate is None:
        return chosen
    text = str(predicate)
    proof = _Proof(predicate, schema)
    if "offset" in names:
        low, high = _bounds(proof, "offset", map(int, _NUMBER.findall(text)), chosen.offsets)
        chosen = replace(chosen, offsets=IntRange(low, high))
    if "received_at" in names:
        low, high = _bounds(proof, "received_at", _times_us(text), chosen.times_us)
        chosen = replace(chosen, times_us=IntRange(low, high))
    if "topic" in names:
        chosen = _with_topics(proof, text, chosen)
    return chosen


class _Proof:
    """Asks Arrow whether rows of which something is known could pass a filter."""

    def __init__(self, predicate: pc.Expression, schema: pa.Schema) -> None:
        self._predicate = predicate
        self._schema = schema

    def none_pass(self, known: pc.Expression) -> bool:
        """Return whether no row of which ``known`` is true can pass; false if that is not seen."""
        fragment = _FORMAT.make_fragment("rows", _NOWHERE, known)
        part = ds.FileSystemDataset([fragment], self._schema, _FORMAT, _NOWHERE)
        try:
            return next(iter(part.get_fragments(self._predicate)), None) is None
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            return False


def _bounds(
    proof: _Proof, name: str, candidates: Iterable[int], known: IntRange
) -> tuple[int, int]:
    """Return the bounds of a column that are proved, within the known bounds."""
    numbers = {number + more for number in candidates for more in (0, 1)}
    within = sorted(number for number in numbers if known.low <= number <= known.high)
    if len(within) > CANDIDATES_MAX:
        return known.low, known.high
    field, kind = pc.field(name), STREAM_SCHEMA.field(name).type

    def constant(number: int) -> Any:
        return pa.scalar(number, pa.int64()).cast(kind)

    low, high = known.low, known.high
    for number in reversed(within):
        if proof.none_pass(field < constant(number)):
            low = number
            break
    for number in within:
        if proof.none_pass(field >= constant(number)):
            high = number
            break
    return low, high


def _with_topics(proof: _Proof, text: str, chosen: PushedFilters) -> PushedFilters:
    topics = sorted(set(_texts(text)), key=str.encode)
    if not topics or len(topics) > CANDIDATES_MAX:
        return chosen
    topic = pc.field("topic")
    possible = [one for one in topics if not proof.none_pass(topic == one)]
    if _only(proof, topic, possible):
        if not possible:
            return replace(chosen, is_empty=True)
        return chosen.with_topics(possible) or chosen
    return chosen


def _only(proof: _Proof, topic: pc.Expression, possible: Sequence[str]) -> bool:
    """Return whether no topic but these can pass: there is none before, between or after them."""
    if not possible:
        return proof.none_pass(topic >= "")
    return (
        proof.none_pass(topic < possible[0])
        and all(
            proof.none_pass((topic > one) & (topic < other)) for one, other in pairwise(possible)
        )
        and proof.none_pass(topic > possible[-1])
    )


def _times_us(text: str) -> Iterable[int]:
    for found in _TIME.findall(text):
        try:
            moment = datetime.fromisoformat(found[:26]).replace(tzinfo=UTC)
        except ValueError:
            continue
        yield (moment - _EPOCH) // timedelta(microseconds=1)


def _texts(text: str) -> Iterable[str]:
    """Yield the text constants in the text of an expression; Arrow escapes other characters than
    ASCII."""
    for found in _TEXT.findall(text):
        raw = _ESCAPED.sub(_unescaped, found)
        try:
            yield raw.encode("latin-1").decode()
        except UnicodeError:
            yield raw


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) == 3:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code.encode()).decode()
