"""Decimals of Avro, with a bound: fastavro takes seconds for one of 200,000 bytes.

A schema's decimals get a logical type of our own, which fastavro then reads by a function that is
registered for it. A decimal with more digits than the schema says is not rounded, as fastavro does,
but left to the column, which it does not fit.
"""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, Final

from penstock.decoding.broken import Broken

DECIMAL: Final = "penstock-decimal"
"""The logical type of decimals in schemas changed by this module."""

BYTES_MAX: Final = 128

_EXACT: Final = Context(prec=400)  # more digits than ``BYTES_MAX`` bytes have
_INNER: Final = ("type", "fields", "items", "values")


def with_bounded_decimals(schema: Any) -> Any:
    """Return the schema with the logical type of its decimals replaced by ``DECIMAL``."""
    from fastavro.read import LOGICAL_READERS

    for kind in ("bytes", "fixed"):
        LOGICAL_READERS[f"{kind}-{DECIMAL}"] = _read
    return _replace_decimals(schema)


def _replace_decimals(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_replace_decimals(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {
        key: _replace_decimals(value) if key in _INNER else value for key, value in schema.items()
    }
    if schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed"):
        changed["logicalType"] = DECIMAL
    return changed


def _read(value: bytes, schema: Any, reader_schema: Any = None) -> Decimal:  # noqa: ARG001
    if len(value) > BYTES_MAX:
        raise Broken(f"The payload has a decimal of more than {BYTES_MAX} bytes.")
    unscaled = int.from_bytes(value, "big", signed=True)
    return Decimal(unscaled).scaleb(-schema.get("scale", 0), _EXACT)
