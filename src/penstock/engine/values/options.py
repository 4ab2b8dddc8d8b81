"""Settings of a server other than its limits (``limits``), in the form that the engine reads.

There are four groups: the features of a listener, optional features of MQTT 5, the events that are
written, and the options of shared subscriptions.
"""

from __future__ import annotations

from typing import Final, final

from penstock.engine.values.topics import TOPIC_BYTES_MAX
from penstock.protocol import reasons

BRIDGE_SESSIONS: Final = (
    "$bridge/"  # prefix of the client identifiers of this broker's bridges; clients may not use it
)

REDIRECTIONS: Final[dict[str, int]] = {
    "none": reasons.SUCCESS,
    "temporary": reasons.USE_ANOTHER_SERVER,
    "permanent": reasons.SERVER_MOVED,
}


ROUND_ROBIN: Final = 0
RANDOM: Final = 1
STICKY: Final = 2
LEAST_INFLIGHT: Final = 3
HASH_CLIENT: Final = 4
HASH_TOPIC: Final = 5

STRATEGIES: Final[dict[str, int]] = {
    "round_robin": ROUND_ROBIN,
    "random": RANDOM,
    "sticky": STICKY,
    "least_inflight": LEAST_INFLIGHT,
    "hash_client": HASH_CLIENT,
    "hash_topic": HASH_TOPIC,
}


@final
class Offers:
    """The features of MQTT that one listener offers its clients.

    Args:
        qos_max: the highest QoS, 0..2, of their publications and subscriptions.
        retain_available: whether they may publish with RETAIN.
        versions: protocol levels that are accepted, of 3, 4 and 5.
        auto_id_prefix: prefix of client identifiers that the broker assigns.
        mount_point: prefix of all topics of these clients, see ``mount_point``.
    """

    def __init__(
        self,
        qos_max: int = 2,
        retain_available: bool = True,
        versions: tuple[int, ...] = (3, 4, 5),
        auto_id_prefix: str = "auto-",
        mount_point: str = "",
    ) -> None:
        self.mount_point = mount_point
        self.qos_max = qos_max
        self.retain_available = retain_available
        self.versions = versions
        self.auto_id_prefix = auto_id_prefix
        self.restricts_features = (
            qos_max < 2 or not retain_available
        )  # some feature of MQTT is not offered

    def refusal(self, qos: int, retain: bool) -> int:
        """Return the reason code for a message or will with this QoS and RETAIN flag: ``SUCCESS``,
        or the code that refuses it."""
        if qos > self.qos_max:
            return reasons.QOS_NOT_SUPPORTED  # [MQTT-3.2.2-11] [MQTT-3.2.2-12]
        if retain and not self.retain_available:
            return reasons.RETAIN_NOT_SUPPORTED  # [MQTT-3.2.2-13] [MQTT-3.2.2-14]
        return reasons.SUCCESS


@final
class ServerOptions:
    """Settings of MQTT 5 features that are no limits.

    Args:
        response_information: sent to clients that request it; ``%c`` stands for the client
            identifier, ``%u`` for the user name; empty = none.
        check_payload_format: whether payloads that are not UTF-8, although their payload format
            indicator is 1, are refused.
        redirect: a name of ``REDIRECTIONS``: whether clients are sent to another server.
        server_reference: the name of that server; it is also sent at shutdown.
        acknowledge_in_memory: filters of topics for which PUBACK does not wait for the commit.
        client_ids_shared: whether a user may open another user's session by its client identifier.
    """

    def __init__(
        self,
        response_information: str = "",
        check_payload_format: bool = True,
        redirect: str = "none",
        server_reference: str = "",
        acknowledge_in_memory: tuple[str, ...] = (),
        client_ids_shared: bool = False,
    ) -> None:
        self.client_ids_shared = client_ids_shared
        self.acknowledge_in_memory = acknowledge_in_memory
        self.check_payload_format = check_payload_format
        self.redirect = REDIRECTIONS[redirect]  # reason code for CONNACK; 0 = clients are accepted
        self.server_reference = server_reference
        self._response_information = response_information

    @property
    def shutdown_code(self) -> int:
        """Return the reason code of the DISCONNECT that this server sends when it shuts down."""
        if not self.server_reference:
            return reasons.SERVER_SHUTTING_DOWN
        return self.redirect or reasons.USE_ANOTHER_SERVER

    def response_information_for(self, client_id: str, username: str) -> str | None:
        """Return the response information for a client; None if the client gets none.

        It is the prefix of response topics, so a client whose names contain a wildcard, or make it
        longer than a topic, gets none.
        """
        template = self._response_information
        if not template:
            return None
        for mark, name in (("%c", client_id), ("%u", username)):
            if mark in template and (not name or "+" in name or "#" in name):
                return None
        parts = template.split("%c")
        prefix = client_id.join([part.replace("%u", username) for part in parts])
        return prefix if len(prefix.encode()) <= TOPIC_BYTES_MAX else None


@final
class EventOptions:
    """The settings that select the events the broker writes: see ``events``.

    Args:
        kinds: names of ``events.KINDS``; other kinds are not written.
        topic_filters: a message whose topic matches one of them has events of its own.
        sample_one_in: only one in this many of these messages has events; 1 = all.
        flow_interval_s: seconds between two ``flow`` events of an active session; 0 = none.
        listeners: kind of transport of each listener, by the listener's name.
    """

    def __init__(
        self,
        kinds: tuple[str, ...],
        topic_filters: tuple[str, ...] = (),
        sample_one_in: int = 1,
        flow_interval_s: float = 0.0,
        listeners: dict[str, str] | None = None,
    ) -> None:
        self.kinds = kinds
        self.topic_filters = topic_filters
        self.sample_one_in = sample_one_in
        self.flow_interval_s = flow_interval_s
        self.listeners: dict[str, str] = listeners or {}


@final
class SharingOptions:
    """The settings of shared subscriptions.

    Args:
        enabled: whether shared subscriptions are available.
        strategy: a name of ``STRATEGIES``.
        by_group: strategies of single groups that differ, by share name.
        seed: the seed of the random strategy; the engine draws no random numbers itself.
        before_v5: whether clients older than MQTT 5 may use them too.
    """

    def __init__(
        self,
        enabled: bool = True,
        strategy: str = "round_robin",
        by_group: dict[str, str] | None = None,
        seed: int = 1,
        before_v5: bool = True,
    ) -> None:
        self.enabled = enabled
        self.strategy = STRATEGIES[strategy]
        self.by_group: dict[str, int] = {}
        if by_group is not None:
            for name, group_strategy in by_group.items():
                self.by_group[name] = STRATEGIES[group_strategy]
        self.seed = seed
        self.before_v5 = before_v5
