"""What a Penstock before format 3 wrote of its sessions, frozen: no code of Penstock is in here.

``write_sessions`` puts sessions into a store that has messages and nothing else, byte by byte as
those versions did, and makes it one of format 1, or of format 2 where it has a large value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Final

import msgspec
from rocksdict import Options, Rdict

FAMILIES: Final = (
    "meta",
    "log",
    "sessions",
    "subscriptions",
    "queue",
    "progress",
    "retained",
    "wills",
    "archive",
)
PARTS: Final = "parts"

_encode = msgspec.msgpack.Encoder().encode


@dataclass
class FormerSession:
    """A session, and what it has to deliver.

    Attributes:
        window: packet identifier, state, sequence, log offset, QoS, RETAIN, and subscription
            identifiers of what is in flight, oldest first.
        sizes: bytes of the messages in flight; empty as in the oldest stores.
        shared: sequence, filter, QoS and RETAIN of those that came through shared subscriptions.
        inbound: packet identifiers that wait for PUBREL.
        waiting: log offsets of QoS 1 messages in the queue, with sequences from ``head`` on.
    """

    client_id: str
    number: int
    head: int
    following: int
    window: list[tuple[int, int, int, int, int, bool, tuple[int, ...]]]
    sizes: list[int] = field(default_factory=list)
    shared: list[tuple[int, str, int, bool]] = field(default_factory=list)
    inbound: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    lanes: list[tuple[int, int, int]] = field(default_factory=list)
    held: list[tuple[int, int, int]] = field(default_factory=list)
    sent_below: int = 0


def write_sessions(data_dir: Path, sessions: list[FormerSession]) -> None:
    """Put ``sessions`` into the store below ``data_dir``, which nobody has open."""
    path = str(data_dir / "store")
    has_parts = PARTS in Rdict.list_cf(path)
    names = (*FAMILIES, PARTS) if has_parts else FAMILIES
    database = Rdict(
        path,
        Options(raw_mode=True),
        column_families={name: Options(raw_mode=True) for name in names},
    )
    families = {name: database.get_column_family(name) for name in names}
    for one in sessions:
        key = pack(">Q", one.number)
        families["sessions"][one.client_id.encode()] = _encode(
            (1, one.number, 0xFFFFFFFF, 77, "main", None, True, "")
        )
        families["subscriptions"][key + b"t"] = _encode((1, 2, False, False, 0, 0))
        families["progress"][key] = _encode(_progress(one))
        if one.waiting:
            count = len(one.waiting)
            segment = (
                2,
                one.head,
                pack(f"<{count}q", *one.waiting),
                pack(f"<{count}I", *[100] * count),
                bytes(count),
                [(1, False, (), None)],
            )
            families["queue"][key + pack(">Q", one.head)] = _encode(segment)
    families["meta"][b"format"] = b"2" if has_parts else b"1"
    families["meta"].delete(b"parts")
    for family in families.values():
        family.close()
    database.close()


def _progress(one: FormerSession) -> tuple[object, ...]:
    return (
        1,
        one.head,
        one.following,
        one.window,
        one.inbound,
        one.shared,
        one.lanes,
        one.held,
        one.sizes,
        one.sent_below,
    )
