"""`senml`: RFC 8428, in JSON and CBOR, resolved: each record with a value or a sum is a row.

    [{"bn": "urn:dev:1:", "bt": 1.7e9, "n": "t", "u": "Cel", "v": 20}, {"n": "h", "v": 40, "t": 60}]
      name         time        unit  value
      urn:dev:1:t  1700000000  Cel   20.0
      urn:dev:1:h  1700000060        40.0

A time before 2**28 counts from now (§4.5.3). What that means is known where the message was
received: the row has such a time in `time_offset`, in seconds, and none in `time`.
"""

from __future__ import annotations

import base64
import binascii
import re
from decimal import Decimal
from typing import Any, Final

from penstock.config.decoder import Column
from penstock.decoding.broken_payload import BrokenPayload
from penstock.decoding.repetition_limit import exceeds_repetition_limit

COLUMNS: Final = {
    "name": Column(type="string"),
    "unit": Column(type="string"),
    "value": Column(type="float"),
    "string_value": Column(type="string"),
    "bool_value": Column(type="bool"),
    "data_value": Column(type="binary"),
    "sum": Column(type="float"),
    "time": Column(type="timestamp", unit_from="s"),
    "time_offset": Column(type="float"),
    "update_time": Column(type="float"),
}
"""The columns of a table that declares none."""

_LABELS: Final = {
    "-1": "bver",
    "-2": "bn",
    "-3": "bt",
    "-4": "bu",
    "-5": "bv",
    "-6": "bs",
    "0": "n",
    "1": "u",
    "2": "v",
    "3": "vs",
    "4": "vb",
    "5": "s",
    "6": "t",
    "7": "ut",
    "8": "vd",
}
"""The labels of CBOR, RFC 8428 §6."""

_NUMBERS: Final = ("bt", "bv", "bs", "v", "s", "t", "ut", "bver")
_TEXTS: Final = ("bn", "bu", "n", "u", "vs")
_BASES: Final = ("bn", "bt", "bu", "bv", "bs", "bver")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9:./_-]*")  # §4.5.1
_RELATIVE_TIME_S: Final = 2**28
_VERSION_MAX: Final = 10


def resolve_senml(pack: object, length: int) -> list[dict[str, Any]]:
    """Return a row for each record with a value or a sum.

    Args:
        pack: the records, with the names of JSON or the labels of CBOR.
        length: the length of the payload in bytes, which bounds how often bases are repeated.

    Raises:
        BrokenPayload: the pack is not SenML, or of a later version.
    """
    if not isinstance(pack, list):
        raise BrokenPayload("The payload is not a list of SenML records.")
    bases: dict[str, Any] = {}
    rows = []
    repeated = 0
    for number, labelled in enumerate(pack, 1):
        if not isinstance(labelled, dict):
            raise BrokenPayload(f"SenML record {number} is no object.")
        record = {
            _LABELS.get(str(key), str(key)): float(value) if isinstance(value, Decimal) else value
            for key, value in labelled.items()
        }
        mistake = _mistake(record)
        if mistake:
            raise BrokenPayload(f"SenML record {number} {mistake}.")
        bases |= {name: record[name] for name in _BASES if name in record}
        if bases.get("bver", _VERSION_MAX) > _VERSION_MAX:
            raise BrokenPayload(f"SenML record {number} is of version {bases['bver']}.")
        if not record.keys() & {"v", "vs", "vb", "vd", "s"}:
            continue  # bases only
        row = _resolve(record, bases)
        if not _NAME.fullmatch(row["name"]):
            raise BrokenPayload(f"The name of SenML record {number} is empty or not allowed.")
        repeated += len(row["name"]) + len(row["unit"] or "")
        if exceeds_repetition_limit(repeated, length):
            raise BrokenPayload("The SenML pack repeats its base name too often.")
        rows.append(row)
    return rows


def _mistake(record: dict[str, Any]) -> str:
    for name in _NUMBERS:
        value = record.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"has a {name} that is no number"
    for name in _TEXTS:
        if not isinstance(record.get(name, ""), str):
            return f"has a {name} that is no text"
    if not isinstance(record.get("vb", True), bool):
        return "has a vb that is neither true nor false"
    if not isinstance(record.get("vd", ""), (str, bytes)):
        return "has a vd that is no data"
    if len(record.keys() & {"v", "vs", "vb", "vd"}) > 1:
        return "has more than one value"
    if any(name.endswith("_") for name in record):  # §4.4
        return "has a field that must be understood, and is not"
    return ""


def _resolve(record: dict[str, Any], bases: dict[str, Any]) -> dict[str, Any]:
    time = bases.get("bt", 0) + record.get("t", 0)
    is_absolute = time >= _RELATIVE_TIME_S
    has_sum = "s" in record or "bs" in bases
    return {
        "name": bases.get("bn", "") + record.get("n", ""),
        "unit": record.get("u", bases.get("bu")),
        "value": bases.get("bv", 0) + record["v"] if "v" in record else None,
        "string_value": record.get("vs"),
        "bool_value": record.get("vb"),
        "data_value": _data(record["vd"]) if "vd" in record else None,
        "sum": bases.get("bs", 0) + record.get("s", 0) if has_sum else None,
        "time": time if is_absolute else None,
        "time_offset": time if time and not is_absolute else None,
        "update_time": record.get("ut"),
    }


def _data(value: str | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        padded = value + "=" * (-len(value) % 4)
        return base64.b64decode(padded, b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BrokenPayload("A vd of the SenML pack is not base64url.") from None
