"""The log of commits in NATS JetStream: one stream, replicated by Raft and synced on a majority.

===================== ==================================================================
a call of the port    its request to JetStream (https://docs.nats.io/reference/reference-protocols)
===================== ==================================================================
``append``            a publish with ``Nats-Expected-Last-Sequence``; error 10071 refuses it
``read``              batched direct get, from any replica
``read_copy``         the same, until the connected server answers: see ``_own_answer``
``entry_at``          ``STREAM.MSG.GET``, from the leader
``bounds``, ``state`` ``STREAM.INFO``, from the leader
``trim``              ``STREAM.PURGE`` up to a sequence
``move_leader``       ``STREAM.LEADER.STEPDOWN`` with a preferred server
===================== ==================================================================

The stream has the name of the cluster, and one subject, ``NAME.log``. Heartbeats are plain messages
of NATS, on ``NAME.beats``.

Why the servers' settings matter: JetStream answers an append when a majority has the entry in
memory. With ``sync_interval: always`` each server has synced the entry by then; by default servers
sync every two minutes. A client cannot see that setting; servers report it through the system
account, which ``server_checks.py`` asks.
"""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, Final, NamedTuple, TypeVar, final

from penstock.cluster.jetstream_stream import (
    HEADER_BYTES_MAX,
    message_bytes_max,
    mistakes,
    new_stream,
)
from penstock.cluster.log import (
    AppendRefused,
    AppendUnknown,
    Bounds,
    EntriesTrimmed,
    Entry,
    EntryMissing,
    LogMissing,
    LogNode,
    LogRefused,
    LogState,
    LogUnavailable,
)
from penstock.cluster.nats_client import (
    LoginRefused,
    NatsClient,
    NoAnswer,
    NotSent,
    UnfitServer,
)
from penstock.cluster.nats_login import read_login
from penstock.cluster.nats_program import VERSION_MIN
from penstock.cluster.nats_protocol import Message
from penstock.config.cluster import Cluster
from penstock.errors import ConfigError
from penstock.transport.dialling import TlsFiles

Answer = TypeVar("Answer")

# Seconds after which a request is sent again: a server passes requests on to a replica or to the
# leader, for some seconds also to one that is lost.
_REPLICA_S: Final = 0.05
_LEADER_S: Final = 0.5
_APPEND_S: Final = 1.0
_READ_BYTES_MAX: Final = 4 << 20
_REPEATED_BYTES_MAX: Final = 256 << 10  # of a read that is sent again: several may be answered
_PAUSE_S: Final = 0.1  # between attempts of ``open``
_HEARD_S_MAX: Final = 3.5  # Raft sends heartbeats each second; an election takes 4 s or more
_END_VERIFIED_S: Final = 1.0
_CONNECT_AGAIN_S: Final = 0.25
_CONNECT_S_MIN: Final = 0.2
_SEND_S_MAX: Final = 0.5
_MOVE_S_MAX: Final = 0.3  # to connect to the leader, while an append waits

_WRONG_LAST_SEQUENCE: Final = (10071, 10164)
_NO_MESSAGE: Final = 10037
_NO_STREAM: Final = 10059
_NOT_CLUSTERED: Final = 10074
_NOT_ENABLED: Final = (10039, 10076)
_NO_RESPONDERS: Final = 503

_OWN_ATTEMPTS_MAX: Final = 6  # of three replicas each gives a third of the answers
_OWN_BYTES_MAX: Final = 1 << 20  # of an attempt: what other replicas answer is read in vain

_OTHER_SERVERS: Final = (1, 2, 4)
"""Kinds of connections to other servers in a report of a message's way: a route, a gateway, a leaf
node."""


def _batch_request(first: int, count_max: int, bytes_max: int) -> bytes:
    return json.dumps({"seq": first, "batch": count_max, "max_bytes": bytes_max}).encode()


