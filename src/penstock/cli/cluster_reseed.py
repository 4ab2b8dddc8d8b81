"""`penstock cluster reseed`: replace the store of a stopped member by a copy of another member's.

A member whose store is only too far behind copies another store itself when it starts. The command
is for a store that the member refuses: a store of another history, one that is ahead of the log, or
a damaged one.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.options import ConfigFile, DataDir
from penstock.errors import ConfigError, StoreError, StoreFailed, StoreLocked

if TYPE_CHECKING:
    from penstock.config.settings import Settings

LISTEN_S_MAX: Final = 5.0
"""Longest wait for heartbeats of other members, in seconds."""

Source = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="HOST:PORT",
        help="Stream service of the member to copy from; else one that is heard.",
    ),
]


def reseed(source: Source = "", config: ConfigFile = None, data_dir: DataDir = None) -> None:
    """Replace the store of this member, which must be stopped, by a copy of another member's.

    A store of another history than the copy is kept beside it. At its next start the member follows
    the log from the copy's last entry on.
    """
    from penstock.app.seeding import own_history, seed_credentials
    from penstock.cli.store import store_progress
    from penstock.cluster.seeding import is_other_history
    from penstock.config.load import load_settings
    from penstock.store.permissions import make_private
    from penstock.store.replacing import finish_replacement, mark_copy_ready
    from penstock.stream.seed_client import fetch_copy

    settings = load_settings(config, {"durability.data_dir": data_dir})
    directory = settings.durability.data_dir
    if not settings.cluster.enabled:
        raise ConfigError("this broker is no member of a cluster: cluster.log is empty")
    directory.mkdir(parents=True, exist_ok=True)
    make_private(directory)
    _refuse_running(directory)
    finish_replacement(directory)
    address = source or _find_peer(settings)
    print(f"takes a copy of the store of the member at {address}")
    with store_progress() as report:
        copy = fetch_copy(
            address,
            seed_credentials(settings),
            directory,
            settings.cluster.node_name,
            lambda done, total: report("copying", done, total),
        )
    try:
        epoch, sequence = own_history(directory)
        keep_old_store = is_other_history(epoch, sequence, copy.epoch)
    except StoreError:  # the store is damaged, and an operator may want to examine it
        keep_old_store = True
    mark_copy_ready(directory, keep_old_store)
    old_store = finish_replacement(directory)
    print(
        f"the store in {directory} is at entry {copy.sequence:,} of the log, of epoch {copy.epoch}"
    )
    if old_store is not None:
        print(f"the old store is kept as {old_store}: remove it when nothing of it is needed")


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
    except (BrokerUnreachable, StoreFailed):
        with lock_out_brokers(data_dir):
            return
    except RequestRefused:
        pass
    raise StoreLocked(f"the broker that uses {data_dir} runs: stop it first")


def _find_peer(settings: Settings) -> str:
    """Return the address of the stream service of a member that can give a copy.

    Raises:
        StoreFailed: no other member sends a heartbeat.
    """
    from penstock.cluster.beats import Members, decode_beat
    from penstock.cluster.connecting import connector_for
    from penstock.cluster.seeding import choose_peer

    cluster = settings.cluster
    members = Members(cluster.node_name, time.monotonic())
    heartbeats = connector_for(cluster).heartbeats()
    began_s = time.monotonic()
    try:
        while time.monotonic() < began_s + LISTEN_S_MAX:
            for data in heartbeats.received(0.5):
                beat = decode_beat(data)
                if beat is not None:
                    members.record(beat, time.monotonic())
            heard = members.recent_beats(time.monotonic()).values()
            peer = choose_peer(member.beat for member in heard)
            if peer is not None and time.monotonic() > began_s + cluster.lease_s:
                return peer.stream_address
    finally:
        heartbeats.close()
    raise StoreFailed(
        "no other member of the cluster sends heartbeats: check cluster.log and its servers, or"
        " name the stream service of a member with --from"
    )
