"""The ledger of what was promised to each client: the judge of a simulated run.

Devices report what they sent, what was acknowledged to them and what reached them; the ledger
knows nothing of the broker. The broker must keep these rules (DESIGN.md, the delivery contract):

* a message acknowledged at QoS 1 reaches every session that was subscribed, at least once;
* at QoS 2 exactly once; nothing is delivered at QoS 2 twice, whatever happens;
* of an MQTT 3.1 publisher nothing is delivered at QoS 2 before its PUBREL;
* per publisher, topic and QoS, first arrivals keep the order of sending;
* a message that is missing was counted as dropped for that client.

Every payload is ``publisher|number``, so it identifies its message.
"""

from __future__ import annotations

from typing import final

from penstock.engine.values.topics import topic_matches
from penstock.protocol.packets import Publish


@final
class Sent:
    """One message of one publisher, and the clients that must get it."""

    def __init__(self, key: str, publisher: str, number: int, topic: str, qos: int) -> None:
        self.key = key
        self.publisher = publisher
        self.number = number
        self.topic = topic
        self.qos = qos
        self.acknowledged = False
        self.may_be_late = False  # it was refused once: sent again, it comes behind later ones
        self.held = False  # MQTT 3.1, QoS 2: PUBREL was not sent yet
        self.due: dict[str, int] = {}  # client id to the QoS it must arrive with, at least 1


@final
class Ledger:
    """All messages of one run."""

    def __init__(self) -> None:
        self.messages: dict[str, Sent] = {}
        self.arrived: dict[str, dict[str, int]] = {}  # client id to key to number of arrivals
        self.drops: dict[str, int] = {}  # by client id
        self.retained: dict[str, str] = {}  # topic to the payload sent last ("" = removed)
        self._subscribed: dict[str, dict[str, int]] = {}  # client id to filter to QoS
        self._latest: dict[tuple[str, str, str, int, int], int] = {}

    # -- what devices do ---------------------------------------------------------------

    def sent(self, key: str, publisher: str, topic: str, qos: int, held: bool = False) -> None:
        """Note a PUBLISH that is sent for the first time; ``held``: no client may get it yet."""
        message = Sent(key, publisher, int(key.split("|")[1]), topic, qos)
        message.held = held
        self.messages[key] = message
        for client_id, filters in self._subscribed.items():
            granted = [own for name, own in filters.items() if topic_matches(name, topic)]
            level = min(qos, max(granted, default=0))
            if level > 0:
                message.due[client_id] = level

    def released(self, key: str) -> None:
        """Note a PUBREL that is sent for the first time."""
        if key in self.messages:
            self.messages[key].held = False

    def acknowledged(self, key: str) -> None:
        """Note that PUBACK or PUBREC reached the publisher: the broker is responsible from here
        on.

        In MQTT 3.1 it is responsible from PUBCOMP on, as far as a subscriber can tell.
        """
        if key in self.messages:
            self.messages[key].acknowledged = True

    def subscribed(self, client_id: str, topic_filter: str, qos: int) -> None:
        """Note that SUBACK reached a client whose session outlives its connection."""
        self._subscribed.setdefault(client_id, {})[topic_filter] = qos

    def unsubscribing(self, client_id: str, topic_filter: str) -> None:
        """Note that UNSUBSCRIBE is sent: messages that are not acknowledged yet may miss the
        client."""
        self._subscribed.get(client_id, {}).pop(topic_filter, None)
        for message in self.messages.values():
            if not message.acknowledged and topic_matches(topic_filter, message.topic):
                message.due.pop(client_id, None)

    def session_lost(self, client_id: str) -> None:
        """Note that the session of ``client_id`` ended, by its own CONNECT or by expiry."""
        self._subscribed.pop(client_id, None)
        for message in self.messages.values():
            message.due.pop(client_id, None)

    def arrival(self, client_id: str, packet: Publish) -> None:
        """Check a message that reached the application of ``client_id``, and note it."""
        key = packet.payload.decode().rstrip(".")
        message = self.messages.get(key)
        assert message is not None, f"{client_id} got {key!r}, which nobody sent"
        assert message.topic == packet.topic, f"{key} was sent to {message.topic}"
        assert not message.held, f"{client_id} got {key} before its PUBREL"
        if packet.retain:
            return  # a retained message comes again with every subscription
        arrivals = self.arrived.setdefault(client_id, {})
        count = arrivals.get(key, 0)
        arrivals[key] = count + 1
        if count > 0:
            assert packet.qos != 2, f"{client_id} got {key} twice at QoS 2"
            assert message.qos == 1 or packet.qos == 1, f"{client_id} got {key} twice"
            return
        line = (client_id, message.publisher, message.topic, message.qos, packet.qos)
        before = self._latest.get(line, -1)
        # The first copy of a QoS 1 message may have missed the client, its second comes later; a
        # message that was refused once, while the store failed, comes behind later ones.
        certain = client_id in message.due and client_id not in self.drops
        if (message.qos != 1 or certain) and not message.may_be_late:
            assert message.number > before, f"{client_id} got {key} after {before}: {line}"
        self._latest[line] = max(before, message.number)

    def dropped(self, client_id: str) -> None:
        """Note that the broker counted a drop for ``client_id``."""
        self.drops[client_id] = self.drops.get(client_id, 0) + 1

    # -- the verdict -------------------------------------------------------------------

    def judge(self) -> None:
        """Check, at rest, that every message due has arrived, or was counted as dropped."""
        missing: dict[str, list[str]] = {}
        for message in self.messages.values():
            if not message.acknowledged:
                continue
            for client_id, level in message.due.items():
                if message.key not in self.arrived.get(client_id, {}):
                    missing.setdefault(client_id, []).append(f"{message.key} (QoS {level})")
        for client_id, keys in missing.items():
            counted = self.drops.get(client_id, 0)
            assert len(keys) <= counted, (
                f"{client_id} never got {keys}, and {counted} drops were counted for it"
            )
