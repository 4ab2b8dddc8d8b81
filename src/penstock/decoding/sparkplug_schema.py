"""The messages of Sparkplug B as a Protobuf descriptor (Sparkplug 3.0.0 §6.4.1).

Only decoded fields are described, by field number, name and type; Protobuf skips the others as
unknown ones. The extensions that each message reserves are left out. The fields whose names end in
`_value` are the choice (oneof) `value` of their message.
"""

from __future__ import annotations

from typing import Any, Final

_PACKAGE: Final = "penstock.sparkplug_b"

_MESSAGES: Final = {
    "Payload": """
        1 timestamp uint64 | 2 metrics Metric* | 3 seq uint64 | 4 uuid string | 5 body bytes""",
    "Outline": "2 metrics bytes*",
    "Metric": """
        1 name string | 2 alias uint64 | 3 timestamp uint64 | 4 datatype uint32
        | 5 is_historical bool | 6 is_transient bool | 7 is_null bool
        | 8 metadata MetaData | 9 properties PropertySet
        | 10 int_value uint32 | 11 long_value uint64 | 12 float_value float | 13 double_value double
        | 14 boolean_value bool | 15 string_value string | 16 bytes_value bytes
        | 17 dataset_value DataSet | 18 template_value Template""",
    "MetaData": """
        1 is_multi_part bool | 2 content_type string | 3 size uint64 | 4 seq uint64
        | 5 file_name string | 6 file_type string | 7 md5 string | 8 description string""",
    "PropertySet": "1 keys string* | 2 values PropertyValue*",
    "PropertySetList": "1 propertyset PropertySet*",
    "PropertyValue": """
        1 type uint32 | 2 is_null bool | 3 int_value uint32 | 4 long_value uint64
        | 5 float_value float | 6 double_value double | 7 boolean_value bool | 8 string_value string
        | 9 propertyset_value PropertySet | 10 propertysets_value PropertySetList""",
    "DataSet": """
        1 num_of_columns uint64 | 2 columns string* | 3 types uint32* | 4 rows DataSetRow*""",
    "DataSetRow": "1 elements DataSetValue*",
    "DataSetValue": """
        1 int_value uint32 | 2 long_value uint64 | 3 float_value float | 4 double_value double
        | 5 boolean_value bool | 6 string_value string""",
    "Template": """
        1 version string | 2 metrics Metric* | 3 parameters Parameter* | 4 template_ref string
        | 5 is_definition bool""",
    "Parameter": """
        1 name string | 2 type uint32 | 3 int_value uint32 | 4 long_value uint64
        | 5 float_value float | 6 double_value double | 7 boolean_value bool
        | 8 string_value string""",
}
"""The fields of each message: number, name and type, with a star if repeated. `Outline` reads a
Payload without parsing its metrics, to count them."""

DATATYPES: Final = {
    1: "Int8",
    2: "Int16",
    3: "Int32",
    4: "Int64",
    5: "UInt8",
    6: "UInt16",
    7: "UInt32",
    8: "UInt64",
    9: "Float",
    10: "Double",
    11: "Boolean",
    12: "String",
    13: "DateTime",
    14: "Text",
    15: "UUID",
    16: "DataSet",
    17: "Bytes",
    18: "File",
    19: "Template",
    20: "PropertySet",
    21: "PropertySetList",
    22: "Int8Array",
    23: "Int16Array",
    24: "Int32Array",
    25: "Int64Array",
    26: "UInt8Array",
    27: "UInt16Array",
    28: "UInt32Array",
    29: "UInt64Array",
    30: "FloatArray",
    31: "DoubleArray",
    32: "BooleanArray",
    33: "StringArray",
    34: "DateTimeArray",
}
"""Names of the data types, Sparkplug 3.0.0 §6.4.16."""


def payload_class(message_name: str = "Payload") -> Any:
    """Return the Protobuf class of a message of `_MESSAGES`, in a descriptor pool of its own."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(
        name="penstock/sparkplug_b.proto", package=_PACKAGE, syntax="proto2"
    )
    field_kind = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields.split("|"):
            number, field_name, kind = field.split()
            is_choice = field_name.endswith("_value")
            if is_choice and not message.oneof_decl:
                message.oneof_decl.add(name="value")
            single = kind.removesuffix("*")
            repeated = field_kind.LABEL_REPEATED
            added = message.field.add(
                name=field_name,
                number=int(number),
                label=field_kind.LABEL_OPTIONAL if kind == single else repeated,
            )
            if is_choice:
                added.oneof_index = 0
            if single in _MESSAGES:
                added.type = field_kind.TYPE_MESSAGE
                added.type_name = f".{_PACKAGE}.{single}"
            else:
                added.type = field_kind.Type.Value(f"TYPE_{single.upper()}")
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{message_name}"))
