"""The plan of a bridge: its subscriptions at both brokers, and the renaming of topics.

::

      out   local:  subscribe  local_prefix + filter    remote: publish    remote_prefix + rest
      in    local:  publish    local_prefix + rest      remote: subscribe  remote_prefix + filter
"""

from __future__ import annotations

import ssl
from typing import Final

from penstock.bridge.forwarding import Forwarding, Rule
from penstock.config.bridge import ForwardingRule, RemoteBroker
from penstock.engine.values.options import BRIDGE_SESSIONS
from penstock.engine.values.topics import is_shared, share_name, without_share_prefix
from penstock.errors import ConfigError, LocalProtocolError
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5, V31, V311
from penstock.protocol.packets import Connect, Subscription, Will
from penstock.protocol.properties import Properties
from penstock.transport.dialling import TlsFiles

VERSIONS: Final = {"3.1": V31, "3.1.1": V311, "5": V5}

AWAY: Final = b"0"  # on ``status_topic``
CONNECTED: Final = b"1"

_RETAIN_IF_NEW: Final = 1
_RETAIN_NEVER: Final = 2


def session_of(name: str) -> str:
    """Return the client identifier of the bridge's session in this broker; no client can have
    it."""
    return BRIDGE_SESSIONS + name


def outgoing(remote: RemoteBroker) -> Forwarding:
    """Return the rules for messages to the remote broker."""
    rules: list[Rule] = []
    for part in remote.forwards:
        if part.direction != "in":
            rules += _rules(part, part.local_prefix, part.remote_prefix)
    return _forwarding(remote, rules)


def incoming(remote: RemoteBroker) -> Forwarding:
    """Return the rules for messages from the remote broker."""
    rules: list[Rule] = []
    for part in remote.forwards:
        if part.direction != "out":
            rules += _rules(part, part.remote_prefix, part.local_prefix)
    return _forwarding(remote, rules)


def _rules(part: ForwardingRule, from_prefix: str, to_prefix: str) -> list[Rule]:
    return [
        Rule(
            from_prefix + without_share_prefix(one),
            from_prefix,
            to_prefix,
            part.qos_max,
            part.retain,
            share_name(one) if is_shared(one) else "",
        )
        for one in part.topic_filters
    ]


def _forwarding(remote: RemoteBroker, rules: list[Rule]) -> Forwarding:
    return Forwarding(rules, remote.hops_max, list(remote.user_properties.items()))


def local_subscriptions(forwarding: Forwarding, persist: bool) -> dict[str, Subscription]:
    """Return the bridge's subscriptions in this broker, by topic filter: the messages to forward.

    They have No Local: messages that the bridge received are not sent back. A shared subscription
    cannot have No Local [MQTT-3.8.3-4]; there the hop count ends a loop.

    Args:
        forwarding: the rules for messages to the remote broker.
        persist: whether messages are forwarded with their QoS; else with QoS 0.
    """
    found: dict[str, Subscription] = {}
    for rule in forwarding.rules:
        qos = rule.qos_max if persist else 0
        handling = _RETAIN_IF_NEW if rule.keeps_retain else _RETAIN_NEVER
        found.setdefault(
            rule.subscription_filter,
            Subscription(
                rule.subscription_filter, qos, not rule.is_shared, rule.keeps_retain, handling
            ),
        )
    return found


def remote_subscriptions(forwarding: Forwarding, version: int) -> list[Subscription]:
    """Return the bridge's subscriptions at the remote broker, for this protocol level."""
    found: dict[str, Subscription] = {}
    for rule in forwarding.rules:
        if version == V5:
            handling = _RETAIN_IF_NEW if rule.keeps_retain else _RETAIN_NEVER
            subscription = Subscription(
                rule.subscription_filter,
                rule.qos_max,
                not rule.is_shared,
                rule.keeps_retain,
                handling,
            )
        else:
            subscription = Subscription(rule.subscription_filter, rule.qos_max)
        found.setdefault(rule.subscription_filter, subscription)
    return list(found.values())


def connect_of(
    remote: RemoteBroker, receive_maximum: int, packet_size_max: int, clean: bool, is_bridge: bool
) -> Connect:
    """Return the bridge's CONNECT packet.

    Args:
        remote: the settings of the bridge.
        receive_maximum: the Receive Maximum, 1 to 65,535.
        packet_size_max: the Maximum Packet Size in bytes.
        clean: whether a new session is started.
        is_bridge: whether the dialect of bridges is used.
    """
    version = VERSIONS[remote.version]
    properties = None
    if version == V5:
        properties = Properties(
            session_expiry_interval=remote.session_expiry_s,
            receive_maximum=receive_maximum,
            maximum_packet_size=packet_size_max,
            topic_alias_maximum=16,
        )
    password = None if remote.password is None else remote.password.encode()
    return Connect(
        remote.client_id or f"penstock-{remote.name}",
        version,
        clean or remote.clean_start,
        remote.keep_alive_s,
        Will(remote.status_topic, AWAY, 1, True) if remote.status_topic else None,
        remote.username,
        password,
        properties,
        is_bridge,
    )


def context_of(remote: RemoteBroker) -> ssl.SSLContext | None:
    """Return the TLS context of a bridge; None if no address needs one.

    Raises:
        ConfigError: a file cannot be read, or is malformed.
    """
    if not remote.is_encrypted:
        return None
    files = TlsFiles(
        remote.ca,
        remote.certificate,
        remote.key,
        remote.check_host_name,
        psk_identity=remote.psk_identity,
        psk=remote.psk,
    )
    return files.context(f"bridge {remote.name!r}")


def check_packets(remote: RemoteBroker) -> None:
    """Encode the packets that the bridge will send, so that a mistake is reported before the start.

    Raises:
        ConfigError: the settings cannot be expressed in MQTT.
    """
    try:
        connect = connect_of(remote, 1, 1, False, False)
        encode(connect, connect.version)
        outgoing(remote)
        incoming(remote)
    except LocalProtocolError as error:
        raise ConfigError(f"bridge {remote.name!r}: {error.message}") from error
