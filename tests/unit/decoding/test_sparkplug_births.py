"""`sparkplug_b`: names and types that only the birth certificate of a node or device has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.decoder import DecoderDefinition
from penstock.decoding.decoder import DecodingPostponed
from penstock.decoding.sparkplug import SparkplugDecoder
from penstock.decoding.sparkplug_births import (
    Births,
    birth_filters,
    births_among,
    is_birth,
)
from penstock.engine.values.topics import topic_matches
from tests.unit.decoding.decode import Outcome, batch_of, decoder, outcome
from tests.unit.decoding.sparkplug_payloads import metric, payload

NODE = "spBv1.0/plant/{}/edge"
DEVICE = "spBv1.0/plant/{}/edge/press"
Message = tuple[str, bytes]


def land(*messages: Message) -> Outcome:
    return outcome(
        decoder(kind="sparkplug_b"), [one for _, one in messages], [topic for topic, _ in messages]
    )


def values_of(birth: dict[str, Any], data: dict[str, Any], column: str) -> list[Any]:
    """The column of the metrics of a DDATA after a DBIRTH that defines them."""
    found = land((DEVICE.format("DBIRTH"), payload(birth)), (DEVICE.format("DDATA"), payload(data)))
    assert found.broken == {}
    return [row[column] for row in found.rows[1:]]


SIGNED = [
    ("Int8", {"int_value": 2**32 - 1}, -1),
    ("Int8", {"int_value": 0x80}, -128),
    ("Int16", {"int_value": 2**32 - 7}, -7),
    ("Int16", {"int_value": 0xFFF9}, -7),
    ("Int32", {"int_value": 2**32 - 1}, -1),
    ("Int64", {"long_value": 2**64 - 5}, -5),
    ("Int32", {"long_value": 2**64 - 5}, -5),
    ("UInt32", {"int_value": 2**32 - 1}, 2**32 - 1),
]


@pytest.mark.parametrize(("datatype", "value", "number"), SIGNED, ids=str)
@pytest.mark.parametrize("name", [{"name": "m"}, {"alias": 5}, {"name": "m", "alias": 5}], ids=str)
def test_a_whole_number_without_its_type_has_the_sign_that_its_birth_tells(
    datatype: str, value: dict[str, int], number: int, name: dict[str, Any]
) -> None:
    """Issue 37: an Int32 of -1 landed as 4294967295, as the specification recommends to send it
    (tck-id-payloads-metric-datatype-not-req)."""
    birth = metric("m", datatype, alias=5, int_value=0)
    found = land(
        (NODE.format("NBIRTH"), payload(birth)), (NODE.format("NDATA"), payload(name | value))
    )
    row = found.rows[1]
    assert (row["value_int"], row["value_double"]) == (number, float(number))
    assert (row["name"], row["datatype"]) == ("m", datatype)


@pytest.mark.parametrize(
    ("datatype", "value", "column", "wanted"),
    [
        ("Float", {"float_value": 0.5}, "value_double", 0.5),
        ("Boolean", {"boolean_value": True}, "value_bool", True),
        ("Boolean", {"int_value": 1}, "value_bool", True),
        ("DateTime", {"long_value": 1000}, "value_timestamp", "1970-01-01 00:00:01+00:00"),
        ("UInt64", {"long_value": 2**64 - 1}, "value_string", str(2**64 - 1)),
        ("String", {"string_value": "-1"}, "value_string", "-1"),
        ("Bytes", {"bytes_value": b"\xff"}, "value_binary", b"\xff"),
        ("Int8Array", {"bytes_value": b"\xff\x01"}, "value_json", "[-1,1]"),
        ("BooleanArray", {"bytes_value": b"\x01\0\0\0\x80"}, "value_json", "[true]"),
    ],
)
def test_any_value_without_its_type_is_in_the_column_that_its_birth_tells(
    datatype: str, value: dict[str, Any], column: str, wanted: Any
) -> None:
    found = values_of(metric("m", datatype, is_null=True, alias=1), {"alias": 1, **value}, column)
    assert found == [wanted] or list(map(str, found)) == [wanted]


def data_set(types: Sequence[int], number: int) -> dict[str, Any]:
    rows = [{"elements": [{"int_value": number}]}]
    return {"dataset_value": {"columns": ["a"], "types": types, "rows": rows}}


def template(reference: str, number: int, kind: dict[str, Any], **more: Any) -> dict[str, Any]:
    member = {"name": "rpm", "int_value": number, **kind.get("member", {})}
    parameter = {"name": "turns", "int_value": number, **kind.get("parameter", {})}
    value = {"template_ref": reference, "metrics": [member], "parameters": [parameter], **more}
    return {"template_value": value}


TYPED = {"member": {"datatype": 3}, "parameter": {"type": 2}}


def test_the_parts_of_a_metric_have_the_types_of_its_birth() -> None:
    birth = metric("d", "DataSet", **data_set([3], 0))
    assert values_of(birth, {"name": "d", **data_set([], 2**32 - 1)}, "value_json") == [
        '[{"a":-1}]'
    ]
    birth = metric("t", "Template", **template("Motor", 0, TYPED))
    values = values_of(birth, {"name": "t", **template("Motor", 2**32 - 3, {})}, "value_json")
    assert '"metrics":{"rpm":-3},"parameters":{"turns":-3}' in values[0]
    typed = {"keys": ["low"], "values": [{"type": 1, "int_value": 0}]}
    untyped = {"keys": ["low"], "values": [{"int_value": 255}]}
    birth = metric("p", "Float", float_value=0.0, properties=typed)
    data = {"name": "p", "float_value": 1.0, "properties": untyped}
    assert values_of(birth, data, "properties") == ['{"low":-1}']


def test_a_template_that_was_null_in_its_birth_has_the_types_of_its_definition() -> None:
    definition = metric("Motor", "Template", **template("", 0, TYPED, is_definition=True))
    found = land(
        (NODE.format("NBIRTH"), payload(definition)),
        (DEVICE.format("DBIRTH"), payload(metric("t", "Template", is_null=True))),
        (DEVICE.format("DDATA"), payload({"name": "t", **template("Motor", 2**32 - 3, {})})),
    )
    assert '"rpm":-3' in found.rows[2]["value_json"]


WHOLE = {"name": "m", "int_value": 2**32 - 1}


@pytest.mark.parametrize("data", [WHOLE, {"alias": 7, "bytes_value": b"\xff"}], ids=str)
@pytest.mark.parametrize(
    ("topic", "missing"),
    [
        (NODE.format("NDATA"), "no NBIRTH of its node is known"),
        (DEVICE.format("DDATA"), "no DBIRTH of its device is known"),
        (NODE.format("NBIRTH"), "a birth must tell it"),
        ("a/b", "its topic is that of no Sparkplug node"),
    ],
)
def test_without_a_birth_the_message_is_broken_and_says_so(
    data: dict[str, Any], topic: str, missing: str
) -> None:
    found = land((topic, payload(data)))
    assert found.rows == []
    name = "'m'" if data is WHOLE else "7"
    assert found.broken == {0: f"Metric {name} has no data type, and {missing}."}


def test_a_metric_that_tells_its_own_type_needs_no_birth() -> None:
    values = payload(
        {"name": "f", "float_value": -0.5},
        {"alias": 3, "boolean_value": False},
        {"name": "s", "string_value": "x"},
        {"name": "n", "is_null": True},
        {"name": "bdSeq", "long_value": 4},
    )
    found = land((NODE.format("NDATA"), values))
    assert [row["name"] for row in found.rows] == ["f", None, "s", "n", "bdSeq"]
    assert found.rows[4]["value_int"] == 4


def births(kind: str, datatype: str, alias: int = 1) -> Message:
    topic = NODE if kind == "NBIRTH" else DEVICE
    return topic.format(kind), payload(metric("m", datatype, alias=alias, int_value=0))


MINUS_ONE = DEVICE.format("DDATA"), payload({"alias": 1, "int_value": 2**32 - 1})


def test_a_new_birth_replaces_all_definitions() -> None:
    other = DEVICE.format("DBIRTH"), payload(metric("n", "UInt32", alias=1, int_value=0))
    found = land(births("DBIRTH", "Int32"), MINUS_ONE, other, MINUS_ONE)
    assert [(row["name"], row["value_int"]) for row in found.rows if row["alias"] == 1][1::2] == [
        ("m", -1), ("n", 2**32 - 1),
    ]  # fmt: skip
    by_name = DEVICE.format("DDATA"), payload(WHOLE)
    found = land(births("DBIRTH", "Int32"), other, by_name)
    assert found.broken == {
        2: "Metric 'm' has no data type, and its birth at offset 1 has none for it."
    }


def test_a_birth_of_the_node_ends_the_definitions_of_its_devices() -> None:
    found = land(
        births("NBIRTH", "Int32"), births("DBIRTH", "Int32"), MINUS_ONE,
        births("NBIRTH", "Int32"), MINUS_ONE,
        births("DBIRTH", "Int16"), MINUS_ONE,
    )  # fmt: skip
    reason = "its device was not born again after the NBIRTH at offset 3"
    assert found.broken == {4: f"Metric 1 has no data type, and {reason}."}
    assert [row["datatype"] for row in found.rows] == [
        "Int32", "Int32", "Int32", "Int32", "Int16", "Int16",
    ]  # fmt: skip


def test_a_death_ends_no_definition_and_nodes_do_not_share_any() -> None:
    elsewhere = "site/spBv1.0/plant/DDATA/edge/press", MINUS_ONE[1]
    other_device = "spBv1.0/plant/DDATA/edge/lathe", MINUS_ONE[1]
    found = land(
        births("NBIRTH", "Int32"), births("DBIRTH", "Int32"),
        (NODE.format("NDEATH"), payload({"name": "bdSeq", "long_value": 0})),
        MINUS_ONE, elsewhere, other_device,
    )  # fmt: skip
    assert found.rows[-1]["value_int"] == -1
    assert list(found.broken) == [4, 5]


def test_a_birth_that_is_broken_defines_nothing() -> None:
    found = land(births("DBIRTH", "Int32"), (DEVICE.format("DBIRTH"), b"\x12\x05ab"), MINUS_ONE)
    assert found.broken[2] == (
        "Metric 1 has no data type, and its birth at offset 1 is broken: The payload is not"
        " Sparkplug B."
    )


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (metric("m", "Int8", int_value=300), "is 300, which is out of range for Int8."),
        (metric("m", "Int16", int_value=0x8000_0000), "is 2147483648, which is out of range"),
        (metric("m", "Float", int_value=1), "has the type Float, and a whole number as its value."),
        ({"name": "m", "datatype": 99, "int_value": 1}, "has the type 99, and a whole number as"),
    ],
)
def test_a_whole_number_that_does_not_fit_its_type_is_broken(
    data: dict[str, Any], said: str
) -> None:
    """An Int8 of 300 landed as 44."""
    found = land((NODE.format("NDATA"), payload(data)))
    assert found.broken[0].startswith(f"Metric 'm' {said}")


def known_births(messages: Sequence[Message], **limits: Any) -> Births:
    topics, payloads = zip(*messages, strict=True)
    batch = batch_of(payloads, topics)
    return Births([births_among(batch.offsets, batch.topics, batch.payloads)], **limits)


def test_nothing_is_defined_by_a_birth_before_messages_that_are_lost() -> None:
    messages = [births("NBIRTH", "Int32"), births("DBIRTH", "Int32"), MINUS_ONE, MINUS_ONE]
    known = known_births(messages, gaps=[(0, 0), (2, 3)])
    topic = MINUS_ONE[0]
    assert known.find(topic, 2).own is not None
    assert known.find(topic, 3).missing == (
        "no DBIRTH of its device is known (messages before offset 3 are unknown)"
    )


def test_a_message_behind_the_known_births_is_decoded_later() -> None:
    messages = [births("DBIRTH", "Int32"), MINUS_ONE]
    made = SparkplugDecoder(DecoderDefinition(kind="sparkplug_b"), known_births(messages, end=1))
    with pytest.raises(DecodingPostponed):
        outcome(made, [MINUS_ONE[1]] * 2, [MINUS_ONE[0]] * 2)


MESSAGES = st.sampled_from(
    [
        births("NBIRTH", "Int32"),
        births("DBIRTH", "Int32"),
        births("DBIRTH", "UInt32"),
        births("DBIRTH", "Int32", alias=2),
        (DEVICE.format("DBIRTH"), b"?"),
        MINUS_ONE,
        (DEVICE.format("DDATA"), payload({"alias": 2, "int_value": 2**32 - 1})),
        (NODE.format("NDATA"), payload(WHOLE)),
    ]
)


@given(st.lists(MESSAGES, min_size=1, max_size=12), st.data())
def test_a_message_becomes_the_same_rows_wherever_batches_begin(
    messages: list[Message], data: st.DataObject
) -> None:
    whole = land(*messages)
    made = SparkplugDecoder(DecoderDefinition(kind="sparkplug_b"), known_births(messages))
    topics, payloads = zip(*messages, strict=True)
    batch = batch_of(payloads, topics)
    first = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(first + 1, len(messages)))
    part = made.decode(batch.take(pa.array(range(first, end))))
    wanted = [
        row for row, source in zip(whole.rows, whole.sources, strict=True) if first <= source < end
    ]
    assert part.rows.to_pylist() == wanted
    reasons = dict(zip(part.broken.to_pylist(), part.reasons.to_pylist(), strict=True))
    assert {first + position: why for position, why in reasons.items()} == {
        position: why for position, why in whole.broken.items() if first <= position < end
    }


@pytest.mark.parametrize(
    ("topic_filter", "wanted"),
    [
        ("spBv1.0/+/+/#", ["spBv1.0/+/NBIRTH/+", "spBv1.0/+/DBIRTH/+/+"]),
        ("spBv1.0/plant/NDATA/+", ["spBv1.0/plant/NBIRTH/+"]),
        (
            "spBv1.0/plant/DDATA/+/press",
            ["spBv1.0/plant/NBIRTH/+", "spBv1.0/plant/DBIRTH/+/press"],
        ),
        ("site/+/plant/+/+", ["site/spBv1.0/plant/NBIRTH/+"]),
        ("plant/line/temp", []),
        ("spBv1.0/STATE/+", []),
    ],
)
def test_the_births_of_a_filter_are_found_by_filters(topic_filter: str, wanted: list[str]) -> None:
    assert list(birth_filters(topic_filter)) == wanted


@pytest.mark.parametrize("topic_filter", ["#", "+/#", "site/#", "site/+/+/#", "+/+/+/+/+"])
@pytest.mark.parametrize(
    "topic", [NODE, DEVICE, f"site/{NODE}", f"site/{DEVICE}", f"site/a/{DEVICE}"]
)
def test_a_birth_whose_data_match_a_filter_is_found_by_its_filters(
    topic_filter: str, topic: str
) -> None:
    kind = "D" if topic.endswith("press") else "N"
    data, birth = topic.format(f"{kind}DATA"), topic.format(f"{kind}BIRTH")
    assert is_birth(birth)
    assert not is_birth(data)
    if topic_matches(topic_filter, data):
        assert any(topic_matches(one, birth) for one in birth_filters(topic_filter))
