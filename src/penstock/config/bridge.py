"""Bridges: remote brokers that messages are forwarded to and taken from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from penstock.config.group import SettingsGroup
from penstock.config.limits import BROKER_LIMITS, Limits
from penstock.config.remote_url import RemoteUrl
from penstock.config.values import (
    BridgedFilter,
    BridgeName,
    TopicName,
    TopicPrefix,
)
from penstock.engine.values.declared_limits import TOPIC_LEVELS_MAX
from penstock.engine.values.topics import is_topic_filter, without_share_prefix


class ForwardingRule(SettingsGroup):
    """Messages that a bridge forwards, and their topics at both ends."""

    topic_filters: tuple[BridgedFilter, ...] = Field(min_length=1, max_length=1000)
    """Topics that are forwarded, 1 to 1000 MQTT filters, without the prefixes. $share/GROUP/FILTER
    forwards only this bridge's share of them, where several bridges have the same group; the prefix
    goes before FILTER."""

    direction: Literal["out", "in", "both"] = "out"
    """"out" to the remote broker, "in" from it, or "both"."""

    local_prefix: TopicPrefix = ""
    """Prefix of these topics at this broker: removed from messages that go out, added to those that
    come in."""

    remote_prefix: TopicPrefix = ""
    """Prefix of these topics at the remote broker; it may begin with $, such as
    $aws/things/plant-7/."""

    qos_max: int = Field(default=2, ge=0, le=2)
    """Messages of a higher QoS are forwarded with this one. 0 to 2."""

    retain: bool = True
    """Forward retained messages as retained ones; false forwards everything without RETAIN."""


class RemoteBroker(SettingsGroup):
    """A remote broker, and the messages that are forwarded to it and taken from it."""

    name: BridgeName
    """The bridge's name: 1 to 64 letters, digits and . _ - that start with a letter or digit. Its
    queue is kept under this name: another name is another bridge with nothing in its queue."""

    addresses: tuple[str, ...] = Field(min_length=1, max_length=100)
    """Addresses of the remote broker: mqtt://HOST:PORT, mqtts://HOST:PORT with TLS,
    ws://HOST:PORT/PATH or wss://HOST:PORT/PATH over WebSocket, unix:///PATH; the ports 1883, 8883,
    80 and 443 may be left out. 1 to 100; when one cannot be reached, or refuses the bridge as the
    standbys of a cluster do, the next is tried at once. They must lead to one broker or cluster,
    which keeps one session of the bridge. A Server Reference (MQTT 5) is followed to one of them
    only."""

    forwards: tuple[ForwardingRule, ...] = Field(min_length=1, max_length=1000)
    """Rules of forwarding, 1 to 1000 tables [[bridge.remotes.forwards]]; the first that matches a
    topic counts."""

    version: Literal["3.1", "3.1.1", "5"] = "5"
    """MQTT version spoken with the remote broker."""

    max_packet_size_bytes: int = Field(default=0, ge=0, le=268_435_460)
    """Largest packet sent to the remote broker, in bytes, 0 to 268435460; larger messages are
    dropped and counted, and leave dead letters. 0 leaves the limit to the remote broker, which can
    announce it in MQTT 5 only: an older one closes the connection."""

    ends_at_message_max: int = Field(default=3, ge=0, le=1000)
    """Number of connections in a row that the remote broker may end at the same message. Then the
    message is dropped, counted, logged and published as a dead letter, and the next one is sent:
    before MQTT 5 a broker has no other way to refuse a message. 0 to 1000; 0 keeps the message, and
    all behind it, for ever."""

    try_private: bool = True
    """Speak the dialect of bridges (protocol levels 0x83 and 0x84, Mosquitto's) before MQTT 5: the
    remote broker then sends RETAIN as it was published, so that updates and removals of retained
    messages come in, and does not send the bridge's own messages back. With a remote broker that
    does not know the dialect the bridge does without."""

    client_id: str = Field(default="", max_length=65_535)
    """Client identifier at the remote broker; empty takes penstock-NAME. Two bridges with the same
    client identifier disconnect each other."""

    username: str | None = None
    """User name at the remote broker."""

    password: str | None = Field(default=None, repr=False)
    """Password at the remote broker; to keep it secret, give it in PENSTOCK_BRIDGE__REMOTES or in a
    file that only the broker may read."""

    status_topic: TopicName = ""
    """Topic at the remote broker that says whether this bridge is connected, retained: 1, and 0 by
    a will or when this broker stops; empty publishes no status. Mosquitto's bridges take
    $SYS/broker/connection/NAME/state."""

    clean_start: bool = False
    """Start a new session at the remote broker with each connection; messages that it kept for the
    bridge are lost."""

    session_expiry_s: int = Field(default=4_294_967_295, ge=1, le=4_294_967_295)
    """How long the remote broker keeps the bridge's session while it is not connected, in seconds,
    MQTT 5. 1 to 4294967295; 4294967295 is for ever."""

    keep_alive_s: int = Field(default=60, ge=5, le=65_535)
    """Keep alive, in seconds: a ping is sent after three quarters of it, and the connection is
    closed when the remote broker was silent for one and a half times as long. 5 to 65535."""

    persist: bool = True
    """Keep QoS 1 and 2 messages until the remote broker has them. false forwards everything with
    QoS 0: messages that cannot be sent at once are lost, or wait in memory
    (limits.mqueue_store_qos0)."""

    hops_max: int = Field(default=1, ge=1, le=1000)
    """Number of bridges that a message may pass, counted in its user property penstock-hops, so
    that brokers in a ring do not forward it for ever. 1 to 1000."""

    user_properties: dict[str, str] = Field(default={}, max_length=100)
    """User properties added to each message, MQTT 5, such as { site = "berlin" }."""

    connect_timeout_s: float = Field(default=10.0, gt=0, le=3600)
    """Time limit of each step of connecting, in seconds, above 0 up to 3600."""

    reconnect_s_min: float = Field(default=1.0, ge=0.1, le=3600)
    """Pause in seconds when each address has failed once, doubled after each further round, give or
    take a quarter. 0.1 to 3600."""

    reconnect_s_max: float = Field(default=120.0, ge=0.1, le=86_400)
    """Longest pause between two rounds, and the pause after a refused login, in seconds. 0.1 to
    86400."""

    ca: str = ""
    """PEM file of the authorities that sign the remote broker's certificate, for TLS; empty takes
    those of the system."""

    certificate: str = ""
    """PEM file of the bridge's certificate, for TLS; empty for none."""

    key: str = ""
    """PEM file of the private key of the bridge's certificate, without a password."""

    check_host_name: bool = True
    """Refuse a remote broker whose certificate is for another host, for TLS."""

    psk_identity: str = ""
    """Identity of the bridge's pre-shared key (TLS-PSK), which takes the place of certificates.
    Needs Python 3.13. Empty for none."""

    psk: str = Field(default="", repr=False)
    """The pre-shared key, in hexadecimal digits; it is kept secret as the password is."""

    limits: Limits = Limits()
    """Limits of the bridge's session where they differ from [limits]: its window and its queue,
    such as { max_inflight = 100, max_mqueue_len = 1000000, mqueue_overflow = "drop_oldest" }.
    Without max_mqueue_len and max_mqueue_bytes here, a bridge's queue has no limit of its own (the
    overflow is "spill", and memory.spilled_bytes_max applies)."""

    @field_validator("addresses")
    @classmethod
    def _addresses_are_urls(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            RemoteUrl.parse(address)
        return addresses

    @model_validator(mode="after")
    def _parts_fit(self) -> RemoteBroker:
        has_files, has_key = self.certificate or self.ca, self.psk or self.psk_identity
        if (has_files or has_key) and not self.is_encrypted:
            raise ValueError(
                f"bridge {self.name!r} has {'certificates' if has_files else 'a pre-shared key'},"
                " which only mqtts:// and wss:// addresses use"
            )
        if has_key and (has_files or not (self.psk and self.psk_identity)):
            raise ValueError(
                f"bridge {self.name!r} needs both psk_identity and psk, without certificates"
            )
        if bool(self.certificate) != bool(self.key):
            raise ValueError(f"bridge {self.name!r} needs both certificate and key, or neither")
        for rule in self.forwards:
            for topic_filter in rule.topic_filters:
                for prefix in (rule.local_prefix, rule.remote_prefix):
                    if not is_topic_filter(
                        prefix + without_share_prefix(topic_filter), TOPIC_LEVELS_MAX
                    ):
                        raise ValueError(
                            f"bridge {self.name!r}: {prefix!r} before {topic_filter!r} makes no"
                            " topic filter; a prefix mostly ends with a slash"
                        )
                if rule.direction != "out" and _is_below_dollar(rule.local_prefix, topic_filter):
                    raise ValueError(
                        f"bridge {self.name!r}: {topic_filter!r} would come in below $, which is"
                        " the broker's own: give it a local_prefix"
                    )
        if shared := sorted(BROKER_LIMITS & self.limits.model_fields_set):
            raise ValueError(
                f"bridge {self.name!r} has limits.{shared[0]}, which bounds the whole broker: set"
                " it in [limits]"
            )
        return self

    @property
    def is_encrypted(self) -> bool:
        """Return whether the bridge uses TLS with any of its addresses."""
        return any(RemoteUrl.parse(address).is_encrypted for address in self.addresses)


def _is_below_dollar(prefix: str, topic_filter: str) -> bool:
    return (prefix + without_share_prefix(topic_filter)).startswith("$")


class Bridge(SettingsGroup):
    """Bridges to other brokers, see docs/bridges.md."""

    remotes: tuple[RemoteBroker, ...] = Field(default=(), max_length=100)
    """Remote brokers, 0 to 100."""

    @model_validator(mode="after")
    def _names_differ(self) -> Bridge:
        names = [remote.name for remote in self.remotes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"bridge.remotes names {name!r} twice; give each its own name")
        return self
