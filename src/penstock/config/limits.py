"""What clients may ask for, and what is kept for them.

The limits are the engine's own: `penstock.engine.declared_limits` has their ranges, defaults and
explanations. A listener may have others than the broker: those of its zone.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field, field_validator

from penstock.config.group import Group
from penstock.config.values import checked_topic_filter
from penstock.engine.declared_limits import BrokerLimits, ClientLimits, MemoryLimits

BROKER_LIMITS: Final = frozenset(BrokerLimits.__annotations__)
"""Those of `Limits` that hold for the whole broker and cannot differ by listener."""


class Limits(BrokerLimits, ClientLimits, Group):
    """Bounds on what clients may ask for and on what is kept for them."""

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


class Budget(Group):
    """Memory that clients may make the broker hold."""

    budget_bytes: int = Field(default=0, ge=0, le=2**60)
    """Memory that clients may make the broker hold. The bounds below, durability.producers_max and
    listener.max_connections are lowered to their part of it where they are not set. The broker does
    not start when clients may have more in the worst case, which it logs at every start; see
    docs/flow.md. 0 to 1152921504606846976 bytes; 0 is three quarters of the machine's memory, or of
    its cgroup's, of which it warns only."""


class Memory(MemoryLimits, Budget):
    """The memory that clients may make the broker hold: all of them together, what they leave
    behind included. What one may is in [limits] and its listener."""
