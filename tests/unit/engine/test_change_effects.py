"""The effects that classes of settings declare for changes of their fields."""

from penstock.engine.values.change_effects import (
    AT_ONCE,
    NEW_CONNECTIONS,
    RESTART,
    effect_declared_by,
    takes_effect,
)


@takes_effect(AT_ONCE)
class Told:
    """Settings that a reload applies."""


@takes_effect(NEW_CONNECTIONS)
class Further(Told):
    """Settings that add their own to those."""


class Silent(Told):
    """Settings that add their own, and declare nothing."""


def test_a_class_declares_the_effect_of_its_own_fields() -> None:
    assert effect_declared_by(Told) is AT_ONCE
    assert effect_declared_by(Further) is NEW_CONNECTIONS


def test_without_a_declaration_of_its_own_a_class_needs_a_restart() -> None:
    """Its base's reload does not know the fields that were added."""
    assert effect_declared_by(Silent) is RESTART
    assert effect_declared_by(int) is RESTART
