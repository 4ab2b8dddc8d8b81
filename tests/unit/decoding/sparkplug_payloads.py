"""Payloads of Sparkplug B, built as Eclipse Tahu's clients do (Sparkplug 3.0.0 §6.4)."""

from __future__ import annotations

from typing import Any

from penstock.decoding.sparkplug_schema import DATATYPES, payload_class

NUMBERS = {name: number for number, name in DATATYPES.items()}
PAYLOAD = payload_class()


def payload(*metrics: dict[str, Any], timestamp: int = 1_768_910_740_123, seq: int = 3) -> bytes:
    made = PAYLOAD(timestamp=timestamp, seq=seq, metrics=metrics)
    return bytes(made.SerializeToString())


def metric(name: str, datatype: str, **value: Any) -> dict[str, Any]:
    return {"name": name, "datatype": NUMBERS[datatype], "timestamp": 1_768_910_740_000, **value}


def birth() -> bytes:
    """A DBIRTH of a machine, with one metric of most kinds."""
    return payload(
        metric("bdSeq", "UInt64", long_value=0),
        metric("Node Control/Rebirth", "Boolean", boolean_value=False),
        metric("Temperature", "Float", float_value=21.5, alias=5),
        metric("Offset", "Int16", int_value=2**32 - 7),
        metric("Serial", "String", string_value="A1"),
        metric("Started", "DateTime", long_value=1_768_910_740_000),
        metric("Levels", "Int16Array", bytes_value=b"\x01\x00\xff\xff"),
        seq=0,
    )
