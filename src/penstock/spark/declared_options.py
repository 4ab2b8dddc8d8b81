"""The options of `format("penstock")`: name, default and explanation of each.

``options`` reads those of the source, ``sink_options`` those of the sink; docs/spark_options.md is
made of this file, and a test holds each default against what is taken where an option is not given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class DeclaredOption:
    """An option as its users see it.

    Attributes:
        name: its name; Spark ignores the case.
        default: the value without it, in Markdown; one in backquotes may be given.
        text: its meaning, in Markdown.
    """

    name: str
    default: str
    text: str


ACCESS_OPTIONS: Final = (
    DeclaredOption(
        "tls",
        "`false`",
        "whether the service speaks TLS; its certificate must be for the host named in `server`",
    ),
    DeclaredOption(
        "tlsCaFile",
        "those of the system",
        "PEM file of the authorities that may have signed its certificate; means `tls`. On "
        "every machine of the cluster",
    ),
    DeclaredOption(
        "tlsCertFile",
        "",
        "PEM files of the certificate to show to a service that asks for one, and of its "
        "private key. On every machine of the cluster",
    ),
    DeclaredOption(
        "tlsKeyFile",
        "",
        "PEM files of the certificate to show to a service that asks for one, and of its "
        "private key. On every machine of the cluster",
    ),
    DeclaredOption(
        "token",
        "",
        "shown to a service that asks for one. It is in no plan, progress or log",
    ),
    DeclaredOption(
        "tokenFile",
        "",
        "a file with the token, instead, such as `stream-token` in the data directory of a "
        "broker with users ([security.md](security.md#readers-of-the-streams)). On every "
        "machine of the cluster; read anew with each connection",
    ),
)

SOURCE_OPTIONS: Final = (
    DeclaredOption(
        "server",
        "`127.0.0.1:8815`",
        "HOST:PORT of the stream service; `grpc://` in front is allowed, `grpc+tls://` says "
        "that it speaks TLS. [In a cluster](spark.md#a-cluster) those of all machines, separated "
        "by commas: the query goes on at another when one dies",
    ),
    DeclaredOption(
        "servers",
        "",
        "several brokers with a log each, separated by commas, [read as "
        "one](spark.md#several-brokers-in-one-query); instead of `server`",
    ),
    DeclaredOption(
        "stream",
        "`messages`",
        "the stream to read: `messages`, the log itself, or one of `[[stream.streams]]`",
    ),
    DeclaredOption(
        "topics",
        "all",
        "MQTT topic filters, comma-separated: `plant/+/temperature,alarms/#`; those with a "
        'comma in them as a JSON list, `["plant/a,b/+"]`. Applied by the service, before '
        "anything travels",
    ),
    DeclaredOption(
        "startingOffsets",
        "`earliest`",
        '`earliest`, `latest` (not for `spark.read`), or a position such as `{"0": 1234, '
        '"epoch": "20261121T075206-9f3a1c04"}`. For a query without a checkpoint; a restarted'
        " query goes on where it was. Without `epoch` the current one is meant; the offset -2"
        " is earliest, -1 latest. With `servers` an object of positions by server: "
        '`{"one:8815": {"0": 1234}, "two:8815": {"0": -2}}`',
    ),
    DeclaredOption(
        "startingTimestamp",
        "",
        "instead: [what was received since](spark.md#times), in ms since 1970, or "
        "`2026-11-21T08:00:00Z`",
    ),
    DeclaredOption(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        "where nothing was received since then: `error`, or `latest` to begin at the end",
    ),
    DeclaredOption(
        "endingOffsets",
        "`latest`",
        "as `startingOffsets`, for `spark.read` only; the end is excluded",
    ),
    DeclaredOption(
        "endingTimestamp",
        "",
        "instead: up to the first message received at or after this time, excluded; the end "
        "of the log where there is none",
    ),
    DeclaredOption(
        "maxOffsetsPerTrigger",
        "no limit",
        "most offsets of one micro-batch",
    ),
    DeclaredOption(
        "minPartitions",
        "cores of the driver's machine",
        "tasks a batch is split into, about, evenly. On a cluster set it to the cores of the "
        "cluster",
    ),
    DeclaredOption(
        "maxRecordsPerPartition",
        "no limit",
        "most offsets of one task; there are more tasks then",
    ),
    DeclaredOption(
        "failOnDataLoss",
        "`true`",
        "whether messages that are gone before they were read end the query: retention "
        "removed them, the log has [another epoch](spark.md#when-something-is-away-or-wrong),"
        " or their broker is no longer one of `servers`. With `false` the query goes on with "
        "a warning in the driver's log",
    ),
    DeclaredOption(
        "includeProperties",
        "`true`",
        "whether there is the column `properties`",
    ),
    DeclaredOption(
        "connectTimeoutSeconds",
        "`60`",
        "how long a stream service may be away before the query fails. It is retried in the "
        "planner and in every task",
    ),
    DeclaredOption(
        "checkpointLocation",
        "",
        "the query's own checkpoint location, given to `readStream` too. Needed for a start "
        "at `latest` without a `groupId`: Spark asks a source again where to begin when it "
        "restarts before its first batch is done, so the first answer is kept in that "
        "directory (`penstock-start-….json`). Anything Arrow has a file system for",
    ),
    DeclaredOption(
        "groupId",
        "",
        "makes a streaming query a [registered reader](spark.md#readers): the broker, or each"
        " of `servers`, keeps what it has not read, says how far it is behind, and remembers "
        "where a start at `latest` was. 1 to 64 letters, digits and `. _ -`; one for each "
        "query",
    ),
    DeclaredOption(
        "groupLeaseSeconds",
        "`3600`",
        "how long the broker keeps messages for the group when nothing is heard of it; a "
        "batch that takes longer than this counts as that. At most "
        "stream.reader_lease_s_max",
    ),
    DeclaredOption(
        "batchAtStart",
        "`false`",
        "streaming: a batch is run when the query starts, though there is nothing new. Spark "
        "itself waits for a message then, and with it the processing-time timers of "
        "`transformWithState` that ran out while the query was away",
    ),
    *ACCESS_OPTIONS,
)

SINK_OPTIONS: Final = (
    DeclaredOption(
        "server",
        "`127.0.0.1:8815`",
        "HOST:PORT of the stream service; `grpc://` in front is allowed, `grpc+tls://` says "
        "that it speaks TLS. [In a cluster](spark.md#a-cluster) those of all machines, separated "
        "by commas",
    ),
    DeclaredOption(
        "connectTimeoutSeconds",
        "`60`",
        "how long a stream service may be away before the query fails. It is retried in the "
        "planner and in every task",
    ),
    DeclaredOption(
        "topic",
        "",
        "where rows without a topic are published",
    ),
    DeclaredOption(
        "qos",
        "`1`",
        "of rows without one",
    ),
    DeclaredOption(
        "retain",
        "`false`",
        "of rows without one",
    ),
    DeclaredOption(
        "clientId",
        "`spark-` and the sink's id",
        "what stands in the log as `client_id`",
    ),
    DeclaredOption(
        "sinkId",
        "drawn anew",
        "for `df.write`: the name of this batch of rows, 1 to 128 letters, digits and `. _ "
        "-`. A job that runs again with the same name publishes nothing more; without one it "
        "publishes again",
    ),
    DeclaredOption(
        "batchId",
        "`0`",
        "for `df.write` with `sinkId`: a batch of that sink, each greater than the one "
        "before: a lower one publishes nothing, with a warning. In `foreachBatch` give the "
        "query a `sinkId`, and its batch number here",
    ),
    DeclaredOption(
        "checkpointLocation",
        "",
        "of the query; the broker recognises the query by the id that Spark keeps there",
    ),
    *ACCESS_OPTIONS,
)
