"""Dead letters: messages that were dropped."""

from __future__ import annotations

from penstock.config.group import SettingsGroup
from penstock.config.values import DeadLetterTopic


class DeadLetters(SettingsGroup):
    """Messages that were dropped on their way to a session, published again as dead letters."""

    topic: DeadLetterTopic = ""
    """Topic name that dead letters are published to, such as penstock/dead-letters, with the
    reason, the client identifier and the original topic as user properties; "" publishes none. A
    stream can take them into a table."""

    qos0: bool = False
    """Publish dead letters of dropped QoS 0 messages, too."""
