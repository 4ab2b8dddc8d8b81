"""The topic patterns that are inferred: which levels are columns, and which tell tables apart."""

from __future__ import annotations

import random

from tests.unit.decoding.inference.inferring import Messages, inferred, the_one
from tests.unit.decoding.sparkplug_payloads import birth


def patterns(messages: Messages, topics: str = "#") -> list[str]:
    return sorted(landed.topics for landed in inferred(messages, topics))


def test_a_level_that_varies_is_a_column_named_by_the_word_before_it() -> None:
    landed = the_one([("plant/lines/a/machine/7", b"1"), ("plant/lines/b/machine/8", b"2")])
    assert landed.topics == "plant/lines/{line}/machine/{machine:int}"
    assert [(row["line"], row["machine"]) for row in landed.rows] == [("a", 7), ("b", 8)]
    assert landed.tried.table.name == "plant_lines_machine"


def test_a_number_is_one_of_many_even_where_it_is_alone() -> None:
    assert the_one([("plant/line/7/temp", b"1")]).topics == "plant/line/{line:int}/temp"
    assert the_one([("plant/line/7/temp", b"1")], "plant/line/7/#").topics == "plant/line/7/temp"


def test_numbers_that_begin_with_a_zero_stay_text() -> None:
    landed = the_one([("line/007", b"1"), ("line/8", b"2")])
    assert landed.topics == "line/{line}"
    assert [row["line"] for row in landed.rows] == ["007", "8"]


def test_names_that_were_asked_for_are_kept() -> None:
    messages = [("plant/a/7/temp", b"1"), ("plant/a/8/temp", b"2")]
    assert patterns(messages, "plant/{hall}/{machine:int}/#") == ["plant/{hall}/{machine:int}/temp"]
    assert patterns(messages, "+/{hall}/+/temp") == ["{level_1}/{hall}/{level_3:int}/temp"]


def test_a_level_that_tells_kinds_of_payloads_apart_is_in_the_pattern() -> None:
    rooms = ("kitchen", "attic", "hall")
    messages = [
        message
        for room in rooms
        for message in (
            (f"home/{room}/temp", b"21.5"),
            (f"home/{room}/light", b"on"),
            (f"home/{room}/info", b'{"ip": "10.0.0.1", "rssi": -60}'),
        )
    ]
    assert patterns(messages) == ["home/{home}/info", "home/{home}/light", "home/{home}/temp"]


def test_a_device_that_is_away_tells_nothing_apart() -> None:
    messages = [(f"home/{room}/{what}", b"21.5") for room in "abc" for what in ("temp", "hum")]
    messages[3] = ("home/b/hum", b"unavailable")
    landed = the_one(messages)
    assert landed.topics == "home/{home}/{level_3}"
    assert [row["value"] for row in landed.rows].count(None) == 1


def test_devices_of_different_keys_are_one_table_where_there_are_many() -> None:
    messages = [(f"dev/{n}", b'{"a": 1, "b": 2}' if n % 2 else b'{"c": 1}') for n in range(20)]
    landed = the_one(messages)
    assert landed.topics == "dev/{dev:int}"
    assert list(landed.columns) == ["c", "a", "b"]


def test_kinds_that_no_level_tells_apart_are_one_table() -> None:
    chance = random.Random(1)
    kinds = (b"on", b"1", b'{"a": 1}', b"1,2")
    words = ["".join(chance.choices("abcdef", k=3)) for _ in range(15)]
    messages = [("/".join(chance.choices(words, k=4)), chance.choice(kinds)) for _ in range(2000)]
    (landed,) = inferred(messages)
    assert landed.kind == "text"


def test_topics_of_another_depth_are_another_table() -> None:
    assert patterns([("a/b", b"1"), ("a/b/c", b"2")], "a/#") == ["a/b", "a/b/c"]


def test_braces_of_a_topic_are_doubled() -> None:
    assert the_one([("a/{x}", b"1")]).topics == "a/{{x}}"


def test_names_of_levels_and_fields_differ() -> None:
    landed = the_one([("device/a", b'{"device": 1}'), ("device/b", b'{"device": 2}')])
    assert landed.topics == "device/{device}"
    assert landed.columns == {"payload_device": {"type": "int", "path": "device"}}


def test_sparkplug_is_known_by_its_namespace_and_its_payloads() -> None:
    messages = [
        ("spBv1.0/plant/NBIRTH/edge", birth()),
        ("spBv1.0/plant/DBIRTH/edge/press", birth()),
        ("spBv1.0/STATE/host", b'{"online": true, "timestamp": 1700000000000}'),
        ("site/spBv1.0/plant/DBIRTH/edge/press", birth()),
    ]
    found = {landed.topics: landed for landed in inferred(messages)}
    assert sorted(found) == [
        "site/spBv1.0/{group}/{message}/{node}/{device:#}",
        "spBv1.0/STATE/host",
        "spBv1.0/{group}/{message}/{node}/{device:#}",
    ]
    own = found["spBv1.0/{group}/{message}/{node}/{device:#}"]
    assert {(row["message"], row["device"]) for row in own.rows} == {
        ("NBIRTH", None),
        ("DBIRTH", "press"),
    }
    assert not any(landed.dead for landed in found.values())


def test_json_below_the_namespace_of_sparkplug_is_json() -> None:
    landed = the_one([("spBv1.0/plant/DDATA/edge/press", b'{"v": 1}')])
    assert (landed.kind, landed.topics) == ("json", "spBv1.0/plant/DDATA/edge/press")


def test_topics_with_nothing_but_empty_payloads_are_left_out() -> None:
    assert patterns([("a/b", b"1"), ("a/c", b"")]) == ["a/b"]
