"""For any declaration that the configuration accepts and any bytes: rows + broken + empty messages
= messages, and nothing raises. What becomes of a message does not depend on those beside it."""

from __future__ import annotations

import json
from typing import Any, get_args

import cbor2
import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.config.column_type import SCALAR_TYPES
from penstock.config.decoder import Kind
from penstock.decoding.factory import Decoder
from penstock.errors import ConfigError
from tests.support.budget import budget
from tests.unit.decoding.decode import decoder, outcome
from tests.unit.decoding.test_with_a_schema import (
    DATUM,
    MOMENT,
    READING,
    SCHEMA,
    avro,
    message,
    reading_descriptor,
)

NAMES = ["a", "b", "c", "x-1", "5"]
SCALARS = st.sampled_from([*SCALAR_TYPES, "decimal(10,3)", "decimal(38,0)"])
TYPE = st.recursive(
    SCALARS,
    lambda inner: (
        inner.map("array<{}>".format)
        | inner.map("map<string, {}>".format)
        | st.lists(inner, min_size=1, max_size=3).map(
            lambda types: (
                "struct<"
                + ", ".join(f"{name}: {kind}" for name, kind in zip(NAMES, types, strict=False))
                + ">"
            )
        )
    ),
    max_leaves=4,
)
FIELDS = ["id", "value", "state", "place", "at", "raw", "total", "tags"]
"""Of a Protobuf message; some are of an Avro record."""

PATHS = st.sampled_from(["", "a", "a.b", "a.0", "0", "$", "$.a", "/a/b", "5", "c.c.c"])
COLUMN = st.fixed_dictionaries(
    {"type": TYPE},
    optional={
        "path": PATHS,
        "required": st.booleans(),
        "default": st.sampled_from([1, 2.5, "x", True]),
        "scale": st.sampled_from([0.1, -3.0]),
        "offset": st.sampled_from([-40.0]),
        "unit_from": st.sampled_from(["degF", "s", "ns"]),
        "unit": st.just("degC"),
        "format": st.sampled_from(["%Y-%m-%d", "%H"]),
        "time_zone": st.sampled_from(["Europe/Berlin", "UTC"]),
        "binary": st.just("hex"),
    },
)
DECLARATION = st.fixed_dictionaries(
    {"kind": st.sampled_from(get_args(Kind))},
    optional={
        "columns": st.dictionaries(
            st.sampled_from([*NAMES[:4], *FIELDS]), TYPE | COLUMN, min_size=1, max_size=4
        ),
        "many": st.booleans(),
        "rows_path": st.sampled_from(["a", "b.0"]),
        "rows_max": st.sampled_from([1, 3, 1000]),
        "values_max": st.sampled_from([1000, 10**6]),
        "extra": st.just("rest"),
        "null_values": st.just(["x", ""]),
        "lenient": st.booleans(),
        "header": st.booleans(),
        "delimiter": st.just(";"),
        "encoding": st.sampled_from(["utf-8", "latin-1", "utf-16", "cp1252"]),
    },
)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=3)
    | st.sampled_from(["2026-01-20T24:00:00Z", "2016-12-31T23:59:60Z", "1.5", "-0.0", "x", "on"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES) | st.integers(0, 5) | st.binary(max_size=2), inner, max_size=4
        )
    ),
    max_leaves=8,
)
FOR_ONE_KIND = {
    "csv": ("header", "delimiter", "encoding"),
    "text": ("encoding",),
    "json": ("many", "rows_path", "extra", "lenient"),
    "cbor": ("many", "rows_path", "extra"),
    "msgpack": ("many", "rows_path", "extra"),
    "avro": ("schema_file",),
    "protobuf": ("descriptor", "message"),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The settings of decoders that need files."""
    directory = tmp_path_factory.mktemp("files")
    (directory / "plant.desc").write_bytes(reading_descriptor().SerializeToString())
    (directory / "schema.avsc").write_text(json.dumps(SCHEMA))
    return {
        "descriptor": str(directory / "plant.desc"),
        "message": "plant.Reading",
        "schema_file": str(directory / "schema.avsc"),
    }


def written(value: Any, kind: str) -> bytes:
    """A value in a notation, or in JSON where that has no such value."""
    try:
        if kind == "cbor":
            return cbor2.dumps(value)
        if kind == "msgpack":
            return msgspec.msgpack.encode(value)
        if kind == "avro":
            return avro(DATUM)
        if kind == "protobuf":
            return message("plant.Reading", at=MOMENT, **READING)
        return json.dumps(value, default=repr, skipkeys=True).encode("utf-8", "surrogatepass")
    except (TypeError, OverflowError, ValueError):
        return repr(value).encode("utf-8", "replace")


def made(declaration: dict[str, Any], files: dict[str, str]) -> Decoder | None:
    """Its decoder, without the settings of other kinds; None if the configuration refuses it."""
    of_others = {name for names in FOR_ONE_KIND.values() for name in names}
    kept = FOR_ONE_KIND.get(declaration["kind"], ())
    chosen = {
        name: value
        for name, value in (declaration | files).items()
        if name in kept or name not in of_others
    }
    if chosen["kind"] in ("raw", "sparkplug_b", "text"):
        chosen.pop("values_max", None)
        chosen.pop("null_values", None)
    if chosen["kind"] in ("raw", "sparkplug_b"):
        chosen.pop("columns", None)
    try:
        return decoder(**chosen)
    except (ValidationError, ConfigError):
        return None


@settings(max_examples=budget(300), deadline=None)
@given(declaration=DECLARATION, data=st.data())
def test_every_message_becomes_rows_or_is_broken_or_empty(
    files: dict[str, str], declaration: dict[str, Any], data: st.DataObject
) -> None:
    one = made(declaration, files)
    assume(one is not None)
    assert one is not None
    values = data.draw(st.lists(VALUE, max_size=4))
    payloads = [written(value, declaration["kind"]) for value in values]
    payloads += data.draw(st.lists(st.binary(max_size=30), max_size=2))
    together = outcome(one, payloads)
    singles = [outcome(one, [payload]) for payload in payloads]
    assert {at: alone.broken[0] for at, alone in enumerate(singles) if alone.broken} == (
        together.broken
    )
    assert not any("could not be decoded" in reason for reason in together.broken.values())
    rows = [repr(row) for alone in singles for row in alone.rows]
    assert rows == [repr(row) for row in together.rows]
