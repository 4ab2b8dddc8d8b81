"""The effects of a changed setting on a running broker, declared beside the setting itself.

A class of settings says it for all of its own fields, and a field that differs says so in its
annotation::

    @takes_effect(AT_ONCE)
    class Status(Group):
        sys_interval_s: float = ...                    # a reload is enough
        something: Annotated[int, RESTART] = ...       # but not for this one

Where neither says anything, a change needs a restart. ``config.changes`` reads it, for the reload
and for docs/configuration.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, final

Kind = TypeVar("Kind", bound=type)

_ATTRIBUTE: Final = "changes_of_its_fields_take_effect"


@final
class ChangeEffect:
    """The moment from which a change counts.

    Args:
        name: the word for it in docs/configuration.md and in the answer to a reload.
    """

    def __init__(self, name: str) -> None:
        self.name = name


RESTART: Final = ChangeEffect("restart")
AT_ONCE: Final = ChangeEffect("reload")
NEW_CONNECTIONS: Final = ChangeEffect("new")
"""A client that is connected goes on with what it was told in CONNACK."""

TABLE_JOBS: Final = ChangeEffect("job")
"""The broker does not use it: `penstock tables run` reads it when it starts."""

BY_PART: Final = ChangeEffect("by part")
"""A table of settings; each of them has an effect of its own."""


def takes_effect(effect: ChangeEffect) -> Callable[[Kind], Kind]:
    """Return a decorator that says when changes of a class's own fields count."""

    def declared(kind: Kind) -> Kind:
        setattr(kind, _ATTRIBUTE, effect)
        return kind

    return declared


def effect_declared_by(kind: type) -> ChangeEffect:
    """Return the effect that a class itself declares for its fields, not one of its bases."""
    found = vars(kind).get(_ATTRIBUTE, RESTART)
    assert isinstance(found, ChangeEffect)
    return found
