"""A member of a cluster that does not run, for the commands that change its store."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.errors import ConfigError, StoreLocked, StoreUnavailable

if TYPE_CHECKING:
    from penstock.cluster.beats import Beat
    from penstock.config.cluster import Cluster
    from penstock.config.settings import Settings

LISTEN_S_MAX: Final = 5.0
"""Longest wait for heartbeats of other members, in seconds."""


def open_stopped_member(config: Path | None, data_dir: Path | None) -> Settings:
    """Return the settings of a member that does not run; finish a replacement of its store.

    Raises:
        ConfigError: the settings have a mistake, or name no cluster.
        StoreLocked: the member runs.
    """
    from penstock.config.load import load_settings
    from penstock.store.permissions import make_private
    from penstock.store.replacing import finish_replacement

    settings = load_settings(config, {"durability.data_dir": data_dir})
    directory = settings.durability.data_dir
    if not settings.cluster.enabled:
        raise ConfigError("this broker is no member of a cluster: cluster.log is empty")
    directory.mkdir(parents=True, exist_ok=True)
    make_private(directory)
    _refuse_running(directory)
    finish_replacement(directory)
    return settings


def _refuse_running(data_dir: Path) -> None:
    """Refuse if a broker uses the store.

    Raises:
        StoreLocked: a broker uses it.
    """
    from penstock.control.client import BrokerUnreachable, RequestRefused, ask
    from penstock.control.role_requests import ReadRole, Role
    from penstock.store.database import lock_out_brokers

    try:
        ask(data_dir, ReadRole(), Role, 5.0)
    except (BrokerUnreachable, StoreUnavailable):
        with lock_out_brokers(data_dir):
            return
    except RequestRefused:
        pass
    raise StoreLocked(f"the broker that uses {data_dir} runs: stop it first")


def heard_beats(cluster: Cluster) -> Iterator[dict[str, Beat]]:
    """Yield the last heartbeats of the other members, by name, several times: first when each could
    be heard, last after ``LISTEN_S_MAX``."""
    from penstock.cluster.beats import Members, decode_beat
    from penstock.cluster.connecting import connector_for

    members = Members(cluster.node_name, time.monotonic())
    heartbeats = connector_for(cluster).heartbeats()
    began_s = time.monotonic()
    try:
        while time.monotonic() < began_s + LISTEN_S_MAX:
            for data in heartbeats.received(0.5):
                beat = decode_beat(data)
                if beat is not None:
                    members.record(beat, time.monotonic())
            if time.monotonic() > began_s + cluster.lease_s:
                heard = members.recent_beats(time.monotonic())
                yield {node: one.beat for node, one in heard.items()}
    finally:
        heartbeats.close()
