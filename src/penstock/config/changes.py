"""A reload: compare newly read settings with the running ones, and merge the two.

::

      running ─╮             ╭─ changes that take effect at once, or for new connections
      read ────┴─▶ `compare` ┼─ changes that wait for a restart, or for the next table job
                             ╰─ `merged`: the running settings with the former changes in place

The merged settings are validated as a whole once more, because no file has that combination: a file
that moves a listener to an address of this machine *and* gives up its passwords must not leave the
old address without passwords.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.config.describe import masked_toml
from penstock.config.group import effect_of
from penstock.config.limits import Limits
from penstock.config.listener import OtherListener
from penstock.config.settings import Settings
from penstock.engine.values.change_effects import (
    AT_ONCE,
    BY_PART,
    NEW_CONNECTIONS,
    RESTART,
    ChangeEffect,
)
from penstock.errors import ConfigError

NOT_SET: Final = "not set"
CHANGED_UNSEEN: Final = "another one, which is secret"

EFFECTIVE_AFTER_RELOAD: Final = (AT_ONCE, NEW_CONNECTIONS)
"""The effects for which a reload is enough."""

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Change:
    """One setting whose newly read value differs from that of the running broker.

    Attributes:
        setting: the dotted name, "status.sys_interval_s" or
            "listener.others.services.max_connections".
        old: the value in use, in TOML's notation, secrets masked.
        new: the value that was read, in the same form.
        effect: the moment from which the new value takes effect.
    """

    setting: str
    old: str
    new: str
    effect: ChangeEffect

    @property
    def is_effective(self) -> bool:
        """Return whether the reload has put the change into effect, for new connections at
        least."""
        return self.effect in EFFECTIVE_AFTER_RELOAD


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing running settings with newly read ones.

    Attributes:
        merged: the settings from now on.
        changes: every setting that differs, in the order of the groups.
    """

    merged: Settings
    changes: tuple[Change, ...]


def compare(running: Settings, read: Settings) -> Comparison:
    """Return how newly read settings differ from those of the running broker, and the merged
    settings.

    Raises:
        ConfigError: the changes that take effect at once do not fit the settings that need a
            restart.
    """
    changes: list[Change] = []
    try:
        merged = Settings(
            **{
                group: _merge(getattr(running, group), getattr(read, group), group, changes)
                for group in Settings.model_fields
            }
        )
    except ValidationError as error:
        reasons = "; ".join(
            mistake["msg"].removeprefix("Value error, ")
            for mistake in error.errors(include_url=False)
        )
        waiting = ", ".join(change.setting for change in changes if change.effect is RESTART)
        raise ConfigError(
            f"the settings can only be used by a restart, because {waiting} cannot change before:"
            f" until then {reasons}."
        ) from None
    return Comparison(merged, tuple(changes))


def _merge(
    running: Model, read: Model, path: str, changes: list[Change], given_only: bool = False
) -> Model:
    """Return a group with the values in effect from now on; append the differences to `changes`.

    With `given_only`, a value counts only where it was given, even if it equals the default: a
    limit that a listener does not give is that of the broker.
    """
    kind = type(running)
    values: dict[str, object] = {}
    for name in kind.model_fields:
        old, new = getattr(running, name), getattr(read, name)
        effect = effect_of(kind, name)
        setting = f"{path}.{name}"
        if effect is BY_PART:
            values[name] = _merge_parts(old, new, setting, changes)
            continue
        was_given, is_given = (name in group.model_fields_set for group in (running, read))
        if old != new or (given_only and was_given != is_given):
            old_text = NOT_SET if given_only and not was_given else masked_toml(name, old)
            new_text = NOT_SET if given_only and not is_given else masked_toml(name, new)
            if new_text == old_text:
                new_text = CHANGED_UNSEEN
            changes.append(Change(setting, old_text, new_text, effect))
        source = read if effect in EFFECTIVE_AFTER_RELOAD else running
        if name in source.model_fields_set:
            values[name] = getattr(source, name)
    return kind(**values)


def _merge_parts(old: object, new: object, path: str, changes: list[Change]) -> object:
    """Return the value of a setting with settings inside: a table of limits, or the listeners."""
    if isinstance(old, Limits) and isinstance(new, Limits):
        return _merge(old, new, path, changes, given_only=True)
    assert isinstance(old, tuple)
    assert isinstance(new, tuple)
    new_by_name: dict[str, OtherListener] = {listener.name: listener for listener in new}
    merged: list[OtherListener] = []
    for listener in old:
        successor = new_by_name.pop(listener.name, None)
        if successor is None:
            changes.append(Change(f"{path}.{listener.name}", "open", "closed", RESTART))
            merged.append(listener)
        else:
            merged.append(_merge(listener, successor, f"{path}.{listener.name}", changes))
    changes.extend(Change(f"{path}.{name}", "closed", "open", RESTART) for name in new_by_name)
    return tuple(merged)
