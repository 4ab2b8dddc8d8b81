"""The defaults that the page of options names are those that count."""

import re
from dataclasses import replace

import pytest

from penstock.spark.declared_options import SINK_OPTIONS, SOURCE_OPTIONS, DeclaredOption
from penstock.spark.options import parse_options
from penstock.spark.sink_options import parse_sink_options


def with_value(options: tuple[DeclaredOption, ...]) -> list[object]:
    """Options whose default is a value that can be given."""
    found = [(one.name, re.fullmatch("`([^`]+)`", one.default)) for one in options]
    return [pytest.param(name, value[1], id=name) for name, value in found if value]


@pytest.mark.parametrize(("name", "default"), with_value(SOURCE_OPTIONS))
def test_a_default_of_the_source_is_what_counts_without_it(name: str, default: str) -> None:
    needed = {"startingOffsetsByTimestampStrategy": {"startingTimestamp": "1700000000000"}}
    others = needed.get(name, {"groupId": "g"} if name == "groupLeaseSeconds" else {})
    without = parse_options(others)
    assert (
        replace(parse_options(others | {name: default}), given_names=without.given_names) == without
    )


@pytest.mark.parametrize(("name", "default"), with_value(SINK_OPTIONS))
def test_a_default_of_the_sink_is_what_counts_without_it(name: str, default: str) -> None:
    others = {"sinkId": "rows"} if name == "batchId" else {}
    without = parse_sink_options(others, False)
    assert parse_sink_options(others | {name: default}, False) == without


@pytest.mark.parametrize("options", [SOURCE_OPTIONS, SINK_OPTIONS])
def test_every_option_is_explained_once(options: tuple[DeclaredOption, ...]) -> None:
    assert all(one.text for one in options)
    assert len({one.name for one in options}) == len(options)
