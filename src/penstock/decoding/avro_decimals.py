"""Decimals of Avro, with a bound: fastavro takes seconds for one of 200,000 bytes.

The decimals of a schema get a logical type of our own, for which a function of this module is
registered with fastavro. A decimal with more digits than the schema declares is not rounded, as
fastavro would do, but passed on whole: the column then reports that it does not fit.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, Final

from penstock.decoding.broken_payload import BrokenPayload

DECIMAL: Final = "penstock-decimal"
"""The logical type of decimals in schemas changed by this module."""

BYTES_MAX: Final = 128
"""Most bytes of a decimal; a payload with a longer one is broken."""

_EXACT: Final = Context(prec=400)  # more digits than ``BYTES_MAX`` bytes have
_NESTED_SCHEMA_KEYS: Final = ("type", "fields", "items", "values")


def with_bounded_decimals(schema: Any) -> Any:
    """Return the schema with the logical type of its decimals replaced by ``DECIMAL``."""
    from fastavro.read import LOGICAL_READERS

    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{DECIMAL}"] = _read_decimal
    return _replace_decimals(schema)


def _replace_decimals(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_replace_decimals(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {
        key: _replace_decimals(value) if key in _NESTED_SCHEMA_KEYS else value
        for key, value in schema.items()
    }
    if schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed"):
        changed["logicalType"] = DECIMAL
    return changed


def _read_decimal(value: bytes, schema: Any, reader_schema: Any = None) -> Decimal:  # noqa: ARG001
    if len(value) > BYTES_MAX:
        raise BrokenPayload(f"The payload has a decimal of more than {BYTES_MAX} bytes.")
    unscaled = int.from_bytes(value, "big", signed=True)
    return Decimal(unscaled).scaleb(-schema.get("scale", 0), _EXACT)
