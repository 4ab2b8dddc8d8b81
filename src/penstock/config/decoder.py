"""Decoders: how the payloads of a table become columns (docs/decoders.md)."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from penstock.config.column_type import (
    COLUMN_NAME,
    DEPTH_MAX,
    Scalar,
    StructOf,
    depth,
    innermost,
    parse_type,
)
from penstock.config.group import SettingsGroup
from penstock.config.registry import RegistryDefinition

Kind = Literal[
    "json",
    "csv",
    "cbor",
    "msgpack",
    "protobuf",
    "avro",
    "sparkplug_b",
    "text",
    "raw",
    "ndjson",
    "line_protocol",
    "senml",
    "key_value",
    "nmea",
]
RowsOf = Literal["items", "lists", "keys"]
Compression = Literal["none", "gzip", "zlib", "zstd", "auto"]

_TEXT_FORMATS: Final[frozenset[Kind]] = frozenset({"ndjson", "line_protocol", "key_value", "nmea"})
_SENML: Final[frozenset[Kind]] = frozenset({"senml"})
_FORMATS: Final = _TEXT_FORMATS | _SENML
_LINES: Final[frozenset[Kind]] = frozenset({"csv", "text"})
_JSON: Final[frozenset[Kind]] = frozenset({"json"})
_TEXTS: Final = _JSON | _LINES | _TEXT_FORMATS
_DOCUMENTS: Final[frozenset[Kind]] = frozenset({"json", "cbor", "msgpack"})
_SCHEMA_KINDS: Final[frozenset[Kind]] = frozenset({"protobuf", "avro"})
_TEXT: Final[frozenset[Kind]] = frozenset({"text"})
_RAW: Final[frozenset[Kind]] = frozenset({"raw"})
_SPARKPLUG: Final[frozenset[Kind]] = frozenset({"sparkplug_b"})
_WITH_COLUMNS: Final = _DOCUMENTS | _SCHEMA_KINDS | _FORMATS | _LINES

_KINDS_BY_SETTING: Final[dict[str, frozenset[Kind]]] = {
    "columns": _WITH_COLUMNS | _RAW,
    "many": _DOCUMENTS,
    "rows_path": _DOCUMENTS | _SCHEMA_KINDS,
    "rows_of": _DOCUMENTS,
    "json_texts": _DOCUMENTS,
    "extra": _DOCUMENTS | _FORMATS,
    "lenient": frozenset({"json", "ndjson"}),
    "null_values": _WITH_COLUMNS,
    "values_max": (_WITH_COLUMNS - _TEXT) | _SPARKPLUG,
    "delimiter": frozenset({"csv", "key_value"}),
    "header": frozenset({"csv"}),
    "compression": _WITH_COLUMNS | _RAW,
    "encoding": _TEXTS,
    "strip_nul": _TEXTS,
    "descriptor": frozenset({"protobuf"}),
    "message": frozenset({"protobuf"}),
    "schema_file": frozenset({"avro"}),
    "framing": frozenset({"avro", "json", "protobuf"}),
    "registry": frozenset({"avro", "json", "protobuf"}),
}
"""The kinds of decoders that have a setting, for each setting that not all kinds have."""


def _canonical_type(value: str) -> str:
    return str(parse_type(value))


def column_name_mistake(names: list[str]) -> str:
    """Return the mistake in the names of columns of one table or struct, in words; empty if there
    is none."""
    for name in names:
        if COLUMN_NAME.fullmatch(name) is None:
            return (
                f"the column name {name!r} has a character no table takes (one of ,;{{}}()=` or"
                " white space), is empty or longer than 255: name it otherwise and give its path"
            )
    folded = [name.lower() for name in names]
    for name in folded:
        if folded.count(name) > 1:
            return f"the decoder has two columns {name!r}, for Spark reads no case"
    return ""


class Column(SettingsGroup):
    """One column of a decoded payload. `"float"` is short for `{ type = "float" }`."""

    type: Annotated[str, AfterValidator(_canonical_type)]
    """string, bool, int8, int16, int32, int64 (int, long), float32, float64 (float, double),
    decimal(P,S), timestamp, date, binary, json (variant): any value, as JSON text; or of these
    array<type>, map<string, type> and struct<name: type, other: type not null>."""

    fields: dict[str, Column] = Field(default={}, max_length=2000)
    """The fields of a type that ends in struct without any (struct, array<struct>), as columns are
    written; their paths begin at the object."""

    path: str = ""
    """Path of the value in the payload: keys and positions in lists with dots between
    ("sensors.0.value"), a JSON pointer ("/a.b/value") where a key has a dot, "$" for the whole
    value, "$.name" for one of the payload where rows_path leads to the rows. Empty takes the
    column's name."""

    required: bool = False
    """Treat a message without this value as broken; else the value is null."""

    default: bool | int | float | str | None = None
    """Value where the payload has none or null; converted as a value of a payload is."""

    null_values: tuple[str, ...] = Field(default=(), max_length=100)
    """Texts that stand for null in this column, beside those of the decoder."""

    scale: float = Field(default=1.0, allow_inf_nan=False)
    """Factor by which a number is multiplied, as in scale = 0.1 for tenths."""

    offset: float = Field(default=0.0, allow_inf_nan=False)
    """Added to a number after scale."""

    unit_from: str = ""
    """Unit of the payload's value, such as "degF" or "psi", which is converted to `unit`. For a
    timestamp that is a number: s, ms, us or ns since 1970."""

    unit: str = ""
    """The unit of the column, such as "degC" or "bar": kept with the column in the table's
    schema."""

    format: str = ""
    """Form of a timestamp or date in text, as for strptime ("%d.%m.%Y %H:%M"); empty takes ISO
    8601."""

    time_zone: str = "UTC"
    """Time zone of a timestamp in text without an offset: a name such as Europe/Berlin."""

    decimal: Literal[".", ","] = "."
    """The decimal mark of numbers in text. With a comma, points between thousands are left out."""

    binary: Literal["base64", "base64url", "hex"] = "base64"
    """Encoding of bytes in text, for the type binary."""

    @model_validator(mode="before")
    @classmethod
    def _expand_type_name(cls, value: Any) -> Any:
        return {"type": value} if isinstance(value, str) else value

    @property
    def depth(self) -> int:
        """The depth to which the column's type is nested, 1 for a scalar."""
        fields_depth = max((field.depth for field in self.fields.values()), default=0)
        return depth(parse_type(self.type)) + fields_depth

    @model_validator(mode="after")
    def _fits_its_type(self) -> Column:
        whole = parse_type(self.type)
        inner = innermost(whole)
        if self.required and self.default is not None:
            raise ValueError("a column with a default is never missing: leave out required")
        if self.default is not None and not isinstance(whole, Scalar):
            raise ValueError(f"a column of type {self.type} has no default, single values have")
        if isinstance(inner, StructOf):
            self._check_struct(inner)
            return self
        if self.fields:
            raise ValueError(f"a column of type {self.type} has no fields, a struct has")
        self._check_scalar(inner.name)
        return self

    def _check_struct(self, inner: StructOf) -> None:
        if inner.fields and self.fields:
            raise ValueError("the fields of a struct are in its type or in fields, not in both")
        if not (inner.fields or self.fields):
            raise ValueError("a struct has fields: struct<name: type>, or fields = {name = type}")
        if self.depth > DEPTH_MAX:
            raise ValueError(f"types are nested {DEPTH_MAX} deep at most")
        mistake = column_name_mistake([*self.fields])
        if mistake:
            raise ValueError(f"in a struct, {mistake}")
        of_scalars = ("scale", "offset", "unit_from", "unit", "format", "time_zone", "binary")
        for name in (*of_scalars, "decimal", "null_values"):
            if name in self.model_fields_set:
                raise ValueError(f"a struct has no {name}: give it to one of its fields")
        for name, field in self.fields.items():
            if field.path.startswith("$."):
                raise ValueError(f"the path of the field {name} begins at its struct, not at $")

    def _check_scalar(self, kind: str) -> None:
        is_number = kind.startswith(("int", "float", "decimal"))
        if (self.scale != 1 or self.offset != 0) and not is_number:
            raise ValueError(f"a column of type {kind} has no scale or offset, numbers have")
        if self.decimal != "." and not is_number:
            raise ValueError(f"a column of type {kind} has no setting decimal, numbers have")
        if kind == "timestamp":
            if self.unit_from not in ("", "s", "ms", "us", "ns"):
                raise ValueError(
                    f"unit_from of a timestamp is {self.unit_from!r}, but must be s, ms, us or ns"
                )
            if self.unit_from and self.format:
                raise ValueError("a timestamp is a number (unit_from) or text (format), not both")
        elif self.unit_from and not (is_number and self.unit):
            raise ValueError("unit_from is for a number, and is converted to unit: give both")
        if self.format and kind not in ("timestamp", "date"):
            raise ValueError(f"a column of type {kind} has no format, timestamps have")
        if "time_zone" in self.model_fields_set and kind != "timestamp":
            raise ValueError(f"a column of type {kind} has no time_zone, timestamps have")
        if "binary" in self.model_fields_set and kind != "binary":
            raise ValueError(f"a column of type {kind} has no setting binary, binary has")


