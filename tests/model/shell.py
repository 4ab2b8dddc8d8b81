"""The broker's shell in slow motion: ``runtime.driver`` with every wait made visible.

::

      end_turn ─▶ seal ─▶ (written?) write ─▶ (released?) release ─▶ end_turn …
                                                    ╰─▶ reads ─▶ read ─▶ supply

A commit can be sealed and not written, or written and not released, for as long as the
simulation likes; so can a read of bodies from the log. ``crash`` forgets everything but
what the store holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from penstock.engine.batch.commit import BodyRequester, Commit
from penstock.engine.server.server import Server
from penstock.engine.server.server_connection import ServerConnection
from penstock.engine.values.clock import Now
from penstock.engine.values.message import Message
from penstock.engine.wire.link import Link
from penstock.store.port import Store

PUBACK: Final = 4
PUBREC: Final = 5


@final
class Pipe:
    """One socket with what is in flight on it; ends like TCP: after the bytes before it."""

    def __init__(self, connection: ServerConnection, shell: Shell) -> None:
        self.connection = connection
        self.shell = shell
        self.to_broker = bytearray()
        self.to_device = bytearray()
        self.closed_by_broker = False
        self.closed_by_device = False
        self.deaf = False  # the device is gone: nothing more arrives there


@final
class Read:
    """Bodies asked from the log; ``bodies`` is set when they were read."""

    def __init__(self, session: BodyRequester, offsets: list[int]) -> None:
        self.session = session
        self.offsets = offsets
        self.bodies: dict[int, Message] | None = None


class Shell:
    """One start of the broker.

    Attributes:
        plans: of retention: the commit that it waits for, and the offset to keep from.
    """

    def __init__(self, server: Server, store: Store) -> None:
        self.server = server
        self.store = store
        self.pipes: dict[Link, Pipe] = {}
        self.under_way: Commit | None = None
        self.written = False
        self.reads: list[Read] = []
        self.sealed = 0  # commits sealed so far
        self.durable = 0  # number of the last commit that was written
        self.plans: list[tuple[int, int]] = []
        self.refused: list[tuple[Link, int]] = []  # links, packet identifiers: codes from 0x80 on
        server.context.store_health.waits_for_disk = True

    def accept(self, now: Now) -> Pipe:
        """A new socket."""
        pipe = Pipe(ServerConnection(self.server, self.server.limits, now), self)
        self.pipes[pipe.connection.link] = pipe
        return pipe

    def lost(self, pipe: Pipe, now: Now) -> None:
        """The broker notices that a socket is gone."""
        pipe.connection.link.report_socket_buffer(0)
        pipe.connection.lost("cut", now)
        self.pipes.pop(pipe.connection.link, None)

    def end_turn(self) -> None:
        """What the driver does at the end of a turn."""
        self._write_ready()
        if self.under_way is None:
            commit = self.server.context.seal()
            self.sealed += 1
            for release in commit.deferred_packets:
                data = b"".join(release.pieces)
                self.refused += [(release.link, packet_id) for packet_id in refusals(data)]
            if commit.has_writes:
                self.under_way = commit
                self.written = False
            else:
                self.durable = self.sealed
                self._release(commit)

    def write(self) -> Commit | None:
        """The committer's thread: make the commit under way durable."""
        commit = self.under_way
        if commit is None or self.written:
            return None
        self.store.commit(commit)
        self.written = True
        self.durable = self.sealed
        return commit

    def release(self) -> None:
        """The committer calls back."""
        commit = self.under_way
        if commit is None or not self.written:
            return
        self.under_way = None
        self._release(commit)
        self.end_turn()

    def _write_ready(self) -> None:
        context = self.server.context
        ready = context.turn.ready
        context.turn.ready = []
        for link in ready:
            data = b"".join(link.take_ready())
            self.refused += [(link, packet_id) for packet_id in refusals(data)]
            pipe = self.pipes.get(link)
            if pipe is not None and not pipe.closed_by_broker:
                pipe.to_device += data
        closing = context.turn.closing
        context.turn.closing = []
        for link in closing:
            pipe = self.pipes.get(link)
            if pipe is not None and link.is_drained:
                pipe.closed_by_broker = True

    def _release(self, commit: Commit) -> None:
        self.server.context.store_health.mark_committed(commit)
        for release in commit.deferred_packets:
            pipe = self.pipes.get(release.link)
            if pipe is not None and release.link.sends_deferred:
                pipe.to_device += b"".join(release.pieces)
            release.mark_sent()
            if pipe is not None and release.link.is_draining and release.link.is_drained:
                pipe.closed_by_broker = True
        for requester, offsets in commit.body_requests:
            if requester.needs_bodies(offsets):
                self.reads.append(Read(requester, offsets))


def refusals(data: bytes) -> Iterator[int]:
    """Yield the packet identifiers of messages that are refused by a PUBACK or PUBREC in ``data``,
    which has whole packets of any version."""
    at = 0
    while at < len(data):
        kind, length, shift = data[at] >> 4, 0, 0
        at += 1
        while True:
            length |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
            if data[at - 1] < 0x80:
                break
        if kind in (PUBACK, PUBREC) and length > 2 and data[at + 2] >= 0x80:
            yield int.from_bytes(data[at : at + 2])
        at += length
