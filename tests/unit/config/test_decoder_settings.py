"""The settings of decoders."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from penstock.config.decoder import Column, DecoderDefinition


def test_short_forms() -> None:
    made = DecoderDefinition.model_validate(
        {"kind": "json", "columns": {"a": "float", "b": "long"}}
    )
    assert [column.type for column in made.columns.values()] == ["float64", "int64"]
    assert DecoderDefinition.model_validate("raw") == DecoderDefinition(kind="raw")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "xml"}, "'json', 'csv'"),
        ({"kind": "raw", "columns": {"a": "int"}}, "column of the decoder raw has the type binary"),
        ({"kind": "text", "columns": {"a": "int", "b": "int"}}, "one column at most"),
        ({"kind": "csv"}, "the decoder csv needs columns"),
        ({"kind": "protobuf", "descriptor": "x"}, "the decoder protobuf needs message"),
        ({"kind": "avro"}, "the decoder avro needs schema_file"),
        (
            {"kind": "json", "header": True},
            "the decoder json has no setting header, which is for csv",
        ),
        (
            {"kind": "cbor", "lenient": True},
            "the decoder cbor has no setting lenient, which is for json",
        ),
        ({"kind": "raw", "null_values": ["x"]}, "the decoder raw has no setting null_values"),
        ({"kind": "text", "values_max": 5000}, "the decoder text has no setting values_max"),
        ({"kind": "json", "values_max": 10}, "greater than or equal to 1000"),
        ({"kind": "csv", "columns": {"a": "array<int>"}}, "each of its values is one text"),
        ({"kind": "sparkplug_b", "columns": {"a": "int"}}, "sparkplug_b has no setting columns"),
        ({"kind": "json", "many": True}, "are for a decoder with columns"),
        ({"kind": "json", "columns": {"a": "int", "A": "int"}}, "two columns 'a'"),
        ({"kind": "json", "columns": {"a": "int"}, "extra": "A"}, "two columns 'a'"),
        ({"kind": "json", "columns": {"a b": "int"}}, "a character no table takes"),
        ({"kind": "json", "columns": {"": "int"}}, "a character no table takes"),
        ({"kind": "json", "columns": {"a": "int"}, "rows_max": 0}, "greater than or equal to 1"),
    ],
)
def test_a_setting_that_does_not_fit_a_decoder_is_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        DecoderDefinition.model_validate(settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"type": "varchar"}, "one of string, bool"),
        ({"type": "decimal(39,0)"}, "decimal\\(P,S\\) with S up to P up to 38"),
        ({"type": "decimal(3,4)"}, "decimal\\(P,S\\) with S up to P up to 38"),
        ({"type": "string", "scale": 2.0}, "a column of type string has no scale or offset"),
        ({"type": "int", "scale": float("inf")}, "finite"),
        ({"type": "timestamp", "unit_from": "min"}, "must be s, ms, us or ns"),
        ({"type": "timestamp", "unit_from": "s", "format": "%Y"}, "not both"),
        ({"type": "float", "unit_from": "degF"}, "give both"),
        ({"type": "string", "unit_from": "degF", "unit": "degC"}, "unit_from is for a number"),
        ({"type": "int", "format": "%Y"}, "has no format"),
        ({"type": "date", "time_zone": "UTC"}, "has no time_zone"),
        ({"type": "string", "binary": "hex"}, "has no setting binary"),
        ({"type": "int", "required": True, "default": 1}, "leave out required"),
        ({"type": "int", "unknown": 1}, "Extra inputs"),
    ],
)
def test_a_setting_that_does_not_fit_a_column_is_refused(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValidationError, match=said):
        Column.model_validate(settings)
