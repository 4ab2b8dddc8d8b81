"""Declared limits are the settings."""

from penstock.config.settings import Settings
from penstock.engine.values.declared_limits import GROUPS, MemoryLimits, limits_in
from penstock.engine.values.limits import EngineLimits

DECLARED = {name for group in GROUPS for name in group.__annotations__}


def test_each_limit_is_a_setting_with_the_same_default() -> None:
    settings, engine = Settings(), EngineLimits()
    groups = (settings.limits, settings.listener, settings.memory, settings.durability)
    offered = {name: value for group in groups for name, value in limits_in(group).items()}
    assert set(offered) == DECLARED
    for name in DECLARED - set(MemoryLimits.__annotations__):
        assert getattr(engine, name) == offered[name], name
