"""Limits of clients, and of the memory and disk that they use.

The limits are the engine's own: `penstock.engine.values.declared_limits` has their ranges, defaults
and explanations. A listener may override the broker's limits for its own clients (its zone).
"""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from penstock.config.group import SettingsGroup
from penstock.config.values import checked_topic_filter
from penstock.engine.values.declared_limits import BrokerLimits, ClientLimits, MemoryLimits

BROKER_LIMITS: Final = frozenset(BrokerLimits.__annotations__)
"""The names in `Limits` that hold for the whole broker and cannot differ by listener."""


class Limits(BrokerLimits, ClientLimits, SettingsGroup):
    """Limits on what clients may ask for, and on what the broker keeps for them."""

    @field_validator("mqueue_priorities")
    @classmethod
    def _keys_are_topic_filters(cls, priorities: dict[str, int]) -> dict[str, int]:
        for key in priorities:
            try:
                checked_topic_filter(key)
            except ValueError as error:
                raise ValueError(
                    f"a table of which each name is {error}; {key!r} is none"
                ) from None
        return priorities


class Budget(SettingsGroup):
    """Memory that clients may make the broker hold."""

    budget_bytes: int = Field(default=0, ge=0, le=2**60)
    """Memory that all clients together may make the broker hold. The limits below,
    durability.producers_max, events.recorded_clients and listener.max_connections are lowered to
    their part of it where they are not set. The worst case is logged at every start; the broker
    does not start if it exceeds the budget, see docs/flow.md. 0 to 1152921504606846976 bytes; 0 is
    three quarters of the machine's memory, or of its cgroup's; then the broker only warns."""


class Memory(MemoryLimits, Budget):
    """The memory that all clients together may make the broker hold, what they leave behind
    included. Limits of one client are in [limits] and in its listener."""
