"""Finds the offsets, times of receipt and topics to which a filter of DuckDB restricts rows.

DuckDB passes its filter to a scan as an Arrow expression, which Python cannot inspect. But Arrow
can tell whether any row of a part of the data could pass: it does so to skip files of a partitioned
table. So the constants in the expression's text are *candidates* for bounds, and a candidate is
used only if Arrow proves it:

    filter   (offset >= 100) and (topic == "a/b") and (v > 3)
    text     candidates 100, 3 for offsets; "a/b" for topics
    proof    of the rows with offset < 100 none can pass    ─▶ offsets begin at 100
             of those with offset < 101 some may pass       ─▶ and not at 101
             of topic < "a/b" none, of topic > "a/b" none   ─▶ the topic is a/b

If a bound is not found, the log only sends more rows: DuckDB applies the filter to each row anyway.
No bound can be wrong, whatever the text looks like.
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

from penstock.stream.pushed_filters import TOPICS_MAX, IntRange, PushedFilters, is_topic_level
from penstock.stream.rows import STREAM_SCHEMA

CANDIDATES_MAX: Final = 2 * TOPICS_MAX
"""Most constants of a filter that are tested; a filter with more is not pushed down."""

_NUMBER: Final = re.compile(r"-?\d{1,19}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?")
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(x[0-9A-Fa-f]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t"}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FORMAT: Final = ds.ParquetFileFormat()
_NOWHERE: Final = pyarrow.fs.LocalFileSystem()

FILTER_COLUMNS: Final = ("offset", "received_at", "topic")
"""The columns that the log can filter."""


def derive_pushed_filters(
    predicate: pc.Expression | None,
    schema: pa.Schema,
    filters: PushedFilters,
    names: Sequence[str] = FILTER_COLUMNS,
) -> PushedFilters:
    """Return the filters that the log may apply because of a filter of DuckDB.

    Args:
        predicate: the filter of DuckDB; None without one.
        schema: the columns of the view.
        filters: the filters that the log applies anyway, which the result narrows.
        names: the columns of `FILTER_COLUMNS` that are columns of the log in `schema`.
    """
    if predicate is None:
        return filters
    text = str(predicate)
    proof = _Proof(predicate, schema)
    if "offset" in names:
        low, high = _bounds(proof, "offset", map(int, _NUMBER.findall(text)), filters.offsets)
        filters = replace(filters, offsets=IntRange(low, high))
    if "received_at" in names:
        low, high = _bounds(proof, "received_at", _times_us(text), filters.times_us)
        filters = replace(filters, times_us=IntRange(low, high))
    if "topic" in names:
        filters = _with_topics(proof, text, filters)
    return filters


def level_values(
    predicate: pc.Expression | None, schema: pa.Schema, names: Sequence[str]
) -> dict[str, list[str]]:
    """Return the values to which a filter of DuckDB restricts columns of text, by name.

    Columns that it does not restrict to some values, each a level of a topic, are left out.
    """
    found: dict[str, list[str]] = {}
    if predicate is None:
        return found
    proof = _Proof(predicate, schema)
    texts = sorted(set(_texts(str(predicate))), key=str.encode)
    if not texts or len(texts) > CANDIDATES_MAX:
        return found
    for name in names:
        field = pc.field(name)
        possible = [text for text in texts if not proof.none_pass(field == text)]
        if (
            possible
            and all(map(is_topic_level, possible))
            and _excludes_others(proof, field, possible)
        ):
            found[name] = possible
    return found


class _Proof:
    """Proves with Arrow that no row for which an expression is true passes a filter."""

    def __init__(self, predicate: pc.Expression, schema: pa.Schema) -> None:
        self._predicate = predicate
        self._schema = schema

    def none_pass(self, known: pc.Expression) -> bool:
        """Return whether it is proved that no row for which ``known`` is true passes the filter."""
        fragment = _FORMAT.make_fragment("rows", _NOWHERE, known)
        part = ds.FileSystemDataset([fragment], self._schema, _FORMAT, _NOWHERE)
        try:
            return next(iter(part.get_fragments(self._predicate)), None) is None
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            return False


def _bounds(
    proof: _Proof, name: str, candidates: Iterable[int], known: IntRange
) -> tuple[int, int]:
    """Return the proved bounds of a column, within the known bounds: low, and high (excluded)."""
    numbers = {number + step for number in candidates for step in (0, 1)}
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


def _with_topics(proof: _Proof, text: str, filters: PushedFilters) -> PushedFilters:
    topics = sorted(set(_texts(text)), key=str.encode)
    if not topics or len(topics) > CANDIDATES_MAX:
        return filters
    topic = pc.field("topic")
    possible = [one for one in topics if not proof.none_pass(topic == one)]
    if _excludes_others(proof, topic, possible):
        if not possible:
            return replace(filters, is_empty=True)
        return filters.with_topics(possible) or filters
    return filters


def _excludes_others(proof: _Proof, topic: pc.Expression, possible: Sequence[str]) -> bool:
    """Return whether it is proved that only these topics pass: none before, between or after."""
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
    """Yield the times in the text of an expression, in µs since the Unix epoch."""
    for found in _TIME.findall(text):
        try:
            moment = datetime.fromisoformat(found[:26]).replace(tzinfo=UTC)
        except ValueError:
            continue
        yield (moment - _EPOCH) // timedelta(microseconds=1)


def _texts(text: str) -> Iterable[str]:
    """Yield the text constants in the text of an expression, in which Arrow escapes bytes."""
    for found in _TEXT.findall(text):
        raw = _ESCAPED.sub(_unescape, found)
        try:
            yield raw.encode("latin-1").decode()
        except UnicodeError:
            yield raw


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "x" and len(code) == 3:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code.encode()).decode()