class DecoderDefinition(SettingsGroup):
    """The way from payloads to rows. `"text"` is short for `{ kind = "text" }`."""

    kind: Kind
    """json, ndjson, csv, cbor, msgpack, senml, protobuf, avro, sparkplug_b, line_protocol,
    key_value, nmea, text or raw."""

    columns: dict[str, Column] = Field(default={}, max_length=2000)
    """Columns by name, each a type or a table. json, cbor and msgpack without any give one column
    `value` with the payload as JSON text; protobuf and avro without any give all fields; text and
    raw have one column at most."""

    many: bool = False
    """Make a row of each item, where the payload is a list."""

    rows_path: str = ""
    """Path in the payload of the list whose items are the rows; empty for the payload itself."""

    rows_of: RowsOf = "items"
    """Rows of a document: the `items` of a list; the positions of the `lists` beside each other
    that are columns; or the `keys` of an object, each a row with `key` and `value`."""

    json_texts: tuple[str, ...] = Field(default=(), max_length=100)
    """Paths of texts that are JSON documents, and are read as if these stood there: from a row on,
    or of the payload as "$.name"."""

    rows_max: int = Field(default=100_000, ge=1, le=10_000_000)
    """Most rows of a payload; a payload with more is broken. 1 to 10000000."""

    extra: str = ""
    """Name of a column for all keys that no column takes, as a JSON object; empty ignores them."""

    null_values: tuple[str, ...] = Field(default=(), max_length=100)
    """Texts that stand for null, such as "unavailable". In csv an empty field does, too."""

    lenient: bool = False
    """Accept texts that other programs write and JSON does not allow: NaN, Infinity and -Infinity,
    which become null except in columns of type float, and a byte order mark."""

    values_max: int = Field(default=2_000_000, ge=1000, le=1_000_000_000)
    """Most values of a payload (keys, items of lists, and rows times columns); a payload with more
    is broken. The limit bounds memory and time, at about 100 bytes a value. 1000 to 1000000000."""

    delimiter: str = Field(default=",", min_length=1, max_length=1)
    """Separator between the fields of a csv line, or the pairs of key_value, one character. Without
    it, pairs are separated by white space, commas, semicolons, & and |."""

    header: bool = False
    """True if the first csv line of each payload names the fields; else they are the columns in
    order."""

    encoding: str = "utf-8"
    """Encoding of payloads that are text, as Python names it, such as utf-16 or latin-1."""

    strip_nul: bool = False
    """Leave out zero bytes at the end of a text, which C programs send."""

    compression: Compression = "none"
    """Compression of payloads, which are expanded before anything else: none, gzip, zlib, zstd, or
    auto: each payload as it begins; one that begins as none of them does is bare."""

    descriptor: str = ""
    """File with the FileDescriptorSet (protoc --include_imports --descriptor_set_out=FILE)."""

    message: str = ""
    """Full name of the Protobuf message, such as plant.v1.Reading."""

    schema_file: str = ""
    """File with the Avro schema that payloads are written with (.avsc). For container files, which
    carry that schema themselves: the schema that records are resolved to, if any."""

    framing: Literal["none", "single_object", "container", "confluent"] = "none"
    """Wrapping of a payload. none; single_object (avro): the fingerprint of the single-object
    encoding; container (avro): a container file, with its schema and any number of records, each of
    them a row; confluent (avro, json, protobuf): the id of its schema in a registry, as Confluent's
    serializers write it."""

    registry: RegistryDefinition | None = None
    """The schema registry for framing = "confluent"."""

    expanded_bytes_max: int = Field(default=16 * 2**20, ge=1, le=2**31 - 1)
    """Longest compressed payload (compression, Sparkplug, Avro container file) when expanded, in
    bytes; a longer payload is broken. 1 to 2147483647."""

    @property
    def has_many_rows(self) -> bool:
        """True if a document is as many rows as it has items, or positions, or keys."""
        return self.many or bool(self.rows_path) or self.rows_of != "items"

    @model_validator(mode="before")
    @classmethod
    def _expand_kind_name(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _fits_its_kind(self) -> DecoderDefinition:
        for name, kinds in _KINDS_BY_SETTING.items():
            if name in self.model_fields_set and self.kind not in kinds:
                raise ValueError(
                    f"the decoder {self.kind} has no setting {name}, which is for"
                    f" {', '.join(sorted(kinds))}"
                )
        self._check_framing()
        encoding = self.encoding.lower().replace("_", "-")
        if self.strip_nul and encoding.startswith(("utf-16", "utf-32", "utf16", "utf32")):
            raise ValueError(f"texts in {self.encoding} have zero bytes: leave out strip_nul")
        required: tuple[str, ...] = {"csv": ("columns",)}.get(self.kind, ())
        if self.kind == "protobuf" and not (self.registry is not None and self.registry.subject):
            required = ("descriptor", "message")
        if self.kind == "avro" and self.framing in ("none", "single_object"):
            required = ("schema_file",)
        for name in required:
            if not getattr(self, name):
                raise ValueError(f"the decoder {self.kind} needs {name}")
        if self.kind in ("text", "raw") and len(self.columns) > 1:
            raise ValueError(f"the decoder {self.kind} has one column at most")
        if self.kind == "raw" and any(col.type != "binary" for col in self.columns.values()):
            raise ValueError("the column of the decoder raw has the type binary")
        reshapes = self.rows_of != "items" or bool(self.json_texts)
        if (self.many or self.rows_path or self.extra or reshapes) and not self.columns:
            raise ValueError(
                "many, rows_path, rows_of, json_texts and extra are for a decoder with columns"
            )
        if self.rows_of != "items" and (self.many or self.extra or self.json_texts):
            raise ValueError('many, extra and json_texts are for rows_of = "items"')
        if self.json_texts and self.registry is not None:
            raise ValueError("json_texts are for payloads without a registry")
        return self

    def _check_framing(self) -> None:
        if (self.framing == "confluent") != (self.registry is not None):
            raise ValueError('framing = "confluent" and registry belong together')
        if self.framing in ("single_object", "container") and self.kind != "avro":
            raise ValueError(f"the decoder {self.kind} has no framing {self.framing}, avro has")
        if self.framing == "container" and self.rows_path:
            raise ValueError("each record of an Avro container file is a row: leave out rows_path")

    @model_validator(mode="after")
    def _names_are_columns(self) -> DecoderDefinition:
        mistake = column_name_mistake([*self.columns, *([self.extra] if self.extra else [])])
        if mistake:
            raise ValueError(mistake)
        return self

    @model_validator(mode="after")
    def _nested_types_fit_the_kind(self) -> DecoderDefinition:
        for name, column in self.columns.items():
            if self.kind in ("csv", "text", "key_value") and column.depth > 1:
                raise ValueError(
                    f"the column {name} of the decoder {self.kind} is {column.type}, but each of"
                    " its values is one text"
                )
        return self
