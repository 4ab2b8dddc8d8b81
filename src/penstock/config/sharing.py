"""Shared subscriptions: whether they are granted, and which member gets the next message."""

from __future__ import annotations

from pydantic import Field, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import ShareName, SharingStrategy


class ShareGroupStrategy(SettingsGroup):
    """The strategy of one group of shared subscriptions."""

    group: ShareName
    """Name of the group, as in $share/GROUP/FILTER, with any filter."""

    strategy: SharingStrategy
    """The strategy of this group, with the values of sharing.strategy."""


class Sharing(SettingsGroup):
    """Shared subscriptions, $share/GROUP/FILTER: each message goes to one member of the group."""

    enabled: bool = True
    """Grant shared subscriptions. Otherwise they are refused with reason code 0x9E."""

    before_mqtt5: bool = True
    """Grant shared subscriptions to MQTT 3.1 and 3.1.1 clients too, although only MQTT 5 specifies
    them."""

    strategy: SharingStrategy = "round_robin"
    """How the connected member that gets a message is chosen: "round_robin" one after the other;
    "random"; "sticky" the same one while it has room; "least_inflight" the one with the fewest
    messages in flight and waiting; "hash_client" the same one for each publishing client;
    "hash_topic" the same one for each topic. A member without room is passed over."""

    groups: tuple[ShareGroupStrategy, ...] = Field(default=(), max_length=1000)
    """Other strategies by group, at most 1000."""

    @model_validator(mode="after")
    def _groups_differ(self) -> Sharing:
        names = [group.group for group in self.groups]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"sharing.groups names {name!r} twice; give each one strategy")
        return self
