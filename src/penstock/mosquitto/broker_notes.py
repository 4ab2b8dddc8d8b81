"""Findings for options of the whole broker that do not become a setting."""

from __future__ import annotations

from typing import Final

from penstock.mosquitto.findings import DIFFERS, MISSING, SAME

NOTES: Final[dict[str, tuple[str, str]]] = {
    "allow_duplicate_messages": (
        DIFFERS,
        (
            "A client whose subscriptions overlap gets a message once, with the highest QoS of them"
            " and the identifiers of all, as with `allow_duplicate_messages false`."
        ),
    ),
    "allow_zero_length_clientid": (
        DIFFERS,
        (
            "Clients without a client identifier always get one from the broker"
            " (listener.auto_id_prefix); there is no setting that refuses them."
        ),
    ),
    "autosave_interval": (
        SAME,
        "A message is on disk before it is acknowledged; nothing is saved at intervals.",
    ),
    "autosave_on_changes": (
        SAME,
        "A message is on disk before it is acknowledged; nothing is saved at intervals.",
    ),
    "auth_plugin_deny_special_chars": (
        MISSING,
        (
            "This option belongs to a plugin, and plugins cannot be loaded; a pattern of the access"
            " list never grants anything to a name with + # or / in it."
        ),
    ),
    "check_retain_source": (
        DIFFERS,
        (
            "Retained messages are delivered to all who may read their topic, even if the publisher"
            " may no longer write to it: `penstock retained clear` removes them."
        ),
    ),
    "clientid_prefixes": (
        MISSING,
        "Mosquitto has dropped it, too: name client identifiers in the access list (`client ID`).",
    ),
    "connection_messages": (
        DIFFERS,
        (
            "Connections are logged at the level info (log.level), and are events with"
            " events.enabled = true."
        ),
    ),
    "dhparamfile": (
        SAME,
        "OpenSSL chooses the parameters of Diffie-Hellman, in Mosquitto 2.1, too.",
    ),
    "enable_control_api": (
        DIFFERS,
        (
            "The broker is operated over the control socket in its data directory, by `penstock"
            " clients`, `sessions`, `retained` and `bans` (docs/control.md)."
        ),
    ),
    "global_max_connections": (
        MISSING,
        "Connections are bounded by listener: set listener.max_connections of each.",
    ),
    "include_dir": (SAME, "The files of this directory were read, in the order of their names."),
    "log_facility": (
        MISSING,
        "Log lines go to standard error, which a service manager stores, or to log.file.",
    ),
    "log_timestamp": (SAME, "Every log line has its time, in UTC."),
    "log_timestamp_format": (
        DIFFERS,
        'Times are in the form of ISO 8601; log.format = "json" has them in a field.',
    ),
    "max_inflight_bytes": (
        MISSING,
        (
            "The window is bounded in messages (limits.max_inflight); unsent bytes are bounded by"
            " listener.write_buffer_bytes_max."
        ),
    ),
    "memory_limit": (
        MISSING,
        (
            "memory.budget_bytes bounds the memory that all clients together may take; it is"
            " compared with the worst case at the start, so choose it by docs/flow.md#memory."
        ),
    ),
    "packet_buffer_size": (SAME, "Reads take all bytes that have arrived; there is no setting."),
    "pid_file": (SAME, "A service manager knows the process; no such file is written."),
    "psk_file": (
        MISSING,
        (
            "The listeners with pre-shared keys name it, listener.psk_file (docs/listeners.md); it"
            " needs Python 3.13."
        ),
    ),
    "retain_expiry_interval": (
        MISSING,
        (
            "Retained messages stay until they are replaced, cleared or their message expiry"
            " interval has passed; `penstock retained clear --older-than` clears old ones."
        ),
    ),
    "retry_interval": (SAME, "Mosquitto has dropped this option, too."),
    "set_tcp_nodelay": (SAME, "Small packets are never delayed (TCP_NODELAY)."),
    "upgrade_outgoing_qos": (
        MISSING,
        (
            "A message is delivered with the lower of its QoS and that of the subscription, as with"
            " `upgrade_outgoing_qos false`."
        ),
    ),
    "user": (SAME, "The service manager that starts the broker sets its user."),
    "websockets_headers_size": (
        SAME,
        "The header of a WebSocket request has a fixed bound.",
    ),
    "websockets_log_level": (SAME, "WebSocket has no separate log; see log.level."),
}
"""The kind and the explanation of the finding, by option."""
