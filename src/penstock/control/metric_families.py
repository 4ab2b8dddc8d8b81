"""The metrics of a broker: every family with its kind, its labels and its meaning.

A new metric needs a line here, and a value in ``services.metrics`` or in the module that measures
it. docs/metrics.md is made from this table. Names never change: the dashboards of others depend on
them.

Rules (https://prometheus.io/docs/specs/om/open_metrics_spec): a name ends with its unit, which is
seconds, bytes or nothing; the name of a counter is written without ``_total``, which the name of
its value has. A label has as many values as the specification or the settings name: never a client
or a topic.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PREFIX: Final = "penstock_"

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
GAUGE_HISTOGRAM: Final = "gaugehistogram"
INFO: Final = "info"


class Family(NamedTuple):
    """The declaration of one family.

    Attributes:
        name: its name, without ``PREFIX`` and without the suffix of its kind.
        kind: ``COUNTER``, ``GAUGE``, ``HISTOGRAM``, ``GAUGE_HISTOGRAM`` or ``INFO``.
        text: its meaning, a sentence without its full stop.
        labels: names of its labels.
    """

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name under which Prometheus finds the value; of a histogram the common part of its
        names."""
        suffix = {COUNTER: "_total", INFO: "_info"}.get(self.kind, "")
        return f"{PREFIX}{self.name}{suffix}"

    @property
    def unit(self) -> str:
        """The unit of the value: "seconds", "bytes", or empty."""
        last = self.name.rpartition("_")[2]
        return last if last in ("seconds", "bytes") else ""


_BROKER: Final = (
    Family(
        "build",
        INFO,
        "The version of Penstock, whether protocol and engine are compiled, and Python's version",
        ("version", "build", "python"),
    ),
    Family(
        "log_epoch",
        INFO,
        "The epoch of the log, and when a message is acknowledged",
        ("epoch", "acknowledged_when"),
    ),
    Family(
        "log_forks", COUNTER, "New epochs of the log, because readers had another history of it"
    ),
    Family(
        "log_damaged_blocks",
        GAUGE,
        "Damaged blocks of the log that readers found since the broker started",
    ),
    Family("uptime_seconds", GAUGE, "Time since the broker started"),
    Family("draining", GAUGE, "1 while the broker is being emptied and accepts no clients, else 0"),
    Family(
        "child_restarts",
        COUNTER,
        "Times that a process beside the broker ended and was started again",
        ("process",),
    ),
    Family(
        "child_hangs",
        COUNTER,
        "Times that a process beside the broker gave no sign of life for 20 s and was killed",
        ("process",),
    ),
    Family(
        "child_silent_seconds",
        GAUGE,
        "Time since the last sign of life of a process beside the broker, one every 2 s",
        ("process",),
    ),
    Family(
        "loop_lag_seconds",
        HISTOGRAM,
        "How late the event loop ran a timer, measured four times a second",
    ),
    Family(
        "certificate_expires_seconds",
        GAUGE,
        "Time until a file of certificates expires, negative once it has",
        ("part", "name", "file"),
    ),
    Family(
        "certificate_works",
        GAUGE,
        "1 while a file of certificates is valid, 0 once it has expired or before it begins",
        ("part", "name", "file"),
    ),
    Family("scrape_duration_seconds", GAUGE, "Time that the broker took to answer this scrape"),
    Family("slow_turns", COUNTER, "Turns of the event loop that took longer than 0.1 s"),
    Family("slow_turns_seconds", COUNTER, "Time of turns of the event loop longer than 0.1 s"),
)

