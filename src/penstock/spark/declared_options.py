"""The options of `format("penstock")`: name, default and explanation of each.

``options`` reads those of the source, ``sink_options`` those of the sink. docs/spark_options.md is
generated from this file, and a test compares each default with the value that the readers use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class DeclaredOption:
    """An option as its users see it.

    Attributes:
        name: the name of the option; Spark ignores its case.
        default: the value if the option is not given, in Markdown; a value that can also be given
            is in backquotes.
        text: the meaning of the option, in Markdown.
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
        "the token for a service that asks for one. It is in no plan, progress or log",
    ),
    DeclaredOption(
        "tokenFile",
        "",
        "instead of `token`: a file with it, such as `stream-token` in the data directory of a "
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
        "by commas: the query continues at another when one fails",
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
        "topicPattern",
        "",
        "instead of `topics`: a topic filter with named levels, `plant/{line}/{machine:int}/#`, as "
        "those of [declared tables](tables.md#what-a-declaration-says). Each name is a column, "
        "of type string, or bigint and double with `:int` and `:float` (null where the level is "
        "none). A batch query's condition on a level of text "
        "[is applied by the log](spark.md#filters-that-the-log-takes-over)",
    ),
    DeclaredOption(
        "startingOffsets",
        "`earliest`",
        '`earliest`, `latest` (not for `spark.read`), or a position such as `{"0": 1234, '
        '"epoch": "20261121T075206-9f3a1c04"}`. For a query without a checkpoint; a restarted'
        " query continues from its checkpoint. Without `epoch` the current one is meant; the offset"
        " -2 is earliest, -1 latest. With `servers` an object of positions by server: "
        '`{"one:8815": {"0": 1234}, "two:8815": {"0": -2}}`',
    ),
    DeclaredOption(
        "startingTimestamp",
        "",
        "instead of `startingOffsets`: the time of receipt of the [first "
        "message](spark.md#times), in ms since 1970, or "
        "`2026-11-21T08:00:00Z`",
    ),
    DeclaredOption(
        "startingOffsetsByTimestampStrategy",
        "`error`",
        "if nothing was received since `startingTimestamp`: `error`, or `latest` to begin at "
        "the end of the log",
    ),
    DeclaredOption(
        "endingOffsets",
        "`latest`",
        "as `startingOffsets`, for `spark.read` only; the end is excluded",
    ),
    DeclaredOption(
        "endingTimestamp",
        "",
        "instead of `endingOffsets`: up to the [first message](spark.md#times) received at or "
        "after this time, excluded; the end of the log if there is none",
    ),
    DeclaredOption(
        "maxOffsetsPerTrigger",
        "no limit",
        "most offsets of one micro-batch",
    ),
    DeclaredOption(
        "minPartitions",
        "cores of the driver's machine",
        "about the number of tasks of a batch, of equal size. On a cluster set it to the cores "
        "of the cluster",
    ),
    DeclaredOption(
        "maxRecordsPerPartition",
        "no limit",
        "most offsets of one task; a larger batch has more tasks",
    ),
    DeclaredOption(
        "failOnDataLoss",
        "`true`",
        "whether the loss of unread messages ends the query: retention removed them, the log "
        "has [another epoch](spark.md#when-something-is-away-or-wrong), or their broker is no "
        "longer one of `servers`. With `false` the query continues with a warning in the "
        "driver's log",
    ),
    DeclaredOption(
        "includeProperties",
        "`true`",
        "whether the stream has the column `properties`",
    ),
    DeclaredOption(
        "connectTimeoutSeconds",
        "`60`",
        "how long a stream service may be unreachable before the query fails. It is retried in the "
        "planner and in every task",
    ),
    DeclaredOption(
        "checkpointLocation",
        "",
        "the query's own checkpoint location, given to `readStream` too. Needed for a start "
        "at `latest` without a `groupId`: Spark asks a source again where to begin when it "
        "restarts before its first batch is committed, so the first answer is stored in that "
        "directory (`penstock-start-….json`), on any file system that Arrow supports",
    ),
    DeclaredOption(
        "groupId",
        "",
        "makes a streaming query a [registered reader](spark.md#readers): the broker, or each"
        " of `servers`, keeps the messages that the query has not read, reports its lag, and "
        "stores the first position of a start at `latest`. 1 to 64 letters, digits and `. _ -`; "
        "each query needs its own",
    ),
    DeclaredOption(
        "groupLeaseSeconds",
        "`3600`",
        "for how long the broker keeps messages for the group after the query last renewed its "
        "lease; it does so at least once in a batch, so no batch may take longer. At most "
        "stream.reader_lease_s_max",
    ),
    DeclaredOption(
        "batchAtStart",
        "`false`",
        "for streaming: run a batch when the query starts, even without new messages. Otherwise "
        "Spark waits for a message, and so do processing-time timers of `transformWithState` "
        "that expired while the query was stopped",
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
        "how long a stream service may be unreachable before the query fails. It is retried in the "
        "planner and in every task",
    ),
    DeclaredOption(
        "topic",
        "",
        "the topic of rows without one",
    ),
    DeclaredOption(
        "qos",
        "`1`",
        "the QoS of rows without one",
    ),
    DeclaredOption(
        "retain",
        "`false`",
        "the RETAIN flag of rows without one",
    ),
    DeclaredOption(
        "clientId",
        "`spark-` and the sink's id",
        "the `client_id` of the messages in the log",
    ),
    DeclaredOption(
        "sinkId",
        "a random id",
        "for `df.write`: the name of this set of rows, 1 to 128 letters, digits and `. _ -`. A "
        "job that runs again with the same name publishes nothing more; without a name it "
        "publishes again",
    ),
    DeclaredOption(
        "batchId",
        "`0`",
        "for `df.write` with `sinkId`: the number of this batch of the sink. Numbers must "
        "increase: a lower one publishes nothing, with a warning. In `foreachBatch` give the "
        "query a `sinkId`, and its batch number here",
    ),
    DeclaredOption(
        "checkpointLocation",
        "",
        "the checkpoint of the query; the broker identifies the query by the id that Spark "
        "stores there, and what each batch reads by a digest of Spark's file about it",
    ),
    DeclaredOption(
        "failOnDataLoss",
        "`true`",
        "for a streaming query: it ends if the broker lacks batches that the checkpoint counts as "
        "published, because the broker's data directory was put back from an older copy, or is of "
        "another broker. With `false` it continues without them, with a warning in the broker's "
        "log; what Spark planned anew under a published number is refused all the same",
    ),
    *ACCESS_OPTIONS,
)
