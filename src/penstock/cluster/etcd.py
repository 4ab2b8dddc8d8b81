"""The log of commits in etcd: one key for each entry, and two keys for the bounds.

========================= ===================================================================
key                       its value
========================= ===================================================================
``NAME/log/SEQUENCE``     an entry; the sequence has 16 hexadecimal digits, so that keys sort
``NAME/end``              the last sequence, 16 digits; 0 before the first entry
``NAME/first``            the first sequence, 16 digits; one behind the last in an empty log
``NAME/beats/MEMBER``     the last heartbeat of a member
========================= ===================================================================

================ ==============================================================================
a call           the request to etcd (https://etcd.io/docs/v3.4/learning/api/)
================ ==============================================================================
``append``       a transaction: if ``end`` has the value that the writer expects and the entry's
                 key does not exist, put both
``read``         a read-only transaction, *serializable*: answered from one server's own data
``entry_at``     a read, *linearizable*, of an entry that a majority has in its data
``bounds``       both keys in one transaction, linearizable
``trim``         transactions that move ``first`` and delete the entries before it; then the
                 history of all keys is compacted, or it would exceed the quota
``move_leader``  ``MoveLeader``, which only the leader itself accepts
================ ==============================================================================

Each etcd server syncs its log before it counts towards the majority of a write, except with
``--unsafe-no-fsync``; no server reports that option, so it cannot be verified here. The log needs
an etcd cluster of its own: compacting removes the history of other programs' keys, too.

A server answers a transaction by its own data, and these can be other than those of the majority:
where the disk of another one has lied, the entry that a crash took from the log may be applied at
one server, which then takes what the others refuse. Raft changes nothing of the kind while one term
lasts. So the first append in each term counts when a majority of the servers has the entry, and an
entry is there when a majority has it::

      first append in a term ─▶ one server took it ─▶ a majority has it in its data ─▶ appended
      entry_at ───────────────▶ one server has it ──▶   ╰ not in time: unknown; another server
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

from penstock.cluster.etcd_client import (
    Answer,
    EtcdClient,
    EtcdError,
    NoAnswer,
    NotSent,
    from_base64,
    read_login,
    to_base64,
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
    majority_answers,
)
from penstock.config.cluster import Cluster
from penstock.transport.dialling import TlsFiles

VERSION_MIN: Final = (3, 4)

ENTRY_BYTES_MAX: Final = 1 << 20
"""The largest entry. etcd refuses requests above 1.5 MiB by default (``--max-request-bytes``), and
does not report the limit."""

_READ_BYTES_AIM: Final = 4 << 20
_READ_ENTRIES_MAX: Final = 64
"""etcd limits an answer only by the number of keys; large entries may follow small ones."""

_TRIM_STEP: Final = 2_000
"""Greatest number of entries that one transaction deletes, for appends wait meanwhile."""

_PAUSE_S: Final = 0.1  # between attempts of ``open``
_STATUS_S_MAX: Final = 1.0  # time limit for the status of one server
_LAG_MAX: Final = 16  # Raft entries by which a follower may be behind and count as current
_POLL_S: Final = 0.1  # pause between reads of heartbeats
_SEND_S_MAX: Final = 0.5
_POLLED_S_MIN: Final = 0.6  # shortest time limit of a read, so that a slow server can answer

_INVALID: Final = 3  # codes of gRPC
_DENIED: Final = (7, 16)
_EXHAUSTED: Final = 8
_TOO_LATE: Final = 11
_NOT_DONE: Final = (_INVALID, *_DENIED)

_RANGE: Final = "/v3/kv/range"
_TXN: Final = "/v3/kv/txn"


def etcd_client(settings: Cluster) -> EtcdClient:
    """Return a client of the etcd servers of a cluster; it connects when it is first used.

    Raises:
        ConfigError: a file that the settings name cannot be used.
    """
    files = TlsFiles(settings.ca_file, settings.certificate, settings.key)
    return EtcdClient(settings.log, read_login(settings.credentials_file), files.context("cluster"))


@final
class EtcdLog:
    """The log of a cluster in etcd; see ``ReplicatedLog`` for the methods.

    Args:
        settings: settings of the cluster, with its servers and its name.
        creates: whether ``open`` creates the keys of a log that does not exist; else it raises
            LogMissing.

    Attributes:
        entry_bytes_max: size of the largest entry.

    Raises:
        ConfigError: a file that the settings name cannot be used.
    """

    def __init__(self, settings: Cluster, creates: bool = True) -> None:
        self.entry_bytes_max = ENTRY_BYTES_MAX
        self._creates = creates
        self._voting_min = settings.replicas
        self._etcd = etcd_client(settings)
        self._name = settings.name
        self._end = to_base64(f"{settings.name}/end".encode())
        self._first = to_base64(f"{settings.name}/first".encode())
        self._entry_bytes = ENTRY_BYTES_MAX  # size of the largest entry of the last read
        self._members: list[Answer] = []
        self._bounds = Bounds(1, 0)  # the last known bounds
        self._confirmed_term = ""  # of Raft, in which a majority has an entry of this writer

    def open(self, timeout_s: float) -> None:
        """Connect, verify the etcd cluster, and create the keys of the bounds if they do not
        exist.

        Raises:
            LogRefused: the user of the log may not use its keys.
            LogUnavailable: etcd did not answer in time.
        """
        ends_s = time.monotonic() + timeout_s
        while True:
            try:
                self._verify(ends_s)
                if self._creates:
                    self._create(ends_s)
                else:
                    self.bounds(max(_PAUSE_S, ends_s - time.monotonic()))
                return
            except (NotSent, NoAnswer, EtcdError) as error:
                if isinstance(error, EtcdError) and error.code in (_INVALID, *_DENIED):
                    raise LogRefused(
                        f"etcd: {error}: cluster.credentials_file needs a user that may read and"
                        f" write the keys {self._name}/ and read the cluster's status"
                    ) from error
                if time.monotonic() + _PAUSE_S >= ends_s:
                    raise _unavailable(error) from error
                time.sleep(_PAUSE_S)

    def append(self, data: bytes, after: int, timeout_s: float) -> None:
        """Append an entry at the sequence ``after + 1``; see ``ReplicatedLog.append``."""
        if len(data) > self.entry_bytes_max:
            raise ValueError(f"an entry of {len(data)} bytes; at most {self.entry_bytes_max}")
        key = self._key(after + 1)
        body = {
            "compare": [
                {
                    "key": self._end,
                    "target": "VALUE",
                    "result": "EQUAL",
                    "value": _sequence_value(after),
                },
                {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"},
            ],
            "success": [_put(key, to_base64(data)), _put(self._end, _sequence_value(after + 1))],
            "failure": [_get(self._end)],
        }
        ends_s = time.monotonic() + timeout_s
        try:
            answer = self._etcd.change(_TXN, body, ends_s)
        except NotSent as error:
            raise LogUnavailable(str(error)) from error
        except NoAnswer as error:
            raise AppendUnknown(str(error)) from error
        except EtcdError as error:
            if error.code in _NOT_DONE:
                raise _unavailable(error) from error
            # For an entry that exceeds the quota etcd reports no space, and may keep the entry.
            raise AppendUnknown(_sentence(error)) from error
        if not answer.get("succeeded"):
            found = _items_of(answer["responses"][0])
            last = _sequence_of(found[0]) if found else None
            if last is None or last < after:  # this server may have lost what the others have
                self.leave_server()
            raise AppendRefused(f"the log ends at {last}, not at {after}")
        term = str(answer["header"].get("raft_term"))
        if term != self._confirmed_term:
            try:
                self._confirm(after + 1, data, ends_s)
            except LogUnavailable as error:
                raise AppendUnknown(str(error)) from error
            self._confirmed_term = term
        self._bounds = Bounds(self._bounds.first, after + 1)

    def read(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return entries from ``first`` on, as one server has them.

        Raises:
            EntryMissing: the server lacks an entry in the middle: its data are damaged.
        """
        result = self.read_copy(first, count_max, timeout_s)
        for at, entry in enumerate(result):
            if entry.sequence != first + at:
                self.leave_server()
                raise EntryMissing(
                    f"etcd lacks the entry {first + at}: a server's data are damaged"
                )
        return result

    def read_copy(self, first: int, count_max: int, timeout_s: float) -> list[Entry]:
        """Return entries from ``first`` on, as one server has them; some may be missing.

        Raises:
            EntriesTrimmed: the log begins behind ``first``.
        """
        count = max(1, min(count_max, _READ_ENTRIES_MAX, _READ_BYTES_AIM // self._entry_bytes))
        entries = _get(self._key(first), self._key(first + count), count, serializable=True)
        answer = self._read(
            _TXN, {"success": [_get(self._first, serializable=True), entries]}, timeout_s
        )
        begin, found = (_items_of(response) for response in answer["responses"])
        if not begin:
            return []  # this server has no keys of the log yet
        trimmed_to = _sequence_of(begin[0])
        if first < trimmed_to:
            raise EntriesTrimmed(trimmed_to)
        digits = len(b"%016x" % 0)
        result = [
            Entry(int(from_base64(item["key"])[-digits:], 16), from_base64(item.get("value", "")))
            for item in found
        ]
        if result:
            self._entry_bytes = max(1, *(len(entry.data) for entry in result))
        return result

    def entry_at(self, sequence: int, timeout_s: float) -> Entry | None:
        """Return the entry at ``sequence``, which a majority has; None if there is none.

        Raises:
            LogUnavailable: a majority was not seen to have the entry in time.
        """
        ends_s = time.monotonic() + timeout_s
        answer = self._read(_RANGE, {"key": self._key(sequence)}, timeout_s)
        found = answer.get("kvs") or []
        if not found:
            return None
        data = from_base64(found[0].get("value", ""))
        self._confirm(sequence, data, ends_s)
        return Entry(sequence, data)

    def bounds(self, timeout_s: float) -> Bounds:
        """Return the bounds, confirmed by a majority.

        Raises:
            LogMissing: etcd has no such log.
        """
        body = {"success": [_get(self._first), _get(self._end)]}
        answer = self._read(_TXN, body, timeout_s)
        first, last = (_items_of(response) for response in answer["responses"])
        if not first or not last:
            raise LogMissing(f"etcd has no log {self._name}")
        self._bounds = Bounds(_sequence_of(first[0]), _sequence_of(last[0]))
        return self._bounds

    def copy_bounds(self, timeout_s: float) -> Bounds | None:
        """Return the bounds in the data of the server that answers; None if it has no log.

        Raises:
            LogUnavailable: no server answers.
        """
        body = {
            "success": [
                _get(self._first, serializable=True),
                _get(self._end, serializable=True),
            ]
        }
        answer = self._read(_TXN, body, timeout_s)
        first, last = (_items_of(response) for response in answer["responses"])
        if not first or not last:
            return None
        return Bounds(_sequence_of(first[0]), _sequence_of(last[0]))

    def trim(self, before: int, timeout_s: float) -> None:
        """Remove the entries before the sequence ``before``, at most ``last + 1``."""
        ends_s = time.monotonic() + timeout_s
        first, last = self.bounds(timeout_s)
        before = min(before, last + 1)
        revision = 0
        while first < before:
            step = min(before, first + _TRIM_STEP)
            body = {
                "compare": [
                    {
                        "key": self._first,
                        "target": "VALUE",
                        "result": "LESS",
                        "value": _sequence_value(step),
                    }
                ],
                "success": [
                    {
                        "request_delete_range": {
                            "key": self._key(0),
                            "range_end": self._key(step),
                        }
                    },
                    _put(self._first, _sequence_value(step)),
                ],
            }
            answer = self._change(_TXN, body, ends_s)
            revision = int(answer["header"]["revision"])
            first = step
        if revision:
            self._compact(revision, ends_s)

    def state(self, timeout_s: float) -> LogState:
        """Return the state; ``leader`` is empty if no majority of the servers answers.

        Raises:
            LogUnavailable: no server answers.
        """
        ends_s = time.monotonic() + timeout_s
        statuses = self._statuses(ends_s)
        if not statuses:
            raise LogUnavailable("no etcd server answers")
        known = list(statuses.values())
        with contextlib.suppress(NotSent, NoAnswer, EtcdError):
            self._members = self._read_members(ends_s)
        leaders = [status.get("leader", "0") for status in known]
        leader_id = max(leaders, key=leaders.count)
        led = [status for status in known if status["header"]["member_id"] == leader_id]
        index = max(int(status.get("raftIndex", 0)) for status in led or known)
        nodes = tuple(_node(member, known, leader_id, index) for member in self._members)
        names = {member["ID"]: _name_of(member) for member in self._members}
        has_quorum = leader_id != "0" and majority_answers([node.seen_s for node in nodes])
        try:
            self.bounds(max(0.001, ends_s - time.monotonic()))
        except LogMissing:
            raise
        except LogUnavailable:
            has_quorum = False
        return LogState(
            "etcd",
            str(known[0].get("version", "")),
            names.get(leader_id, "") if has_quorum else "",
            nodes,
            self._bounds,
            max(int(status.get("dbSizeInUse", 0)) for status in led or known),
            has_quorum,
        )

    def move_leader(self, preferred: Sequence[str], timeout_s: float) -> None:
        """Make the first up-to-date server of ``preferred`` the leader, unless one of them
        leads.

        Raises:
            LogUnavailable: no server leads, or the leader did not answer.
        """
        ends_s = time.monotonic() + timeout_s
        state = self.state(timeout_s)
        if not state.has_quorum:
            raise LogUnavailable("no etcd server leads")
        if state.leader in preferred:
            return
        current = {node.name for node in state.nodes if node.is_current}
        ids = {_name_of(member): member["ID"] for member in self._members}
        for url, status in self._statuses(ends_s).items():
            if status["header"]["member_id"] != status.get("leader"):
                continue  # only the leader accepts the call
            for name in preferred:
                if name in current:
                    try:
                        self._etcd.call_server(
                            url,
                            "/v3/maintenance/transfer-leadership",
                            {"targetID": ids[name]},
                            ends_s,
                        )
                    except (NotSent, NoAnswer, EtcdError) as error:
                        raise _unavailable(error) from error
                    return

    def leave_server(self) -> None:
        """Let the next call go to the next server."""
        self._etcd.move_on()

    def prefer(self, server: str) -> None:
        """Do nothing: every server of etcd takes appends, and passes them on to its leader."""

    def close(self) -> None:
        """Close the connections."""
        self._etcd.close()

    def _confirm(self, sequence: int, data: bytes, ends_s: float) -> None:
        """Wait until a majority of the servers has an entry in its own data.

        Of a cluster whose servers are not all in cluster.log, that cannot be asked for.

        Raises:
            LogUnavailable: not in time; the next call goes to another server.
        """
        voting = sum(not member.get("isLearner") for member in self._members)
        needed = voting // 2 + 1
        urls = self._etcd.urls
        body = {"key": self._key(sequence), "serializable": True}
        while len(urls) >= needed:
            having = 0
            for left, url in zip(range(len(urls), 0, -1), urls, strict=True):
                now = time.monotonic()  # a server that hangs has its share of the time, not all
                limit_s = now + min(_STATUS_S_MAX, max(0.0, ends_s - now) / left)
                with contextlib.suppress(NotSent, NoAnswer, EtcdError):
                    found = self._etcd.call_server(url, _RANGE, body, limit_s).get("kvs") or []
                    having += bool(found) and from_base64(found[0].get("value", "")) == data
                if having >= needed:
                    return
            if time.monotonic() + _PAUSE_S >= ends_s:
                self.leave_server()
                raise LogUnavailable(
                    f"{having} of {voting} etcd servers has the entry {sequence:,}: its data may be"
                    " other than those of the others"
                )
            time.sleep(_PAUSE_S)

    def _key(self, sequence: int) -> str:
        return to_base64(b"%b/log/%016x" % (self._name.encode(), sequence))

    def _verify(self, ends_s: float) -> None:
        """Raise LogRefused if the etcd cluster cannot be trusted with commits."""
        status = self._etcd.read("/v3/maintenance/status", {}, ends_s)
        version = str(status.get("version", "0"))
        if _version(version) < VERSION_MIN:
            raise LogRefused(f"etcd {version} is too old: 3.4 or newer is needed")
        self._members = self._read_members(ends_s)
        voting = sum(not member.get("isLearner") for member in self._members)
        if voting < self._voting_min:
            raise LogRefused(
                f"etcd has {voting} voting member(s) and needs {self._voting_min}: `etcdctl member"
                " add`"
            )

    def _read_members(self, ends_s: float) -> list[Answer]:
        return list(self._etcd.read("/v3/cluster/member/list", {}, ends_s).get("members") or [])

    def _create(self, ends_s: float) -> None:
        """Create the two keys of the bounds, if neither exists."""
        body = {
            "compare": [
                {"key": key, "target": "CREATE", "result": "EQUAL", "create_revision": "0"}
                for key in (self._end, self._first)
            ],
            "success": [_put(self._end, _sequence_value(0)), _put(self._first, _sequence_value(1))],
            "failure": [_get(self._end), _get(self._first)],
        }
        answer = self._etcd.change(_TXN, body, ends_s)
        if not answer.get("succeeded") and not all(map(_items_of, answer["responses"])):
            raise LogRefused(
                f"etcd has one of the keys {self._name}/end and {self._name}/first, and not the"
                " other: another program uses them; choose another cluster.name"
            )

    def _statuses(self, ends_s: float) -> dict[str, Answer]:
        """Return the status of each server that answers, by its URL."""
        found = {}
        for url in self._etcd.urls:
            limit_s = min(ends_s, time.monotonic() + _STATUS_S_MAX)
            with contextlib.suppress(NotSent, NoAnswer, EtcdError):
                found[url] = self._etcd.call_server(url, "/v3/maintenance/status", {}, limit_s)
        return found

    def _compact(self, revision: int, ends_s: float) -> None:
        try:
            self._etcd.change("/v3/kv/compaction", {"revision": str(revision)}, ends_s)
        except EtcdError as error:
            if error.code != _TOO_LATE:  # already compacted further
                raise _unavailable(error) from error
        except (NotSent, NoAnswer) as error:
            raise _unavailable(error) from error

    def _read(self, path: str, body: Mapping[str, Any], timeout_s: float) -> Answer:
        try:
            return self._etcd.read(path, body, time.monotonic() + timeout_s)
        except (NotSent, NoAnswer, EtcdError) as error:
            raise _unavailable(error) from error

    def _change(self, path: str, body: Mapping[str, Any], ends_s: float) -> Answer:
        try:
            return self._etcd.change(path, body, ends_s)
        except (NotSent, NoAnswer, EtcdError) as error:
            raise _unavailable(error) from error


@final
class EtcdHeartbeats:
    """Heartbeats of the brokers of a cluster, stored in etcd under a key of each member; see
    ``Heartbeats``.

    A heartbeat replaces the one before it. All keys are read each tenth of a second from one
    server, so of two heartbeats within that time only the second is received. Heartbeats stored
    before this object was created are not returned.

    Args:
        settings: settings of the cluster, with its servers and its name.
        member: name of this member, unique in the cluster.

    Raises:
        ConfigError: a file that the settings name cannot be used.
    """

    def __init__(self, settings: Cluster, member: str) -> None:
        self._etcd = etcd_client(settings)
        self._key = to_base64(f"{settings.name}/beats/{member}".encode())
        self._begin = to_base64(f"{settings.name}/beats/".encode())
        self._behind = to_base64(f"{settings.name}/beats0".encode())  # "0" follows "/"
        self._revision: int | None = None  # revision of the newest heartbeat received

    def send(self, beat: bytes) -> None:
        """Store a heartbeat in place of the last one."""
        ends_s = time.monotonic() + _SEND_S_MAX
        with contextlib.suppress(NotSent, NoAnswer, EtcdError):
            self._etcd.change("/v3/kv/put", {"key": self._key, "value": to_base64(beat)}, ends_s)

    def received(self, timeout_s: float) -> list[bytes]:
        """Return new heartbeats; wait up to ``timeout_s`` seconds for the first.

        While servers do not answer, the wait may take 0.6 s even if ``timeout_s`` is less.
        """
        ends_s = time.monotonic() + timeout_s
        while True:
            beats = self._new(max(_POLLED_S_MIN, timeout_s))
            left_s = ends_s - time.monotonic()
            if beats or left_s <= 0:
                return beats
            time.sleep(min(_POLL_S, left_s))

    def close(self) -> None:
        """Close the connections."""
        self._etcd.close()

    def _new(self, timeout_s: float) -> list[bytes]:
        body = {"key": self._begin, "range_end": self._behind, "serializable": True}
        try:
            answer = self._etcd.read(_RANGE, body, time.monotonic() + timeout_s)
        except (NotSent, NoAnswer, EtcdError):
            return []
        seen, kvs = self._revision, answer.get("kvs") or []
        newest = max((int(item["mod_revision"]) for item in kvs), default=0)
        self._revision = max(seen or 0, newest)
        if seen is None:
            return []
        fresh = sorted(
            (item for item in kvs if int(item["mod_revision"]) > seen),
            key=lambda item: int(item["mod_revision"]),
        )
        return [from_base64(item.get("value", "")) for item in fresh]


def _sequence_value(sequence: int) -> str:
    """Return the stored value of a sequence; these values compare like their sequences."""
    return to_base64(b"%016x" % sequence)


def _sequence_of(item: Answer) -> int:
    return int(from_base64(item["value"]), 16)


def _put(key: str, value: str) -> Answer:
    return {"request_put": {"key": key, "value": value}}


def _get(key: str, range_end: str = "", limit: int = 0, serializable: bool = False) -> Answer:
    range_request: Answer = {"key": key, "serializable": serializable}
    if range_end:
        range_request |= {"range_end": range_end, "limit": str(limit)}
    return {"request_range": range_request}


def _items_of(response: Answer) -> list[Answer]:
    """Return the keys and values in the response of a read within a transaction."""
    return list(response["response_range"].get("kvs") or [])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())


def _name_of(member: Answer) -> str:
    return str(member.get("name") or member["ID"])


def _node(member: Answer, statuses: Sequence[Answer], leader_id: str, index: int) -> LogNode:
    name = _name_of(member)
    for status in statuses:
        if status["header"]["member_id"] == member["ID"]:
            lag = max(0, index - int(status.get("raftIndex", 0)))
            is_leader = member["ID"] == leader_id
            return LogNode(name, is_leader, lag <= _LAG_MAX, lag, 0.0)
    return LogNode(name, member["ID"] == leader_id, False, 0, None)


def _unavailable(error: Exception) -> LogUnavailable:
    return LogUnavailable(_sentence(error) if isinstance(error, EtcdError) else str(error))


def _sentence(error: EtcdError) -> str:
    if error.code == _EXHAUSTED and "space" in str(error):
        return (
            f"etcd: {error}: raise --quota-backend-bytes, or `etcdctl compact` and `etcdctl"
            " defrag`; then `etcdctl alarm disarm`"
        )
    return f"etcd: {error}"
