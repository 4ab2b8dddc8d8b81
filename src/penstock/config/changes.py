"""A reload: two sets of settings are compared, and made one.

::

      running ─╮                  ╭─ changes that count at once, or for new connections
      read ────┴─▶ `compared` ────┼─ changes that wait for a restart, or for the next table job
                                  ╰─ `used`: the running settings with the former in place

The mixture is checked as a whole once more, because no file has it: a file that moves a listener to
an address of this machine *and* gives up its passwords must not leave the old address without
passwords.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.config.describe import shown
from penstock.config.group import effect_of
from penstock.config.limits import Limits
from penstock.config.listener import OtherListener
from penstock.config.settings import Settings
from penstock.engine.change_effects import (
    AT_ONCE,
    BY_PART,
    NEW_CONNECTIONS,
    RESTART,
    ChangeEffect,
)
from penstock.errors import ConfigError

NOT_SET: Final = "not set"
ANOTHER: Final = "another one, which is secret"

COUNT_NOW: Final = (AT_ONCE, NEW_CONNECTIONS)
"""The effects for which a reload is enough."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Change:
    """One setting that has another value than in the running broker.

    Attributes:
        setting: such as "status.sys_interval_s", or "listener.others.services.max_connections".
        old: the value in use, in TOML's notation, secrets masked.
        new: the value that was read.
        effect: the moment from which it counts.
    """

    setting: str
    old: str
    new: str
    effect: ChangeEffect

    @property
    def counts_now(self) -> bool:
        """Return whether a reload was enough."""
        return self.effect in COUNT_NOW


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of a comparison.

    Attributes:
        used: the settings from now on.
        changes: every setting that was read with another value, in the order of the groups.
    """

    used: Settings
    changes: tuple[Change, ...]


def compared(running: Settings, read: Settings) -> Comparison:
    """Compare the settings of a running broker with newly read ones; return the changes.

    Raises:
        ConfigError: the changes that count at once do not fit the settings that need a restart.
    """
    changes: list[Change] = []
    try:
        used = Settings(
            **{
                group: _merged(getattr(running, group), getattr(read, group), group, changes)
                for group in Settings.model_fields
            }
        )
    except ValidationError as error:
        told = "; ".join(
            mistake["msg"].removeprefix("Value error, ")
            for mistake in error.errors(include_url=False)
        )
        waiting = ", ".join(one.setting for one in changes if one.effect is RESTART)
        raise ConfigError(
            f"the settings can only be used by a restart, because {waiting} cannot change before:"
            f" until then {told}."
        ) from None
    return Comparison(used, tuple(changes))


def _merged(
    running: Model, read: Model, path: str, changes: list[Change], given_only: bool = False
) -> Model:
    """Return a group with the values that count from now on; add the differences to `changes`.

    With `given_only`, a value that is not given is none, even if it is that of the default: the
    limits of a listener, which else are those of the broker.
    """
    kind = type(running)
    values: dict[str, object] = {}
    for name in kind.model_fields:
        old, new = getattr(running, name), getattr(read, name)
        effect = effect_of(kind, name)
        setting = f"{path}.{name}"
        if effect is BY_PART:
            values[name] = _merged_parts(old, new, setting, changes)
            continue
        was_given, is_given = (name in group.model_fields_set for group in (running, read))
        if old != new or (given_only and was_given != is_given):
            told = NOT_SET if given_only and not was_given else shown(name, old)
            telling = NOT_SET if given_only and not is_given else shown(name, new)
            changes.append(Change(setting, told, ANOTHER if telling == told else telling, effect))
        taken = read if effect in COUNT_NOW else running
        if name in taken.model_fields_set:
            values[name] = getattr(taken, name)
    return kind(**values)


def _merged_parts(old: object, new: object, path: str, changes: list[Change]) -> object:
    """Return the settings inside a setting that count from now on: of a table, or of listeners."""
    if isinstance(old, Limits) and isinstance(new, Limits):
        return _merged(old, new, path, changes, given_only=True)
    assert isinstance(old, tuple)
    assert isinstance(new, tuple)
    found: dict[str, OtherListener] = {other.name: other for other in new}
    kept: list[OtherListener] = []
    for other in old:
        again = found.pop(other.name, None)
        if again is None:
            changes.append(Change(f"{path}.{other.name}", "open", "closed", RESTART))
            kept.append(other)
        else:
            kept.append(_merged(other, again, f"{path}.{other.name}", changes))
    changes.extend(Change(f"{path}.{name}", "closed", "open", RESTART) for name in found)
    return tuple(kept)