_CLIENTS: Final = (
    Family(
        "clients_connected", GAUGE, "Clients that are connected, bridges of this broker among them"
    ),
    Family(
        "clients_connected_maximum", GAUGE, "The most clients that were connected at the same time"
    ),
    Family("sessions", GAUGE, "Sessions, with and without a connection"),
    Family("sessions_expired", COUNTER, "Sessions that ended because their expiry interval passed"),
    Family("subscriptions", GAUGE, "Subscriptions of all sessions"),
    Family("shared_subscriptions", GAUGE, "Shared subscriptions of all sessions"),
    Family("shared_subscription_messages", GAUGE, "Messages in the queues of shared subscriptions"),
    Family("accounts", GAUGE, "Users and addresses of anonymous clients whose memory is accounted"),
    Family(
        "listener_connections",
        GAUGE,
        "Connections that are open, before and after CONNECT, by listener",
        ("listener",),
    ),
    Family(
        "listener_connections_refused",
        COUNTER,
        "Connections closed because max_connections, connections_per_address_max or the limit of"
        " open files was reached",
        ("listener",),
    ),
    Family(
        "listener_connections_opened",
        COUNTER,
        "Connections opened, with and without a successful CONNECT, by listener",
        ("listener",),
    ),
    Family(
        "standby_clients_referred",
        COUNTER,
        "Clients that a standby referred to the primary of the cluster, or told that none is known",
    ),
    Family(
        "standby_clients_refused",
        COUNTER,
        "Connections to a standby that ended before an answer, or sent no CONNECT",
    ),
    Family("standby_clients_relayed", COUNTER, "Connections that a standby relayed to the primary"),
    Family(
        "standby_relays_failed",
        COUNTER,
        "Connections that a standby could not relay, because it did not reach the primary",
    ),
    Family("standby_relays", GAUGE, "Connections that a standby relays now"),
    Family("connections_opened", COUNTER, "Connections opened, with and without a CONNECT"),
    Family("connections_accepted", COUNTER, "Connections accepted: CONNECT answered with success"),
    Family(
        "clients_survey_age_seconds",
        GAUGE,
        "Age of the survey of all clients, from which the next five families are computed",
    ),
    Family(
        "clients_by_version",
        GAUGE,
        "Clients that are connected, without bridges, by version of MQTT",
        ("version",),
    ),
    Family(
        "listener_clients",
        GAUGE,
        "Clients that are connected, without bridges, by listener",
        ("listener",),
    ),
    Family(
        "clients_at_limit",
        GAUGE,
        "Sessions at a limit: window full, write buffer full, queue full, inbound quota used up",
        ("limit",),
    ),
    Family(
        "client_window_messages",
        GAUGE_HISTOGRAM,
        "Messages in the in-flight window, by connected client",
    ),
    Family("client_queue_messages", GAUGE_HISTOGRAM, "Messages in the queue, by session"),
)

_TRAFFIC: Final = (
    Family("received_bytes", COUNTER, "Bytes of MQTT packets received, without TLS and TCP"),
    Family("sent_bytes", COUNTER, "Bytes of MQTT packets handed to sockets, without TLS and TCP"),
    Family("packets_received", COUNTER, "Packets received, by type", ("type",)),
    Family(
        "packets_sent",
        COUNTER,
        "Packets written for peers, by type, even if the connection ended before they were sent",
        ("type",),
    ),
    Family("messages_received", COUNTER, "PUBLISH packets received, by QoS", ("qos",)),
    Family(
        "messages_sent",
        COUNTER,
        "PUBLISH packets written for peers, by QoS, retransmissions included",
        ("qos",),
    ),
    Family("payload_received_bytes", COUNTER, "Bytes of payloads received"),
    Family("payload_sent_bytes", COUNTER, "Bytes of payloads written for peers"),
    Family(
        "messages_dropped",
        COUNTER,
        "Messages that did not reach a client they were meant for, by reason (docs/sys_topics.md)",
        ("reason",),
    ),
    Family(
        "rate_limit_pauses",
        COUNTER,
        "Times that reading from a client above its rate limit was paused",
    ),
    Family("retained_messages", GAUGE, "Retained messages"),
    Family("events_written", COUNTER, "Events of the broker written into its log"),
    Family("events_lost", COUNTER, "Events lost because the store could not write"),
)

_GROUP_LABELS: Final = ("listener", "client_group")

_CLIENT_GROUPS: Final = (
    Family(
        "client_group_clients",
        GAUGE,
        "Clients that are connected, at the last survey of all clients",
        _GROUP_LABELS,
    ),
    Family(
        "client_group_connections_accepted",
        COUNTER,
        "Connections accepted: CONNECT answered with success",
        _GROUP_LABELS,
    ),
    Family(
        "client_group_logins_failed",
        COUNTER,
        "Clients not let in because of their name, password, certificate, proof or permissions,"
        " by the client group of the name that they gave",
        _GROUP_LABELS,
    ),
    Family(
        "client_group_received_bytes",
        COUNTER,
        "Bytes of MQTT packets received",
        _GROUP_LABELS,
    ),
    Family(
        "client_group_sent_bytes",
        COUNTER,
        "Bytes of MQTT packets handed to sockets",
        _GROUP_LABELS,
    ),
    Family(
        "client_group_packets_received",
        COUNTER,
        "Packets of all types received",
        _GROUP_LABELS,
    ),
    Family("client_group_packets_sent", COUNTER, "Packets of all types written", _GROUP_LABELS),
    Family("client_group_messages_received", COUNTER, "PUBLISH packets received", _GROUP_LABELS),
    Family("client_group_messages_sent", COUNTER, "PUBLISH packets written", _GROUP_LABELS),
    Family(
        "client_group_messages_dropped",
        COUNTER,
        "Messages that did not reach a client they were meant for",
        _GROUP_LABELS,
    ),
)

