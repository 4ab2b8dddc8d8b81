"""The configuration of the JetStream stream that stores a log: creates it for a new stream, and
finds the mistakes in that of an existing stream. Pure.

A log loses entries only at its front, when it is trimmed. So a configuration is refused if it lets
the stream remove entries by itself, lets users delete single entries, or acknowledges an entry
before a majority has it on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

HEADER_BYTES_MAX: Final = 256
"""Room for the header of an entry, which the size limits of servers and streams include."""

MESSAGE_BYTES_MAX: Final = 8 << 20
"""Size of the largest message of a new stream, unless ``max_payload`` of the servers is smaller."""


def new_stream(name: str, subject: str, replicas: int, payload_bytes_max: int) -> dict[str, Any]:
    """Return the configuration of a new stream.

    Args:
        name: name of the stream.
        subject: its only subject.
        replicas: number of replicas.
        payload_bytes_max: size of the largest message that the servers accept.
    """
    return {
        "name": name,
        "subjects": [subject],
        "num_replicas": replicas,
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_msg_size": min(MESSAGE_BYTES_MAX, payload_bytes_max),
        "allow_direct": True,
        "deny_delete": True,  # deleting a single entry would make a gap
    }


def message_bytes_max(config: Mapping[str, Any], payload_bytes_max: int) -> int:
    """Return the size of the largest message that the stream accepts, at servers that accept
    ``payload_bytes_max``."""
    limit = int(config.get("max_msg_size", -1))
    return limit if limit > 0 else payload_bytes_max


def mistakes(
    config: Mapping[str, Any], name: str, subject: str, replicas: int, payload_bytes_max: int
) -> Iterator[str]:
    """Yield a sentence for each setting that makes a stream unfit to store commits, with the
    change that solves it; a stream made with ``new_stream`` has none.

    Args:
        config: the configuration of the existing stream.
        name: name of the stream.
        subject: the subject that it must have.
        replicas: least number of replicas.
        payload_bytes_max: size of the largest message that the server accepts.
    """
    edit = f"nats stream edit {name}"
    another = "remove it, or choose another cluster.name"
    if config["num_replicas"] < replicas:
        yield (
            f"the stream {name} has {config['num_replicas']} replica(s) and needs {replicas}: a"
            " member that starts gives it more, once so many servers of NATS run"
        )
    if config["storage"] != "file":
        yield f"the stream {name} is kept in memory: {another}"
    if config.get("persist_mode", "default") not in ("", "default"):
        yield f"the stream {name} is answered before it is written (persist_mode): {another}"
    if config.get("subjects") != [subject] or config.get("sources") or config.get("mirror"):
        yield f"the stream {name} is of another program, for it has not just {subject}: {another}"
    if config.get("retention") != "limits":
        yield f"the stream {name} removes entries that were read: {another}"
    if config.get("max_age"):
        yield f"the stream {name} removes entries by their age: {edit} --max-age 0s"
    has_bound = any(int(config.get(bound, -1)) > 0 for bound in ("max_msgs", "max_bytes"))
    if has_bound and config.get("discard") != "new":
        yield f"the stream {name} removes entries when it is full: {edit} --discard new"
    if int(config.get("max_msgs_per_subject", -1)) > 0:
        yield f"the stream {name} removes entries of its subject: {edit} --max-msgs-per-subject=-1"
    if not config.get("allow_direct"):
        yield f"the stream {name} cannot be read from its replicas: {edit} --allow-direct"
    if config.get("sealed"):
        yield f"the stream {name} is sealed: {another}"
    size_bytes = message_bytes_max(config, payload_bytes_max)
    if size_bytes > payload_bytes_max:
        yield (
            f"the stream {name} takes messages of {size_bytes} bytes, and its server of"
            f" {payload_bytes_max}: set max_payload of all servers to that"
        )
    if size_bytes <= HEADER_BYTES_MAX * 2:
        yield f"the stream {name} takes messages of {size_bytes} bytes, which is too little"
