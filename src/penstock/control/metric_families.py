"""The metrics of a broker: every family with its kind, its labels and what it means.

A new metric is a line here, and a value in ``services.metrics`` or beside what it measures.
docs/metrics.md is made from this table. Names are for good: a dashboard of others depends on them.

Rules (https://prometheus.io/docs/specs/om/open_metrics_spec): a name ends with its unit, which is
seconds, bytes or nothing; the name of a counter is written without ``_total``, which its value has.
A label has as many values as the specification or the settings name: never a client or a topic.
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
        """The name under which Prometheus finds its value; of a histogram the common part."""
        suffix = {COUNTER: "_total", INFO: "_info"}.get(self.kind, "")
        return f"{PREFIX}{self.name}{suffix}"

    @property
    def unit(self) -> str:
        """Its unit: "seconds", "bytes", or empty."""
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
        "The incarnation of the log, and what an acknowledgement promises",
        ("epoch", "acknowledged_when"),
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
        "loop_lag_seconds",
        HISTOGRAM,
        "How late the event loop ran a timer, measured four times a second",
    ),
    Family("scrape_duration_seconds", GAUGE, "Time that the broker took to answer this scrape"),
    Family("slow_turns", COUNTER, "Turns of the event loop that took longer than 0.1 s"),
    Family("slow_turns_seconds", COUNTER, "Time that those turns took"),
)

_CLIENTS: Final = (
    Family(
        "clients_connected", GAUGE, "Clients that are connected, bridges of this broker among them"
    ),
    Family(
        "clients_connected_maximum", GAUGE, "The most clients that were connected at the same time"
    ),
    Family("sessions", GAUGE, "Sessions, connected and away"),
    Family("sessions_expired", COUNTER, "Sessions that ended because their expiry interval passed"),
    Family("subscriptions", GAUGE, "Subscriptions of all sessions"),
    Family("shared_subscriptions", GAUGE, "Shared subscriptions among them"),
    Family("shared_subscription_messages", GAUGE, "Messages in the queues of all groups"),
    Family(
        "accounts", GAUGE, "Users, and addresses of anonymous clients, with memory of their own"
    ),
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
        "Connections opened, whatever became of them, by listener",
        ("listener",),
    ),
    Family(
        "standby_clients_referred",
        COUNTER,
        "Clients of a standby that were told where the primary of the cluster is, or that none is"
        " known",
    ),
    Family(
        "standby_clients_refused",
        COUNTER,
        "Connections to a standby that ended before they could be told, or sent no CONNECT",
    ),
    Family("standby_clients_relayed", COUNTER, "Connections that a standby relayed to the primary"),
    Family(
        "standby_relays_failed",
        COUNTER,
        "Connections that a standby could not relay, because it did not reach the primary",
    ),
    Family("standby_relays", GAUGE, "Connections that a standby relays now"),
    Family("connections_opened", COUNTER, "Connections opened, whatever became of them"),
    Family("connections_accepted", COUNTER, "Connections accepted: CONNECT answered with success"),
    Family(
        "clients_survey_age_seconds",
        GAUGE,
        "Time since the clients were last looked at one by one; the next five families are of then",
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
        "Places taken in the in-flight window, by connected client",
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
        "Packets written for peers, by type, also where the connection ended before they left",
        ("type",),
    ),
    Family("messages_received", COUNTER, "PUBLISH packets received, by their QoS", ("qos",)),
    Family(
        "messages_sent",
        COUNTER,
        "PUBLISH packets written for peers, by their QoS, those sent again among them",
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
        "Times that a client above its rate limit was not read for a while",
    ),
    Family("retained_messages", GAUGE, "Retained messages"),
    Family("events_written", COUNTER, "Events of the broker written into its log"),
    Family("events_lost", COUNTER, "Events lost because the store could not write"),
)

_PAIR: Final = ("listener", "client_group")

_CLIENT_GROUPS: Final = (
    Family(
        "client_group_clients", GAUGE, "Clients that are connected; as old as the survey", _PAIR
    ),
    Family(
        "client_group_connections_accepted",
        COUNTER,
        "Connections accepted: CONNECT answered with success",
        _PAIR,
    ),
    Family(
        "client_group_logins_failed",
        COUNTER,
        "Clients not let in because of their name, password, certificate, proof or permissions,"
        " by the group of whom they claim to be",
        _PAIR,
    ),
    Family("client_group_received_bytes", COUNTER, "Bytes of MQTT packets received", _PAIR),
    Family("client_group_sent_bytes", COUNTER, "Bytes of MQTT packets handed to sockets", _PAIR),
    Family("client_group_packets_received", COUNTER, "Packets of all types received", _PAIR),
    Family("client_group_packets_sent", COUNTER, "Packets of all types written", _PAIR),
    Family("client_group_messages_received", COUNTER, "PUBLISH packets received", _PAIR),
    Family("client_group_messages_sent", COUNTER, "PUBLISH packets written", _PAIR),
    Family(
        "client_group_messages_dropped",
        COUNTER,
        "Messages that did not reach a client they were meant for",
        _PAIR,
    ),
)

_ACCESS: Final = (
    Family("logins_checked", COUNTER, "Passwords and tokens that were checked"),
    Family("logins_remembered", COUNTER, "Logins that needed no check: the same was right before"),
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
        "Memory that clients make the broker keep, about, by budget (docs/flow.md)",
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
        "Connections closed because they did not finish a large packet while others waited",
    ),
)

_STORE: Final = (
    Family("commits", COUNTER, "Commits: atomic writes, each with all that waited for it"),
    Family(
        "commit_duration_seconds",
        HISTOGRAM,
        "Time from sealing a batch until it is durable: what an acknowledgement waits for",
    ),
    Family("commit_messages", HISTOGRAM, "Messages that a commit appends to the log"),
    Family("commit_size_bytes", HISTOGRAM, "Size of a commit, about"),
    Family(
        "store_write_duration_seconds",
        HISTOGRAM,
        "Time that the store takes for one synced write (write and fsync), without waiting for it",
    ),
    Family("commit_waits_seconds", GAUGE, "How long the commit under way has taken until now"),
    Family("store_works", GAUGE, "1 while the store can write, 0 while it cannot"),
    Family("store_outages", COUNTER, "Times that the store could not write any more"),
    Family("log_earliest_offset", GAUGE, "Offset of the oldest message in the log"),
    Family("log_end_offset", GAUGE, "Offset that the next committed message gets"),
    Family("log_bytes", GAUGE, "Size of the log on disk"),
    Family(
        "archive_messages", GAUGE, "Messages that a stream keeps longer than the log", ("stream",)
    ),
    Family("archive_bytes", GAUGE, "Size of those messages on disk", ("stream",)),
    Family("disk_free_bytes", GAUGE, "Free bytes on the file system of the data directory"),
    Family("disk_size_bytes", GAUGE, "Size of that file system"),
)

_READERS: Final = (
    Family("reader_offset", GAUGE, "Everything before it the reader has done with", ("group",)),
    Family("reader_lag_messages", GAUGE, "Messages in the log from there on", ("group",)),
    Family(
        "reader_lag_seconds",
        GAUGE,
        "How long the oldest of them has waited; missing where it has left the log",
        ("group",),
    ),
    Family("reader_lease_seconds", GAUGE, "Time until the lease ends", ("group",)),
    Family(
        "reader_lost_messages",
        COUNTER,
        "Messages that left the log although they were held for the reader",
        ("group",),
    ),
    Family("table_offset", GAUGE, "The table has committed everything before it", ("table",)),
    Family("table_lag_messages", GAUGE, "Messages in the log from there on", ("table",)),
    Family(
        "table_lag_seconds",
        GAUGE,
        "How long the oldest of them has waited; missing where it has left the log",
        ("table",),
    ),
    Family("table_receipts", COUNTER, "Receipts published since the table is known", ("table",)),
    Family("table_receipts_refused", COUNTER, "Receipts that could not be published", ("table",)),
)

_BRIDGES: Final = (
    Family(
        "bridge_connected", GAUGE, "1 while the remote broker has let the bridge in", ("bridge",)
    ),
    Family("bridge_queue_messages", GAUGE, "Messages that wait for the bridge", ("bridge",)),
    Family("bridge_queue_bytes", GAUGE, "Size of those messages", ("bridge",)),
    Family("bridge_window_messages", GAUGE, "Messages sent and not acknowledged", ("bridge",)),
    Family(
        "bridge_lag_seconds",
        GAUGE,
        "How long the oldest message has waited; missing while it is not known",
        ("bridge",),
    ),
    Family("bridge_sent", COUNTER, "Messages sent to the remote broker", ("bridge",)),
    Family("bridge_resent", COUNTER, "Messages sent to it again", ("bridge",)),
    Family("bridge_acknowledged", COUNTER, "Messages that it acknowledged", ("bridge",)),
    Family("bridge_received", COUNTER, "Messages received from it", ("bridge",)),
    Family("bridge_looped", COUNTER, "Messages not handed on: they had come round", ("bridge",)),
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
        "cluster_applied_sequence", GAUGE, "The last entry of the cluster's log in this view of it"
    ),
    Family("cluster_synced_sequence", GAUGE, "The last entry of which this view is synced"),
    Family("cluster_log_first_sequence", GAUGE, "The first entry of the log that is kept"),
    Family("cluster_log_last_sequence", GAUGE, "The last entry of the log"),
    Family("cluster_log_bytes", GAUGE, "Size of the log's entries"),
    Family(
        "cluster_log_has_quorum",
        GAUGE,
        "1 while a majority of the log's servers is there, 0 while not, or while none answers",
    ),
    Family(
        "cluster_log_servers_behind", GAUGE, "Servers of the log that have not all of its entries"
    ),
    Family(
        "cluster_member_lag_entries",
        GAUGE,
        "Entries of the log that the view of a member lacks, as this one has heard",
        ("node",),
    ),
    Family(
        "cluster_member_silent_seconds",
        GAUGE,
        "Time since another member was heard; it is forgotten after an hour",
        ("node",),
    ),
    Family(
        "cluster_append_duration_seconds",
        HISTOGRAM,
        "Time that the log took for each entry that this member appended as the primary",
    ),
    Family("cluster_claims", COUNTER, "Terms that this member began: each is a takeover by it"),
    Family("cluster_seedings", COUNTER, "Times that this member took another one's view"),
    Family(
        "cluster_records_skipped",
        COUNTER,
        "Records of a former primary that were not applied, for they came behind the next one's"
        " claim",
    ),
    Family(
        "cluster_entries_damaged",
        COUNTER,
        "Damaged or missing entries that a server of the log gave, and another one gave whole",
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
"""All families, in the order of the document."""

FAMILIES: Final = {family.name: family for _, group in GROUPS for family in group}

MetricSample = tuple[str, tuple[str, ...], float]
"""A value: the family's name, a value for each of its labels, and the number."""
