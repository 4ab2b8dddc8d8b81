"""The effects of a changed setting on a running broker, declared beside the setting itself.

A decorator declares the effect for all fields of a class of settings; a field with another effect
declares it in its annotation::

    @takes_effect(AT_ONCE)
    class Status(Group):
        sys_interval_s: float = ...                    # a reload applies a change
        something: Annotated[int, RESTART] = ...       # a change needs a restart

Without a declaration a change needs a restart. ``config.changes`` reads the declarations, for the
reload and for docs/configuration.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, final

Kind = TypeVar("Kind", bound=type)

_ATTRIBUTE: Final = "changes_of_its_fields_take_effect"


@final
class ChangeEffect:
    """The moment at which a changed setting takes effect.

    Args:
        name: the word for this moment in docs/configuration.md and in the answer to a reload.
    """

    def __init__(self, name: str) -> None:
        self.name = name


RESTART: Final = ChangeEffect("restart")
AT_ONCE: Final = ChangeEffect("reload")
NEW_CONNECTIONS: Final = ChangeEffect("new")
"""New connections get the changed value; a connected client keeps what its CONNACK announced."""

TABLE_JOBS: Final = ChangeEffect("job")
"""`penstock tables run` reads the setting when it starts; the broker does not use it."""

BY_PART: Final = ChangeEffect("by part")
"""The setting is a table of settings, each of which has an effect of its own."""


def takes_effect(effect: ChangeEffect) -> Callable[[Kind], Kind]:
    """Return a class decorator that declares when changes of the class's own fields take effect."""

    def declare(kind: Kind) -> Kind:
        setattr(kind, _ATTRIBUTE, effect)
        return kind

    return declare


def effect_declared_by(kind: type) -> ChangeEffect:
    """Return the effect that ``kind`` declares for its own fields, without those of its bases."""
    found = vars(kind).get(_ATTRIBUTE, RESTART)
    assert isinstance(found, ChangeEffect)
    return found
