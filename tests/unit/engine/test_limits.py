"""The limits as the engine reads them: each of the declared ones, and the smaller of two."""

import ast
from pathlib import Path

import pytest

from penstock.engine.values.declared_limits import GROUPS, MemoryLimits
from penstock.engine.values.limits import EngineLimits
from tests.unit.engine.bench import publishes
from tests.unit.engine.pair import Pair, numbered

SOURCE = Path(__file__).resolve().parents[3] / "src/penstock/engine/values/limits.py"
DECLARED = {name for group in GROUPS for name in group.__annotations__}


def test_each_limit_is_an_attribute_of_the_engine_s() -> None:
    source = ast.parse(SOURCE.read_text(encoding="utf-8"))  # the compiled class tells nothing
    (kind,) = (one for one in source.body if isinstance(one, ast.ClassDef))
    attributes = {
        one.target.id
        for one in kind.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    assert attributes == DECLARED


def test_memory_is_not_bounded_unless_asked() -> None:
    engine = EngineLimits()
    assert engine.share_max == 1.0
    assert {getattr(engine, name) for name in set(MemoryLimits.__annotations__)} == {0, 1.0}


def test_a_limit_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="no limit 'max_in_flight'"):
        EngineLimits(max_in_flight=3)


@pytest.mark.parametrize(
    ("own", "peer", "window"), [(5, None, 5), (5, 3, 3), (0, 7, 7), (2, 9, 2), (0, None, 20)]
)
def test_the_smaller_of_both_limits_is_kept(own: int, peer: int | None, window: int) -> None:
    """[MQTT-3.3.4-9]"""
    pair = Pair(EngineLimits(max_inflight=own))
    line = pair.rejoin(receive_maximum=peer)
    pair.publish(*numbered(20))
    pair.bench.commit()
    assert len(publishes(line.read())) == window
