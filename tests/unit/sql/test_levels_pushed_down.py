"""A condition on a named topic level of a declared table narrows the topics that the log sends."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from penstock.config.table import TableDefinition
from penstock.sql.declared_rows import DeclaredRows
from penstock.stream.pushed_filters import PushedFilters

MACHINE, LINE = pc.field("machine"), pc.field("line")


def narrowed(predicate: pc.Expression | None) -> tuple[str, ...]:
    settings = {"name": "t", "topics": "plant/{line}/{machine}/+/{n:int}", "decoder": "text"}
    declared = DeclaredRows(TableDefinition.model_validate(settings))
    return declared.narrow(predicate, PushedFilters(topics=(declared.topic_filter,))).topics


@pytest.mark.parametrize(
    ("predicate", "topics"),
    [
        (MACHINE == "m7", ("plant/+/m7/+/+",)),
        (MACHINE.isin(["m7", "m8"]), ("plant/+/m7/+/+", "plant/+/m8/+/+")),
        ((LINE == "l1") & (MACHINE == "m7"), ("plant/l1/m7/+/+",)),
    ],
)
def test_named_levels_become_topic_filters(
    predicate: pc.Expression, topics: tuple[str, ...]
) -> None:
    assert narrowed(predicate) == topics


@pytest.mark.parametrize(
    "predicate",
    [
        None,
        MACHINE != "m7",
        MACHINE >= "m7",
        (MACHINE == "m7") | (LINE == "l1"),
        MACHINE == "a/b",
        MACHINE == "+",
        pc.field("n") == 7,
        (MACHINE == "m7") | (pc.field("n") == 7),
    ],
)
def test_a_condition_that_restricts_no_level_to_values_reads_all(
    predicate: pc.Expression | None,
) -> None:
    assert narrowed(predicate) == ("plant/+/+/+/+",)
