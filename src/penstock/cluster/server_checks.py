"""Checks whether a cluster's NATS servers are set up so that they lose no commits.

::

      one login ── $SYS.REQ.SERVER.PING.JSZ ─▶ an answer of each server ─▶ findings, each a sentence

Each server reports its version, whether it has JetStream, and whether it syncs each append
(``sync_always``), which no other answer to a client contains. The request belongs to the system
account: either the login is of that account, or the brokers' account imports the request from it,
as in the files of `penstock cluster init`. `penstock doctor` and the start of a member run the
checks.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

from penstock.cluster.jetstream import tls_context
from penstock.cluster.log import LogRefused
from penstock.cluster.nats_client import LoginRefused, NatsClient, NoAnswer, NotSent
from penstock.cluster.nats_login import read_login
from penstock.cluster.nats_program import VERSION_MIN, Version, parse_version, version_text
from penstock.cluster.setup.nats_config import STATE_SUBJECT
from penstock.config.cluster import Cluster
from penstock.errors import ConfigError

SERVERS_MIN: Final = 3
CLOCK_S_MAX: Final = 1.0
"""Difference between a server's clock and this machine's, in seconds, that is reported if
exceeded."""

ASK_S_MAX: Final = 4.0
"""Default time limit to reach a server and to receive all answers, in seconds."""

_ANSWERS_S_MAX: Final = 1.0  # time limit for the answers, once a server is reached
_NO_RESPONDERS: Final = 503
_NAME: Final = "penstock doctor"

Severity = Literal["ok", "warning", "blocking"]


class ServerFinding(NamedTuple):
    """The result of one check.

    Attributes:
        subject: the checked property, in a word or two.
        severity: "blocking" if these servers may lose commits.
        detail: the result of the check as a clause.
        remedy: the change that solves the problem; empty if none is needed.
    """

    subject: str
    severity: Severity
    detail: str
    remedy: str = ""


class ServerState(NamedTuple):
    """The state of a server, as it reports it.

    Attributes:
        name: name of the server.
        version: its version; None if it reports none.
        has_jetstream: whether JetStream is enabled.
        syncs_always: whether each append is synced before it is acknowledged.
        cluster_size: number of servers with JetStream in its NATS cluster; 1 for a single server.
        ahead_s: seconds by which its clock is ahead of this machine's.
        missing: number of entries that are missing in the middle of its copy of the log.
        first: first sequence of its copy.
        last: last sequence of its copy.
        has_log: whether it has a copy.
    """

    name: str
    version: Version | None
    has_jetstream: bool
    syncs_always: bool
    cluster_size: int
    ahead_s: float
    missing: int = 0
    first: int = 0
    last: int = 0
    has_log: bool = False


def check_servers(settings: Cluster, timeout_s: float = ASK_S_MAX) -> list[ServerFinding]:
    """Ask the NATS servers of a cluster for their states; return the findings, at least one.

    For etcd servers, and without a cluster, the list is empty. The call blocks for ``timeout_s``
    seconds at most, and for one second if some servers are down.
    """
    if not settings.log or settings.log[0].startswith("http"):
        return []
    subject = "log servers"
    try:
        with contextlib.closing(states_client(settings, _NAME)) as client:
            states = ask_states(client, settings.name, time.monotonic() + timeout_s)
    except ConfigError as error:
        return [ServerFinding(subject, "blocking", str(error), "mend the file.")]
    except LoginRefused as error:
        remedy = "write USER:PASSWORD of the brokers' account into cluster.credentials_file."
        return [ServerFinding(subject, "blocking", str(error), remedy)]
    except (NotSent, NoAnswer) as error:
        remedy = "start them; without a majority of them nothing is acknowledged."
        if settings.server_config:
            remedy = "that of this machine starts with the broker: ask again when it runs."
        return [ServerFinding(subject, "warning", str(error), remedy)]
    return judge_servers(states, settings.replicas)


def refuse_unfit(findings: Sequence[ServerFinding]) -> None:
    """Raise LogRefused with the sentences of all blocking findings, if there are any."""
    sentences = [
        f"{finding.subject}: {finding.detail}; {finding.remedy}"
        for finding in findings
        if finding.severity == "blocking"
    ]
    if sentences:
        raise LogRefused("\n".join(sentences))


def judge_servers(
    states: Sequence[ServerState], servers_min: int = SERVERS_MIN
) -> list[ServerFinding]:
    """Return the findings for the states of the servers that answered, of which there must be
    ``servers_min``. Pure."""
    if not states:
        return [
            ServerFinding(
                "log servers",
                "warning",
                "they do not tell whether they sync each append, for this login may not ask",
                f"import the service {STATE_SUBJECT} of the system account into the brokers'"
                " account, as `penstock cluster init` does, or look yourself: sync_interval must"
                " be always on each (docs/cluster.md).",
            )
        ]
    return [
        _count(states, servers_min),
        _versions(states),
        _syncs(states),
        _copies(states),
        _clocks(states),
    ]


def parse_state(answer: Mapping[str, Any], now: datetime, log: str) -> ServerState:
    """Return the state in a server's answer.

    Args:
        answer: the answer to a request on ``STATE_SUBJECT``.
        now: this machine's time at which the answer was received, with a time zone.
        log: name of the stream that stores the log.
    """
    server, data = answer["server"], answer.get("data", {})
    has_jetstream = not data.get("disabled", False)
    server_time = datetime.fromisoformat(str(server["time"])[:26].rstrip("Z")).replace(tzinfo=UTC)
    copies = [
        stream.get("state", {})
        for account in data.get("account_details") or ()
        for stream in account.get("stream_detail") or ()
        if stream.get("name") == log
    ]
    return ServerState(
        str(server["name"]),
        parse_version(str(server.get("ver", ""))),
        has_jetstream,
        bool(data.get("config", {}).get("sync_always", False)),
        int(data.get("meta_cluster", {}).get("cluster_size", 1)),
        (server_time - now).total_seconds(),
        sum(int(copy.get("num_deleted") or 0) for copy in copies),
        max((int(copy.get("first_seq") or 0) for copy in copies), default=0),
        max((int(copy.get("last_seq") or 0) for copy in copies), default=0),
        bool(copies),
    )


def states_client(settings: Cluster, name: str) -> NatsClient:
    """Return a client for ``ask_states``; operators see ``name`` in its connection's name.

    Raises:
        ConfigError: a file that the settings name cannot be used.
    """
    login = read_login(settings.credentials_file)
    return NatsClient(settings.log, name, login, tls_context(settings))


def ask_states(client: NatsClient, log: str, ends_s: float) -> list[ServerState]:
    """Return the states of the servers that answer; an empty list if the login may not ask.

    Args:
        client: a client of ``states_client``.
        log: name of the stream that stores the log.
        ends_s: deadline (``time.monotonic``).

    Raises:
        LoginRefused: the login is wrong.
        NotSent, NoAnswer: no server was reached, or none answered.
    """
    client.connect(ends_s)
    ends_s = min(ends_s, time.monotonic() + _ANSWERS_S_MAX)
    reply = client.ask(STATE_SUBJECT, b'{"config":true,"streams":true}', ends_s)
    states: list[ServerState] = []
    while not states or len(states) < max(state.cluster_size for state in states):
        try:
            message = client.next_answer(reply, ends_s)
        except NoAnswer:
            if not states:
                raise
            break
        if message.status == _NO_RESPONDERS:
            break
        states.append(parse_state(json.loads(message.data), datetime.now(UTC), log))
    return states


def _count(states: Sequence[ServerState], servers_min: int) -> ServerFinding:
    subject = "log servers"
    size = max(state.cluster_size for state in states)
    names = ", ".join(sorted(state.name for state in states))
    without = [state.name for state in states if not state.has_jetstream]
    if without:
        return ServerFinding(
            subject,
            "blocking",
            f"{_are(without)} without JetStream",
            "write jetstream { store_dir: …, sync_interval: always } into their configuration.",
        )
    if size < servers_min:
        return ServerFinding(
            subject,
            "blocking",
            f"{names}: {size} keep streams, and a majority that outlives a machine needs"
            f" {servers_min}",
            f"let {servers_min} servers on as many machines be one cluster: cluster {{ name,"
            " listen, routes }.",
        )
    if len(states) < size:
        missing = f"{len(states)} of {size} answered ({names})"
        remedy = "start the others; without a majority nothing is acknowledged."
        return ServerFinding(subject, "warning", missing, remedy)
    return ServerFinding(subject, "ok", f"{size} with JetStream: {names}")


def _versions(states: Sequence[ServerState]) -> ServerFinding:
    subject = "their version"
    old = [state.name for state in states if state.version is None or state.version < VERSION_MIN]
    found = sorted({state.version for state in states if state.version is not None})
    listed = ", ".join(version_text(version) for version in found) or "unknown"
    if old:
        wanted = version_text(VERSION_MIN)
        remedy = f"install nats-server {wanted} or newer on {', '.join(sorted(old))}."
        return ServerFinding(subject, "blocking", f"{listed}; {wanted} is needed", remedy)
    return ServerFinding(subject, "ok", listed)


def _syncs(states: Sequence[ServerState]) -> ServerFinding:
    subject = "their syncs"
    lazy = [state.name for state in states if state.has_jetstream and not state.syncs_always]
    if lazy:
        return ServerFinding(
            subject,
            "blocking",
            f"{_are(lazy)} set up to acknowledge an append before it is on disk: a power cut of"
            " two machines would lose it",
            "write sync_interval: always into the block jetstream of their configuration, and"
            " start them again.",
        )
    return ServerFinding(subject, "ok", "each append is synced before it is acknowledged")


def _copies(states: Sequence[ServerState]) -> ServerFinding:
    """Return a warning that names the servers with entries missing in the middle of the log, or an
    "ok". The log is trimmed only at its front, so such a gap is damage."""
    subject = "their copies"
    damaged = [f"{state.name} {state.missing:,}" for state in states if state.missing]
    if damaged:
        remedy = (
            "a file of it is damaged: `penstock cluster status` says whether it is filled anew from"
            " the others, or what to do."
        )
        detail = f"entries are missing in the middle of the log: {', '.join(sorted(damaged))}"
        return ServerFinding(subject, "warning", detail, remedy)
    return ServerFinding(subject, "ok", "no entry is missing")


def _clocks(states: Sequence[ServerState]) -> ServerFinding:
    subject = "their clocks"
    off = [state for state in states if abs(state.ahead_s) > CLOCK_S_MAX]
    if off:
        listed = ", ".join(f"{state.name} by {state.ahead_s:+.1f} s" for state in off)
        remedy = "let NTP keep the clocks of all machines: the primary dates messages by its own."
        return ServerFinding(
            subject, "warning", f"they differ from this machine's: {listed}", remedy
        )
    worst_s = max(abs(state.ahead_s) for state in states)
    return ServerFinding(subject, "ok", f"within {max(worst_s, 0.001):.3f} s of this machine's")


def _are(names: Sequence[str]) -> str:
    return f"{', '.join(sorted(names))} {'is' if len(names) == 1 else 'are'}"
