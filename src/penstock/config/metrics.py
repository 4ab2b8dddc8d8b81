"""Metrics: the clients that are counted together, under a name."""

from __future__ import annotations

from typing import Final

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import ListenerName
from penstock.engine.values.change_effects import NEW_CONNECTIONS, takes_effect
from penstock.engine.values.client_groups import OTHER
from penstock.engine.values.name_patterns import PATTERN_CHARACTERS_MAX

GROUPS_MAX: Final = 64
"""Most client groups of one broker."""


@takes_effect(NEW_CONNECTIONS)
class ClientGroupSettings(SettingsGroup):
    """Clients that metrics count together: those that fit all of client, user and listener."""

    name: ListenerName
    """Name of the group, the value of the label client_group: 1 to 64 letters, digits and . _ -
    that start with a letter or digit. "other" is the group of clients that fit none."""

    client: str = Field(default="", max_length=PATTERN_CHARACTERS_MAX)
    """Pattern of client identifiers as in a shell (`*`, `?`, `[…]`), such as press-*. At most 256
    characters; empty fits every client. A client identifier above 1024 characters fits no
    pattern."""

    user: str = Field(default="", max_length=PATTERN_CHARACTERS_MAX)
    """Pattern of user names, in the same form. Clients without a user name fit no pattern."""

    listener: str = ""
    """Name of the listener that the clients use, as "main"; empty for any."""

    @model_validator(mode="after")
    def _selects_clients(self) -> ClientGroupSettings:
        if self.name == OTHER:
            raise ValueError(
                f"{OTHER!r} is the client group of all other clients; take another name"
            )
        if not (self.client or self.user or self.listener):
            raise ValueError(
                f"the client group {self.name!r} has no condition: give it client, user or listener"
            )
        return self


@takes_effect(NEW_CONNECTIONS)
class Metrics(SettingsGroup):
    """The clients that metrics count together (docs/monitoring.md)."""

    client_groups: tuple[ClientGroupSettings, ...] = Field(default=(), max_length=GROUPS_MAX)
    """Client groups, at most 64, each with a name and any of client, user and listener; a client
    counts in the first that fits, and after a reload in the one it had until it connects anew."""

    @model_validator(mode="after")
    def _groups_differ(self) -> Metrics:
        names = [group.name for group in self.client_groups]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"metrics.client_groups names {name!r} twice; give each its own")
        return self
