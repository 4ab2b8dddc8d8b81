"""Each limit is declared once, for the engine and for the settings."""

import ast
from pathlib import Path

import pytest

from penstock.config.settings import Settings
from penstock.engine.values.declared_limits import GROUPS, MemoryLimits, limits_in
from penstock.engine.values.limits import EngineLimits

SOURCE = Path(__file__).resolve().parents[3] / "src/penstock/engine/values/limits.py"
DECLARED = {name for group in GROUPS for name in group.__annotations__}


def test_each_limit_is_a_setting_with_the_same_default() -> None:
    settings, engine = Settings(), EngineLimits()
    groups = (settings.limits, settings.listener, settings.memory, settings.durability)
    offered = {name: value for group in groups for name, value in limits_in(group).items()}
    assert set(offered) == DECLARED
    for name in DECLARED - set(MemoryLimits.__annotations__):
        assert getattr(engine, name) == offered[name], name


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
