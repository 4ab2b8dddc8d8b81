"""The questions of a doctor to NATS servers, at their monitoring ports.

A client of JetStream is told neither whether a server syncs each append nor whether a file of it is
damaged; ``/varz`` and ``/jsz`` of each server say both
(https://docs.nats.io/running-a-nats-service/nats_admin/monitoring).
"""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from penstock.cluster.nats_client import version_numbers
from penstock.cluster.nats_program import VERSION_MIN

SERVERS_MIN: Final = 3

_ANSWER_BYTES_MAX: Final = 16 << 20
_SYNC: Final = (
    "does not sync each append, so that a power cut takes acknowledged messages: write"
    " `sync_interval: always` into `jetstream { … }` of its configuration, and restart it"
)


def examine(urls: Sequence[str], name: str, timeout_s: float) -> list[str]:
    """Return a sentence for each thing that makes servers unfit to keep the log of a cluster; none
    where all is well.

    Args:
        urls: the monitoring ports, as ``http://HOST:8222``, of all servers.
        name: name of the cluster, which is that of its stream.
        timeout_s: time for each answer.
    """
    found: list[str] = []
    names: dict[str, str] = {}
    for url in urls:
        try:
            server = _get(url, "/varz", timeout_s)
            jetstream = _get(url, "/jsz?streams=true&config=true", timeout_s)
        except (OSError, ValueError, http.client.HTTPException) as error:
            found.append(f"{url} does not answer as the monitoring port of a NATS server: {error}")
            continue
        server_name = str(server.get("server_name", url))
        if server_name in names:
            found.append(f"{url} and {names[server_name]} are the same server, {server_name}")
            continue
        names[server_name] = url
        found.extend(f"NATS server {server_name}: {text}" for text in _of(server, jetstream, name))
    if len(names) < SERVERS_MIN <= len(urls):
        found.append(f"{len(names)} NATS server(s) answered; {SERVERS_MIN} keep a log")
    return found


def _of(server: Mapping[str, Any], jetstream: Mapping[str, Any], name: str) -> Iterator[str]:
    """Yield a sentence for each fault of one server."""
    if version_numbers(str(server.get("version", ""))) < VERSION_MIN:
        wanted = ".".join(map(str, VERSION_MIN))
        yield f"it is version {server.get('version')}; it must be {wanted} or newer"
    config = jetstream.get("config") or {}
    if jetstream.get("disabled") or not config:
        yield "it runs without JetStream"
        return
    if not config.get("sync_always"):
        yield _SYNC
    size = int((jetstream.get("meta_cluster") or {}).get("cluster_size", 1))
    if size < SERVERS_MIN:
        yield f"it is one of {size} server(s) of a cluster; {SERVERS_MIN} keep a log"
    for account in jetstream.get("account_details") or ():
        for stream in account.get("stream_detail") or ():
            if stream.get("name") == name:
                yield from _of_stream(stream, int(server.get("max_payload", 0)))


def _of_stream(stream: Mapping[str, Any], payload_bytes_max: int) -> Iterator[str]:
    """Yield a sentence for each fault of one server's copy of the stream."""
    missing = int((stream.get("state") or {}).get("num_deleted", 0))
    if missing:
        yield (
            f"{missing} entries in the middle of {stream['name']} are missing, so a file of it is"
            " damaged: stop it, remove its copy of the stream, and start it again"
        )
    size_bytes = int((stream.get("config") or {}).get("max_msg_size", -1))
    if size_bytes > payload_bytes_max:
        yield (
            f"it takes messages of {payload_bytes_max} bytes, and {stream['name']} has some of"
            f" {size_bytes}: set its max_payload to that"
        )


def _get(url: str, path: str, timeout_s: float) -> dict[str, Any]:
    """Return the JSON object that a monitoring port answers.

    Raises:
        OSError, http.client.HTTPException: it does not answer.
        ValueError: it answers with something else.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("a monitoring port is http://HOST:PORT or https://HOST:PORT")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("GET", f"{quote(parts.path.rstrip('/'))}{path}")
        answer = json.loads(connection.getresponse().read(_ANSWER_BYTES_MAX))
    if not isinstance(answer, dict):
        raise ValueError("its answer is no JSON object")
    return answer