def _is_added(found: list[Entry], message: Message) -> bool:
    """Add the entry in an answer to a direct get; return False at the end, or at a gap, where the
    next read starts, which examines it."""
    if message.status == _NO_RESPONDERS:
        raise LogUnavailable("no replica of the stream answers")
    number = message.header_value(b"Nats-Sequence")
    if message.status or not number.isdigit():
        return False
    if found and int(number) != found[-1].sequence + 1:
        return False
    found.append(Entry(int(number), message.data))
    return True


class _ApiError(LogUnavailable):
    """JetStream answered with an error; ``code`` is its ``err_code``."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(f"JetStream: {description}")
        self.code = code


class _NoStream(_ApiError, LogMissing):
    """JetStream answered that it has no stream of this name."""


class _Denied(LogUnavailable):
    """The server refused the login, or the login does not permit the call."""


class _Verified(NamedTuple):
    """The leader's last confirmation that no entry from a sequence on is trimmed.

    Attributes:
        first: the sequence.
        at_s: time of the confirmation, monotonic seconds.
    """

    first: int
    at_s: float


def tls_context(settings: Cluster) -> Callable[[], ssl.SSLContext]:
    """Return a function that returns the TLS context for the servers of a cluster.

    The context is created once. Loading the system's authorities takes 36 ms of processor time,
    which would delay a takeover, so they are loaded for the first connection with TLS. Files that
    the settings name are read at once.

    Raises:
        ConfigError: one of these files cannot be used.
    """
    files = TlsFiles(settings.ca_file, settings.certificate, settings.key)
    context = cache(partial(files.context, "cluster"))
    if settings.ca_file or settings.certificate:
        context()
    return context


def nats_client(
    settings: Cluster, client_name: str, subjects: Sequence[str] = (), first: int = 0
) -> NatsClient:
    """Return a client of the servers of a cluster; it connects when it is used.

    Args:
        settings: the cluster.
        client_name: the name that the servers show for the connection.
        subjects: subjects whose messages it receives.
        first: the place in ``settings.log`` of the server to which it goes first.

    Raises:
        ConfigError: a file that the settings name cannot be used.
    """
    return NatsClient(
        (*settings.log[first:], *settings.log[:first]),
        client_name,
        read_login(settings.credentials_file),
        tls_context(settings),
        VERSION_MIN,
        subjects,
    )


@final
class JetStreamLog:
    """The log of a cluster in NATS JetStream; see ``ReplicatedLog`` for the calls.

    Args:
        settings: the cluster: its servers and its name.
        client_name: the name that the servers show for the connection.
        replicas: copies of the stream; 0 for those of ``settings``.
        creates: whether ``open`` creates a stream that does not exist, and gives one that has too
            few copies more; else it raises LogMissing, or refuses it.
        check_servers: called at the end of ``open`` with the time in seconds that it may take; it
            raises LogRefused where the servers are not set up as they must be.

    Attributes:
        entry_bytes_max: the largest entry; known after ``open``.

    Raises:
        ConfigError: a file that the settings name cannot be used.
    """

    def __init__(
        self,
        settings: Cluster,
        client_name: str,
        replicas: int = 0,
        creates: bool = True,
        check_servers: Callable[[float], None] | None = None,
    ) -> None:
        self.entry_bytes_max = 0
        self._creates = creates
        self._check_servers = check_servers
        self._name = settings.name
        self._subject = f"{settings.name}.log"
        self._replicas = replicas or settings.replicas
        self._settings = settings
        self._client_name = client_name
        self._nats = nats_client(settings, client_name)
        self._nats.needs_jetstream = True  # a server whose disk was full runs without it
        self._preferred_server = ""  # the leader, until the next append has tried to reach it
        # the last leader that was not found, and the server used instead
        self._unreached = ("", "")
        self._bounds = Bounds(1, 0)  # the last known bounds
        self._verified = _Verified(0, 0.0)

    @property
    def server(self) -> str:
        """The name of the present server; of the last one if there is no connection."""
        return self._nats.server

    def open(self, timeout_s: float) -> None:
        """Connect, create the stream if it does not exist, and verify its configuration.

        Raises:
            LogRefused: the stream is another one, or the user may not use it.
            LogUnavailable: JetStream did not answer in time.
        """
        ends_s = time.monotonic() + timeout_s
        while True:
            try:
                self._verify(self._found_or_created(ends_s))
                if self._check_servers is not None:
                    self._check_servers(max(_PAUSE_S, ends_s - time.monotonic()))
                return
            except (LoginRefused, _Denied) as error:
                raise LogRefused(
                    f"{error}: cluster.credentials_file needs a user that may use JetStream and"
                    f" the subjects {self._name}.>"
                ) from error
            except UnfitServer as error:
                raise LogRefused(str(error)) from error
            except (LogUnavailable, NoAnswer, NotSent) as error:
                if time.monotonic() + _PAUSE_S >= ends_s:
                    if isinstance(error, LogMissing):
                        raise
                    raise LogUnavailable(str(error)) from error
                time.sleep(_PAUSE_S)

    def append(self, data: bytes, after: int, timeout_s: float) -> None:
        """Append an entry behind ``after``.

        Raises:
            AppendRefused: the log does not end at ``after``.
            AppendUnknown: the entry may be in the log.
            LogRefused: another program writes to the subject.
            LogUnavailable: the entry was not sent.
            ValueError: the entry is too large.
        """
        if len(data) > self.entry_bytes_max:
            raise ValueError(f"an entry of {len(data)} bytes; at most {self.entry_bytes_max}")
        if self._preferred_server:
            self._go_to_preferred()
        header = b"Nats-Expected-Last-Sequence: %d\r\n" % after
        ends_s = time.monotonic() + timeout_s
        again_s = _APPEND_S if len(data) <= _REPEATED_BYTES_MAX else timeout_s
        try:
            # It may be sent again on the same connection: the stream takes it at one place only.
            message = self._nats.first_answer(self._subject, data, data, again_s, ends_s, header)
        except NotSent as error:
            raise LogUnavailable(str(error)) from error
        except (NoAnswer, LoginRefused) as error:  # a login may expire after the append was sent
            raise AppendUnknown(str(error)) from error
        if message.status == _NO_RESPONDERS:
            raise AppendUnknown("the stream has no leader")
        answer = _json(message)
        refusal = answer.get("error")
        if refusal is not None:
            if refusal.get("err_code") in _WRONG_LAST_SEQUENCE:
                raise AppendRefused(f"the log does not end at {after}: {_said(refusal)}")
            raise AppendUnknown(f"JetStream: {_said(refusal)}")
        if answer.get("stream") != self._name or answer.get("seq") != after + 1:
            raise LogRefused(
                f"JetStream put an entry at {answer.get('stream')} {answer.get('seq')} that was for"
                f" {self._name} {after + 1}: another program uses the subject {self._subject}"
            )

    def read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return entries from ``first`` on, from any replica.

        Raises:
            EntriesTrimmed: the log begins behind ``first``.
            EntryMissing: the entry is missing at a replica and at the leader.
        """
        ends_s = time.monotonic() + timeout_s
        found = self._batch(first, count_max, ends_s)
        if found and found[0].sequence == first:
            return found
        if not found and self._is_verified(first):
            return []
        try:
            bounds = self._leaders_bounds(ends_s)
        except LogUnavailable:
            if found:
                raise
            return []  # the replica may lag; the next call asks the leader again
        if first < bounds.first:
            raise EntriesTrimmed(bounds.first)
        if not found:
            self._verified = _Verified(first, time.monotonic())
            return []
        # The replica has a gap, which only a damaged file makes; the leader may have the entry.
        entry = self.entry_at(first, max(0.001, ends_s - time.monotonic()))
        if entry is None:
            raise EntryMissing(
                f"the entry {first} is missing at a replica and at the leader, although the log"
                f" begins at {bounds.first}: files of servers are damaged"
            )
        return [entry]

    def read_copy(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return entries from ``first`` on, as the connected server's own copy has them.

        Raises:
            LogUnavailable: no server answered from its own copy.
        """
        ends_s = time.monotonic() + timeout_s
        try:
            for _ in range(_OWN_ATTEMPTS_MAX):
                entries = self._own_answer(first, count_max, ends_s)
                if entries is not None:
                    return entries
        except (NotSent, NoAnswer, LoginRefused) as error:
            raise LogUnavailable(str(error)) from error
        raise LogUnavailable(f"{self._nats.server} passed each read on: its copy may not be whole")

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        """Return the entry at ``sequence`` as the leader has it."""
        try:
            answer = self._api("STREAM.MSG.GET", {"seq": sequence}, time.monotonic() + timeout_s)
        except _ApiError as error:
            if error.code == _NO_MESSAGE:
                return None
            raise
        message = answer["message"]
        return Entry(int(message["seq"]), base64.b64decode(message.get("data", "")))

    def bounds(self, timeout_s: float) -> Bounds:
        """Return the bounds as the leader has them."""
        return self._leaders_bounds(time.monotonic() + timeout_s)

    def trim(self, before: int, timeout_s: float) -> None:
        """Remove the entries before the sequence ``before``, at most ``last + 1``."""
        ends_s = time.monotonic() + timeout_s
        last = self._leaders_bounds(ends_s).last
        # A purge beyond the end would move the end, and the log would have a gap.
        before = min(before, last + 1)
        if before > 1:
            self._api("STREAM.PURGE", {"seq": before}, ends_s)

    def state(self, timeout_s: float) -> LogState:
        """Return the state of the stream; ``leader`` is empty if no leader of it answers.

        Raises:
            LogUnavailable: no server answers.
        """
        ends_s = time.monotonic() + timeout_s
        try:
            self._nats.connect(ends_s)
        except (NotSent, NoAnswer, LoginRefused) as error:
            raise LogUnavailable(str(error)) from error
        try:
            info = self._info(ends_s)
        except LogMissing:
            raise
        except LogUnavailable:
            version = self._nats.version
            return LogState("nats", version, "", (), self._bounds, 0, has_quorum=False)
        cluster = info.get("cluster", {})
        leader = str(cluster.get("leader", ""))
        nodes = [LogNode(leader, True, True, 0, 0.0)] if leader else []
        nodes += _followers(info)
        return LogState(
            "nats",
            self._nats.version,
            leader,
            tuple(nodes),
            self._bounds,
            int(info["state"]["bytes"]),
            has_quorum=bool(leader) and _hears_majority(info),
        )

    def move_leader(self, preferred: Sequence[str], timeout_s: float) -> None:
        """Make the first up-to-date server of ``preferred`` the leader, unless one of them
        leads."""
        ends_s = time.monotonic() + timeout_s
        info = self._info(ends_s)
        if info.get("cluster", {}).get("leader") in preferred:
            return
        current = {node.name for node in _followers(info) if node.is_current}
        for name in preferred:
            if name in current:
                try:
                    self._api("STREAM.LEADER.STEPDOWN", {"placement": {"preferred": name}}, ends_s)
                except _ApiError as error:
                    if "already leader" not in str(error):  # it became the leader meanwhile
                        raise
                return

    def leave_server(self) -> None:
        """Close the connection; the next call goes to the next server, which reads its own copy."""
        self._nats.close_and_move_on("it gave a wrong entry")

    def prefer(self, server: str) -> None:
        """Let the next append go to ``server``, unless it was looked for in vain from here."""
        if self._unreached != (server, self._nats.server):
            self._preferred_server = server

    def close(self) -> None:
        """Close the connection."""
        self._nats.close()

    def _go_to_preferred(self) -> None:
        """Connect to the preferred server; if it is not found, keep the present connection."""
        name, self._preferred_server = self._preferred_server, ""
        ends_s = time.monotonic() + _MOVE_S_MAX
        for place in range(len(self._settings.log)):
            if self._nats.server == name:
                return
            with contextlib.suppress(ConfigError, NotSent, NoAnswer, LoginRefused):
                client = nats_client(self._settings, self._client_name, first=place)
                client.payload_bytes_min = self._nats.payload_bytes_min
                client.needs_jetstream = True
                client.connect(ends_s)
                if client.server == name:
                    self._nats.close()
                    self._nats = client
                else:
                    client.close()
        if self._nats.server != name:
            self._unreached = (name, self._nats.server)

    def _found_or_created(self, ends_s: float) -> dict[str, Any]:
        """Return the configuration of the stream."""
        self._nats.connect(ends_s)
        try:
            config = dict(self._info(ends_s)["config"])
            if self._creates and config["num_replicas"] < self._replicas:
                wanted = config | {"num_replicas": self._replicas}
                with contextlib.suppress(_ApiError):  # too few servers: ``_verify`` refuses it
                    config = dict(self._api("STREAM.UPDATE", wanted, ends_s)["config"])
            return config
        except _NoStream:
            if not self._creates:
                raise
        except _ApiError as error:
            if error.code in _NOT_ENABLED:
                raise LogRefused(
                    f"{error}: cluster.credentials_file needs a user of an account with JetStream"
                ) from error
            raise
        payload_bytes_max = int(self._nats.info.fields["max_payload"])
        wanted = new_stream(self._name, self._subject, self._replicas, payload_bytes_max)
        try:
            return dict(self._api("STREAM.CREATE", wanted, ends_s)["config"])
        except _ApiError as error:
            if error.code == _NOT_CLUSTERED:
                raise LogRefused(
                    f"the NATS server {self._nats.server} is alone: three servers with one"
                    " `cluster { … }` keep the log, each on a machine of its own"
                ) from error
            raise

    def _verify(self, config: Mapping[str, Any]) -> None:
        """Raise if the stream cannot be trusted with commits.

        Raises:
            LogRefused: a setting of the stream may lose commits; the message names the change.
        """
        payload_bytes_max = int(self._nats.info.fields["max_payload"])
        wrong = mistakes(config, self._name, self._subject, self._replicas, payload_bytes_max)
        for sentence in wrong:
            raise LogRefused(sentence)
        size_bytes = message_bytes_max(config, payload_bytes_max)
        self._nats.payload_bytes_min = size_bytes
        self.entry_bytes_max = size_bytes - HEADER_BYTES_MAX

    def _batch(self, first: int, count_max: int, ends_s: float) -> list[Entry]:
        """Return consecutive entries from a replica, beginning at ``first`` or behind it."""
        try:
            return _once_more(lambda: self._answered(first, count_max, ends_s), ends_s)
        except (NotSent, NoAnswer, LoginRefused) as error:
            raise LogUnavailable(str(error)) from error

    def _answered(self, first: int, count_max: int, ends_s: float) -> list[Entry]:
        """Send a batched direct get; return the entries in its answers."""
        data, repeated = (
            _batch_request(first, count_max, bytes_max)
            for bytes_max in (_READ_BYTES_MAX, _REPEATED_BYTES_MAX)
        )
        subject = f"$JS.API.DIRECT.GET.{self._name}"
        message = self._nats.first_answer(subject, data, repeated, _REPLICA_S, ends_s)
        reply = message.subject
        found: list[Entry] = []
        with contextlib.suppress(NoAnswer):
            while _is_added(found, message) and len(found) < count_max:
                message = self._nats.next_answer(reply, ends_s)
        return found

    def _own_answer(self, first: int, count_max: int, ends_s: float) -> list[Entry] | None:
        """Send a batched direct get; return the entries if the connected server answers from its
        copy, and None if it passed the request on.

        The replicas are a queue group, of which NATS draws one for each request, on any server. The
        request asks the servers on its way to report it (https://docs.nats.io, message tracing).
        """
        nats = self._nats
        nats.connect(ends_s)
        reports = nats.new_inbox()
        request = _batch_request(first, count_max, _OWN_BYTES_MAX)
        header = b"Nats-Trace-Dest: %b\r\n" % reports.encode()
        reply = nats.ask(f"$JS.API.DIRECT.GET.{self._name}", request, ends_s, header)
        found: list[Entry] = []
        is_whole, is_own = False, False
        while not (is_whole and is_own):
            message = nats.next_of((reply, reports), ends_s)
            if message.subject == reply:
                is_whole = not _is_added(found, message) or len(found) >= count_max
                continue
            report = json.loads(message.data)
            if report["server"]["name"] == nats.server:
                if any(event.get("kind") in _OTHER_SERVERS for event in report["events"]):
                    return None
                is_own = True
        return found

    def _is_verified(self, first: int) -> bool:
        """Return whether the leader has confirmed within the last second that no entry from
        ``first`` on is trimmed."""
        is_recent = time.monotonic() - self._verified.at_s < _END_VERIFIED_S
        return self._verified.first == first and is_recent

    def _leaders_bounds(self, ends_s: float) -> Bounds:
        """Return the leader's bounds, if it hears a majority; else raise LogUnavailable.

        A leader that was cut off acts as the leader for ten seconds or more, with outdated bounds;
        while a leader hears a majority, no other one is elected.
        """
        if not _hears_majority(self._info(ends_s)):
            raise LogUnavailable("the leader of the stream does not hear a majority")
        return self._bounds

    def _info(self, ends_s: float) -> dict[str, Any]:
        """Return STREAM.INFO, and remember the bounds in it."""
        info = self._api("STREAM.INFO", None, ends_s)
        state = info["state"]
        last = int(state["last_seq"])
        self._bounds = Bounds(int(state["first_seq"]) if state["messages"] else last + 1, last)
        return info

    def _api(self, call: str, body: Mapping[str, Any] | None, ends_s: float) -> dict[str, Any]:
        """Send a request to JetStream's API; return the answer of the stream's leader.

        Raises:
            _ApiError: the answer is an error.
            LogUnavailable: there was no answer.
        """
        data = b"" if body is None else json.dumps(body).encode()
        try:
            message = _once_more(lambda: self._ask_leader(call, data, ends_s), ends_s)
        except LoginRefused as error:
            raise _Denied(str(error)) from error
        except (NotSent, NoAnswer) as error:
            raise LogUnavailable(str(error)) from error
        if message.status == _NO_RESPONDERS:
            raise LogUnavailable("JetStream does not answer: it has no leader")
        answer = _json(message)
        refusal = answer.get("error")
        if refusal is not None:
            code = int(refusal.get("err_code", 0))
            raise (_NoStream if code == _NO_STREAM else _ApiError)(code, _said(refusal))
        return answer

    def _ask_leader(self, call: str, data: bytes, ends_s: float) -> Message:
        """Return the answer to a request to JetStream's API, which is sent again while there is
        none: a leader that ends before it answers takes the request with it. Each request that
        changes something leads to one state, however often it is carried out."""
        subject = f"$JS.API.{call}.{self._name}"
        return self._nats.first_answer(subject, data, data, _LEADER_S, ends_s)


@final
class NatsHeartbeats:
    """Heartbeats of the brokers of a cluster, as messages of NATS; see ``Heartbeats``.

    No method fails: without a connection heartbeats are lost, and none are received. If a server
    does not return this broker's own heartbeats, the connection is closed and another server used.

    Args:
        settings: the cluster: its servers and its name.
        client_name: the name that the servers show for the connection.

    Raises:
        ConfigError: a file that the settings name cannot be used.
    """

    def __init__(self, settings: Cluster, client_name: str) -> None:
        self._subject = f"{settings.name}.beats"
        self._nats = nats_client(settings, client_name, [self._subject])
        self._connect_at_s = 0.0
        self._unheard_s: float | None = None  # time of the first heartbeat that has not returned

    def send(self, beat: bytes) -> None:
        """Send a heartbeat to all members, this one included."""
        now = time.monotonic()
        if not self._nats.is_connected:
            if now < self._connect_at_s:
                return
            self._connect_at_s = now + _CONNECT_AGAIN_S
        with contextlib.suppress(NotSent, NoAnswer, LoginRefused):
            self._nats.publish(self._subject, beat, now + _SEND_S_MAX)
            if self._unheard_s is None:
                self._unheard_s = now

    def received(self, timeout_s: float) -> list[bytes]:
        """Return the received heartbeats; wait up to ``timeout_s`` seconds for the first.

        While there is no connection, the wait may take 0.2 s even if ``timeout_s`` is less.
        """
        is_connected = self._nats.is_connected
        ends_s = time.monotonic() + (timeout_s if is_connected else max(timeout_s, _CONNECT_S_MIN))
        while True:
            try:
                messages = self._nats.received(ends_s)
            except (NotSent, NoAnswer, LoginRefused):
                self._unheard_s = None
                messages = []
            if messages:
                self._unheard_s = None
                return [message.data for message in messages]
            now = time.monotonic()
            if self._unheard_s is not None and now - self._unheard_s > _SEND_S_MAX:
                self._unheard_s = None
                self._nats.close_and_move_on("it does not send back")
            if now >= ends_s:
                return []
            if not self._nats.is_connected:
                time.sleep(min(_PAUSE_S, ends_s - now))

    def close(self) -> None:
        """Close the connection."""
        self._nats.close()


def _once_more(ask: Callable[[], Answer], ends_s: float) -> Answer:
    """Return the result of ``ask``; if there was no answer and time is left, call it once more at
    the next server. Not for appends, whose outcome is then unknown."""
    try:
        return ask()
    except NoAnswer:
        if time.monotonic() >= ends_s:
            raise
    return ask()


def _followers(info: Mapping[str, Any]) -> list[LogNode]:
    """Return the followers in the leader's STREAM.INFO.

    ``active`` of a replica is the time in nanoseconds since the leader heard it; 0 if it never did.
    """
    cluster = info.get("cluster", {})
    leads_s = 0.0
    with contextlib.suppress(KeyError, ValueError):
        since = datetime.fromisoformat(cluster["leader_since"])
        leads_s = (datetime.fromisoformat(info["ts"]) - since).total_seconds()
    return [
        LogNode(
            str(replica.get("name", "")),
            False,
            bool(replica.get("current")),
            int(replica.get("lag", 0)),
            int(replica.get("active", 0)) / 1e9 or leads_s,
        )
        for replica in cluster.get("replicas") or ()
    ]


def _hears_majority(info: Mapping[str, Any]) -> bool:
    """Return whether the leader that sent this STREAM.INFO has lately heard a majority, itself
    included."""
    followers = _followers(info)
    heard = 1 + sum(one.seen_s is not None and one.seen_s < _HEARD_S_MAX for one in followers)
    return heard * 2 > 1 + len(followers)


def _json(message: Message) -> dict[str, Any]:
    """Return the JSON object of an answer; an object with an error if it is no JSON object."""
    with contextlib.suppress(ValueError):
        answer = json.loads(message.data)
        if isinstance(answer, dict):
            return answer
    return {"error": {"err_code": 0, "description": "an answer that is no JSON"}}


def _said(error: Mapping[str, Any]) -> str:
    return f"{error.get('description', 'error')} ({error.get('err_code', 0)})"