_ACCESS: Final = (
    Family("logins_checked", COUNTER, "Passwords and tokens that were checked"),
    Family("logins_remembered", COUNTER, "Logins let in by a check that is still remembered"),
    Family("logins_failed", COUNTER, "Logins with a wrong password or proof"),
    Family("logins_refused", COUNTER, "Logins refused without a check"),
    Family("logins_waiting", GAUGE, "Clients that wait for a check"),
    Family("bans", GAUGE, "Bans of addresses, users and client identifiers"),
    Family("bans_made", COUNTER, "Bans made, by operators and by the broker"),
    Family("bans_refused", COUNTER, "Connections refused because of a ban"),
)

_MEMORY: Final = (
    Family(
        "memory_bytes",
        GAUGE,
        "Memory that clients make the broker use, approximately, by budget (docs/flow.md)",
        ("budget",),
    ),
    Family("memory_limit_bytes", GAUGE, "The limit of a budget; 0 is no limit", ("budget",)),
    Family(
        "sessions_refused",
        COUNTER,
        "Sessions, subscriptions and wills refused for lack of memory",
    ),
    Family(
        "half_received_closed",
        COUNTER,
        "Connections closed because they sent a large packet too slowly while others waited",
    ),
)

_STORE: Final = (
    Family("commits", COUNTER, "Commits: atomic writes, each with all messages that waited"),
    Family(
        "commit_duration_seconds",
        HISTOGRAM,
        "Time from sealing a batch until it is durable: what an acknowledgement waits for",
    ),
    Family("commit_messages", HISTOGRAM, "Messages that a commit appends to the log"),
    Family("commit_size_bytes", HISTOGRAM, "Approximate size of a commit"),
    Family(
        "store_write_duration_seconds",
        HISTOGRAM,
        "Time that the store takes for one synced write (write and fsync), without queueing",
    ),
    Family("commit_waits_seconds", GAUGE, "How long the commit in progress has taken until now"),
    Family("store_works", GAUGE, "1 while the store can write, 0 while it cannot"),
    Family("store_outages", COUNTER, "Times that the store could not write any more"),
    Family("log_earliest_offset", GAUGE, "Offset of the oldest message in the log"),
    Family("log_end_offset", GAUGE, "Offset that the next committed message gets"),
    Family("log_bytes", GAUGE, "Size of the log on disk"),
    Family(
        "archive_messages", GAUGE, "Messages that a stream keeps longer than the log", ("stream",)
    ),
    Family(
        "archive_bytes",
        GAUGE,
        "Size on disk of messages that a stream keeps longer than the log",
        ("stream",),
    ),
    Family("disk_free_bytes", GAUGE, "Free bytes on the file system of the data directory"),
    Family("disk_size_bytes", GAUGE, "Size of the file system of the data directory"),
)

_READERS: Final = (
    Family("reader_offset", GAUGE, "Offset before which the reader needs no message", ("group",)),
    Family(
        "reader_lag_messages", GAUGE, "Messages in the log from the reader's offset on", ("group",)
    ),
    Family(
        "reader_lag_seconds",
        GAUGE,
        "Age of the message at the reader's offset; missing if it is no longer in the log",
        ("group",),
    ),
    Family("reader_lease_seconds", GAUGE, "Time until the reader's lease ends", ("group",)),
    Family(
        "reader_lost_messages",
        COUNTER,
        "Messages removed from the log although the reader's lease protected them",
        ("group",),
    ),
    Family("table_offset", GAUGE, "Offset before which the table has all its messages", ("table",)),
    Family(
        "table_lag_messages", GAUGE, "Messages in the log from the table's offset on", ("table",)
    ),
    Family(
        "table_lag_seconds",
        GAUGE,
        "Age of the message at the table's offset; missing if it is no longer in the log",
        ("table",),
    ),
    Family("table_receipts", COUNTER, "Receipts published for messages in the table", ("table",)),
    Family(
        "table_receipts_refused",
        COUNTER,
        "Receipts for messages in the table that could not be published",
        ("table",),
    ),
)

_BRIDGES: Final = (
    Family(
        "bridge_connected",
        GAUGE,
        "1 while the bridge is connected to the remote broker",
        ("bridge",),
    ),
    Family("bridge_queue_messages", GAUGE, "Messages that wait for the bridge", ("bridge",)),
    Family("bridge_queue_bytes", GAUGE, "Size of the messages that wait", ("bridge",)),
    Family("bridge_window_messages", GAUGE, "Messages sent and not acknowledged", ("bridge",)),
    Family(
        "bridge_lag_seconds",
        GAUGE,
        "How long the oldest message has waited; missing while it is not known",
        ("bridge",),
    ),
    Family("bridge_sent", COUNTER, "Messages sent to the remote broker", ("bridge",)),
    Family("bridge_resent", COUNTER, "Messages sent to the remote broker again", ("bridge",)),
    Family(
        "bridge_acknowledged",
        COUNTER,
        "Messages that the remote broker acknowledged",
        ("bridge",),
    ),
    Family("bridge_received", COUNTER, "Messages received from the remote broker", ("bridge",)),
    Family(
        "bridge_looped",
        COUNTER,
        "Messages not forwarded because they came from here in a loop of bridges",
        ("bridge",),
    ),
    Family(
        "bridge_dropped",
        COUNTER,
        "Messages dropped for the bridge, by reason",
        ("bridge", "reason"),
    ),
)

