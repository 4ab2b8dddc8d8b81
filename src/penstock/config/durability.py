"""The guarantee of an acknowledgement, and the place and retention of stored messages."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from penstock.config.group import SettingsGroup
from penstock.config.values import LocalPath, TopicFilter
from penstock.engine.values.change_effects import AT_ONCE
from penstock.engine.values.declared_limits import ProducerLimits


class Storage(SettingsGroup):
    """The place of stored messages, and how long they are kept."""

    persistence: Literal["file", "memory"] = "file"
    """"file": acknowledgements leave after the message is synced to disk. "memory": nothing is
    stored on disk, a restart forgets everything, and a message that no session needs any more is
    dropped at once, whatever the retention."""

    data_dir: LocalPath = Path("penstock-data")
    """Directory of the log and of the sessions' state; created if missing. A relative path starts
    at the broker's working directory."""

    retention_s: Annotated[int, AT_ONCE] = Field(default=86_400, ge=0, le=10**10)
    """Age in seconds above which messages leave the log; messages that a session has yet to deliver
    stay. 0 to 10000000000; 0 is no limit by age."""

    retention_bytes_max: Annotated[int, AT_ONCE] = Field(default=10 * 1024**3, ge=0, le=2**62)
    """The oldest messages leave the log while it is larger than this, in bytes.
    0 to 4611686018427387904; 0 is no limit by size."""


class Durability(ProducerLimits, Storage):
    """The guarantee of an acknowledgement, and the place and retention of stored messages."""

    acknowledge_in_memory: tuple[TopicFilter, ...] = Field(default=(), max_length=100)
    """With "file": topics whose QoS 1 messages are acknowledged as soon as they are in memory. A
    crash of the broker may lose the messages since the last commit, a few milliseconds. QoS 2
    always waits for the disk. 0 to 100 MQTT filters; CONNACK tells them to clients."""

    commit_bytes_max: int = Field(default=16 * 1024**2, ge=65_536, le=1024**3)
    """Bytes of messages waiting for one commit; above it, reading from their publishers pauses.
    65536 to 1073741824."""

    store_retry_s_max: Annotated[float, AT_ONCE] = Field(default=3600.0, ge=0, le=10**7)
    """Time in seconds that the broker keeps running without acknowledging anything while the store
    cannot write (disk full, I/O error, read-only); then it tells its clients and ends with exit
    code 1. A start waits as long for a store that cannot be opened. 0 to 10000000; 0 ends it at the
    first failure; below 30 s systemd's unit gives up after ten starts."""
