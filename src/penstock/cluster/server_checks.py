"""Checks of a cluster's NATS servers: are they set up so that commits can be trusted to them?

::

      one login ── $SYS.REQ.SERVER.PING.JSZ ─▶ an answer of each server ─▶ findings, each a sentence

Each server answers for itself: its version, whether it has JetStream, and whether it syncs each
append (``sync_always``), which no other answer to a client has. The question belongs to the system
account: either the login is of that, or the account of the brokers imports the question from it, as
the files of `penstock cluster init` do. For `penstock doctor`, and for the start of a member.
"""

from __future__ import annotations

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
"""Difference of two machines' clocks, in seconds, from which on it is told."""

ASK_S_MAX: Final = 4.0
"""Time in seconds to reach a server and for all to answer, where a person waits for it."""

_ANSWERS_S_MAX: Final = 1.0  # of it, for servers that may be down
_NO_RESPONDERS: Final = 503
_NAME: Final = "penstock doctor"

Severity = Literal["ok", "warning", "blocking"]


class ServerFinding(NamedTuple):
    """One thing that was checked.

    Attributes:
        subject: the thing, in a word or two.
        severity: "blocking" where commits cannot be trusted to these servers.
        detail: the result of the check.
        remedy: the change that helps; empty if none is needed.
    """

    subject: str
    severity: Severity
    detail: str
    remedy: str = ""


class ServerState(NamedTuple):
    """The state of one server, by its own answer.

    Attributes:
        name: its name.
        version: its version; None where it says none.
        has_jetstream: whether JetStream is on.
        syncs_always: whether each append is synced before it is acknowledged.
        cluster_size: servers of its cluster that keep streams; 1 for a server that is alone.
        ahead_s: seconds by which its clock is ahead of this machine's.
        missing: entries that are missing in the middle of its copy of the log.
    """

    name: str
    version: Version | None
    has_jetstream: bool
    syncs_always: bool
    cluster_size: int
    ahead_s: float
    missing: int = 0


def check_servers(settings: Cluster, timeout_s: float = ASK_S_MAX) -> list[ServerFinding]:
    """Ask the NATS servers of a cluster for their states; return the findings, at least one.

    Of etcd servers, and without a cluster, it finds nothing. It blocks for ``timeout_s`` at most,
    and for a second where some servers are down.
    """
    if not settings.log or settings.log[0].startswith("http"):
        return []
    subject = "log servers"
    try:
        states = _ask(settings, time.monotonic() + timeout_s)
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
    return judge(states)


def refuse_unfit(findings: Sequence[ServerFinding]) -> None:
    """Raise LogRefused, with a sentence for each, if some findings are blocking."""
    sentences = [
        f"{finding.subject}: {finding.detail}; {finding.remedy}"
        for finding in findings
        if finding.severity == "blocking"
    ]
    if sentences:
        raise LogRefused("\n".join(sentences))


def judge(states: Sequence[ServerState]) -> list[ServerFinding]:
    """Return the findings about the servers that answered, from their states; pure."""
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
        _count(states),
        _versions(states),
        _syncs(states),
        _copies(states),
        _clocks(states),
    ]


def state_of(answer: Mapping[str, Any], now: datetime, log: str) -> ServerState:
    """Return the state in a server's answer.

    Args:
        answer: as ``STATE_SUBJECT`` is answered.
        now: this machine's time when it came, with its time zone.
        log: name of the stream that is the log.
    """
    server, data = answer["server"], answer.get("data", {})
    has_jetstream = not data.get("disabled", False)
    said = datetime.fromisoformat(str(server["time"])[:26].rstrip("Z")).replace(tzinfo=UTC)
    missing = sum(
        int(stream.get("state", {}).get("num_deleted", 0))
        for account in data.get("account_details") or ()
        for stream in account.get("stream_detail") or ()
        if stream.get("name") == log
    )
    return ServerState(
        str(server["name"]),
        parse_version(str(server.get("ver", ""))),
        has_jetstream,
        bool(data.get("config", {}).get("sync_always", False)),
        int(data.get("meta_cluster", {}).get("cluster_size", 1)),
        (said - now).total_seconds(),
        missing,
    )


def _ask(settings: Cluster, ends_s: float) -> list[ServerState]:
    """Return the states of the servers that answer; none where the login may not ask.

    Raises:
        ConfigError: a file that the settings name cannot be used.
        LoginRefused: the login is wrong.
        NotSent, NoAnswer: no server is reached.
    """
    login = read_login(settings.credentials_file)
    client = NatsClient(settings.log, _NAME, login, tls_context(settings))
    try:
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
            states.append(state_of(json.loads(message.data), datetime.now(UTC), settings.name))
        return states
    finally:
        client.close()


def _count(states: Sequence[ServerState]) -> ServerFinding:
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
    if size < SERVERS_MIN:
        return ServerFinding(
            subject,
            "blocking",
            f"{names}: {size} keep streams, and a majority that outlives a machine needs"
            f" {SERVERS_MIN}",
            "let three servers on three machines be one cluster: cluster { name, listen, routes }.",
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
    """Return a warning that names the servers with entries missing in the middle of the log, else
    ok. The log is trimmed at the front alone, so such a gap is damage."""
    subject = "their copies"
    damaged = [f"{state.name} {state.missing:,}" for state in states if state.missing]
    if damaged:
        remedy = (
            "a file of it is damaged: stop it, remove its copy of the log, and start it again; it"
            " takes the entries from the others."
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