_CLUSTER: Final = (
    Family(
        "cluster_role",
        GAUGE,
        "1 for the role of this member (primary, standby, waiting, seeding, fenced), 0 for the"
        " other roles",
        ("cluster", "role"),
    ),
    Family("cluster_term", GAUGE, "The term of the last claim in this member's view"),
    Family("cluster_primary_known", GAUGE, "1 while this member is or hears the primary, else 0"),
    Family(
        "cluster_applied_sequence",
        GAUGE,
        "The last entry of the cluster's log in this member's view",
    ),
    Family(
        "cluster_synced_sequence",
        GAUGE,
        "The last entry up to which this member's view is synced to disk",
    ),
    Family("cluster_log_first_sequence", GAUGE, "The first entry in the cluster's log"),
    Family("cluster_log_last_sequence", GAUGE, "The last entry in the cluster's log"),
    Family("cluster_log_bytes", GAUGE, "Size of the entries of the cluster's log"),
    Family(
        "cluster_log_has_quorum",
        GAUGE,
        "1 while a majority of the log's servers is available, else 0",
    ),
    Family("cluster_log_servers_behind", GAUGE, "Servers of the log that lack some of its entries"),
    Family(
        "cluster_member_lag_entries",
        GAUGE,
        "Entries of the log that the view of another member lacks, by its last heartbeat",
        ("node",),
    ),
    Family(
        "cluster_member_silent_seconds",
        GAUGE,
        "Time since the last heartbeat of another member, which is forgotten after an hour",
        ("node",),
    ),
    Family(
        "cluster_append_duration_seconds",
        HISTOGRAM,
        "Time that the log took for each entry that this member appended as the primary",
    ),
    Family("cluster_claims", COUNTER, "Takeovers by this member, each of which begins a term"),
    Family("cluster_seedings", COUNTER, "Times that this member copied another member's store"),
    Family(
        "cluster_records_skipped",
        COUNTER,
        "Records of a former primary that were not applied, because they were appended behind the"
        " claim of the next",
    ),
    Family(
        "cluster_entries_damaged",
        COUNTER,
        "Entries that one server of the log gave damaged or not at all, and another gave whole",
    ),
    Family(
        "cluster_server_health",
        GAUGE,
        "1 for the health of the log's server on this machine (whole, spare, behind, silent,"
        " damaged, lost, unknown), 0 for the others",
        ("health",),
    ),
    Family(
        "cluster_server_refills",
        COUNTER,
        "Times that the data of the log's server on this machine were set aside, and filled anew"
        " from the others",
    ),
    Family(
        "cluster_server_restarts",
        COUNTER,
        "Times that the log's server on this machine was restarted because it made no progress",
    ),
)

PROCESS: Final = (
    ("process_cpu_seconds_total", COUNTER, "Processor time, user and system"),
    ("process_resident_memory_bytes", GAUGE, "Resident memory"),
    ("process_virtual_memory_bytes", GAUGE, "Virtual memory"),
    ("process_open_fds", GAUGE, "Open file descriptors"),
    ("process_max_fds", GAUGE, "The limit of open file descriptors"),
    ("process_start_time_seconds", GAUGE, "Time of the start, since the Unix epoch"),
)
"""Metrics of a process, which prometheus_client reads on Linux: of the broker under these names,
and of the admin process with ``penstock_admin_`` in front."""

GROUPS: Final = (
    ("The broker", _BROKER),
    ("Clients", _CLIENTS),
    ("Messages and packets", _TRAFFIC),
    ("Listeners and client groups", _CLIENT_GROUPS),
    ("Logins and bans", _ACCESS),
    ("Memory", _MEMORY),
    ("Commits, store and log", _STORE),
    ("Readers and tables", _READERS),
    ("Bridges", _BRIDGES),
    ("The cluster", _CLUSTER),
)
"""All families, in the order of docs/metrics.md."""

FAMILIES: Final = {family.name: family for _, group in GROUPS for family in group}

MetricSample = tuple[str, tuple[str, ...], float]
"""One value of a metric: the family's name, a value for each of its labels, and the number."""
