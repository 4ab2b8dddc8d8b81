"""Two sides, a link between them that delays and cuts, and a clock that the run moves.

Every method is one event that may happen between two others in the real world, and does nothing
where it cannot happen now. ``tests/model/test_link.py`` calls them in the order of a seed, and
hypothesis in an order of its own that it can shrink.

::

      side 0 ── wire ─▶ [ on the way to 1 ] ── read ─▶ side 1
             ◀─ read ── [ on the way to 0 ] ◀─ wire ──

      cut: what is on the way ends early, each side learns of it by itself (half-open before)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

from penstock.engine.values import drop_reasons
from penstock.engine.values.clock import Now
from penstock.engine.values.limits import EngineLimits
from penstock.protocol.kinds import V5
from tests.model.endpoint import Endpoint
from tests.model.traffic import Traffic
from tests.support.waiting import check_session

START_US: Final = 1_800_000_000_000_000
TOPICS: Final = ("a", "a/b", "c")
LARGE_BYTES: Final = 200
SMALL_PACKETS_BYTES: Final = 100  # a maximum packet size that a large message exceeds
QUIET_ROUNDS_MAX: Final = 5000
TRACE_LENGTH: Final = 100

Make = Callable[[int, EngineLimits, Traffic, Traffic, int, Now], Endpoint]


@dataclass(frozen=True)
class Profile:
    """The kind of a run; the second value of each pair is of side 1.

    Args:
        version: protocol level.
        max_inflight: 0 = no limit.
        max_mqueue_len: 0 = no limit.
        store_qos0: keep QoS 0 messages while there is no connection.
        refuse_every: the application refuses each message with a multiple of this number.
        qos0: whether QoS 0 messages are published at all.
        trims: whether retention may take what a session still needs.
        expires: whether messages may expire.
        small_packets: whether a connection may have a small maximum packet size.
    """

    version: int = 5
    max_inflight: tuple[int, int] = (32, 32)
    max_mqueue_len: tuple[int, int] = (0, 0)
    store_qos0: bool = True
    refuse_every: int = 0
    qos0: bool = False
    trims: bool = False
    expires: bool = False
    small_packets: bool = False

    @property
    def gives_up(self) -> bool:
        """Return whether a message may be dropped after it was sent; then it may have arrived."""
        return self.trims or self.small_packets

    def reasons(self) -> set[int]:
        """Return the reasons to drop that a run can have."""
        possible: set[int] = set()
        if any(self.max_mqueue_len):
            possible.add(drop_reasons.QUEUE_FULL)
        if self.refuse_every and self.version == V5:
            possible.add(drop_reasons.REJECTED)
        if self.qos0:
            possible |= {drop_reasons.QOS0_OFFLINE, drop_reasons.SLOW_CONSUMER}
        if self.trims:
            possible.add(drop_reasons.RETENTION)
        if self.expires and self.version == V5:
            possible.add(drop_reasons.EXPIRED)
        if self.small_packets and self.version == V5:
            possible.add(drop_reasons.PACKET_TOO_LARGE)
        return possible


@final
class Connection:
    """One connection: the bytes on the way to each side, and the limits that each side was told."""

    def __init__(self, receive_maximum: tuple[int, int], packet_size_max: tuple[int, int]) -> None:
        self.receive_maximum = receive_maximum  # of the sender 0, of the sender 1
        self.packet_size_max = packet_size_max
        self.on_the_way = (bytearray(), bytearray())  # to side 0, to side 1
        self.cut = False


@final
class LinkWorld:
    """One run."""

    def __init__(self, profile: Profile, make: tuple[Make, Make] = (Endpoint, Endpoint)) -> None:
        self.profile = profile
        self.trace: list[str] = []
        self.connection: Connection | None = None
        self._now_s = 1000.0
        self._attached: list[Connection | None] = [None, None]
        self._crashed = False
        self.traffic = (
            Traffic("zero", profile.max_inflight[0], profile.gives_up),
            Traffic("one", profile.max_inflight[1], profile.gives_up),
        )
        refuse = profile.refuse_every if profile.version == V5 else 0
        self.sides = tuple(
            make[side](
                profile.version,
                EngineLimits(
                    max_inflight=profile.max_inflight[side],
                    max_mqueue_len=profile.max_mqueue_len[side],
                    mqueue_store_qos0=profile.store_qos0,
                ),
                self.traffic[side],
                self.traffic[1 - side],
                refuse,
                self.now,
            )
            for side in (0, 1)
        )

    @property
    def now(self) -> Now:
        """Return the time of the virtual clock."""
        return Now(self._now_s, START_US + int(self._now_s * 1_000_000))

    # -- what may happen ---------------------------------------------------------------

    def publish(self, side: int, topic: str, qos: int, large: bool, expiry_s: int) -> None:
        """Publish a message of one side's application."""
        if qos == 0 and not self.profile.qos0:
            return
        expiry_s = expiry_s if self.profile.expires else 0
        self._note(f"{side} publishes to {topic} at QoS {qos}{', large' if large else ''}")
        self.sides[side].publish(topic, qos, LARGE_BYTES if large else 0, expiry_s, self.now)
        self._collect(side)

    def open(self, receive_maximum: tuple[int, int], small: tuple[bool, bool]) -> None:
        """Open a new connection; the two sides attach to it one after the other."""
        if self.connection is not None and not self.connection.cut:
            return
        if self.profile.version != V5:
            receive_maximum = (65535, 65535)
        limited = self.profile.small_packets and self.profile.version == V5
        sizes = [SMALL_PACKETS_BYTES if limited and one else 0 for one in small]
        self._note(f"open, receive maximum {receive_maximum}, packets {sizes}")
        self.connection = Connection(receive_maximum, (sizes[0], sizes[1]))

    def attach(self, side: int) -> None:
        """Attach one side to the new connection."""
        connection = self.connection
        if connection is None or self._attached[side] is connection or connection.cut:
            return
        self._note(f"{side} attaches")
        self._attached[side] = connection
        self.sides[side].attach(
            connection.receive_maximum[side], connection.packet_size_max[side], self.now
        )
        self._collect(side)

    def read(self, side: int, size: int | None) -> bool:
        """Let at most ``size`` bytes arrive at one side; return whether there were any."""
        connection = self._attached[side]
        if connection is None:
            return False
        waiting = connection.on_the_way[side]
        data = bytes(waiting[:size])
        del waiting[: len(data)]
        if data:
            self._note(f"{side} reads {len(data)} bytes")
            self.sides[side].receive(data, self.now)
            self._collect(side)
        return bool(data)

    def cut(self, lost: tuple[int, int]) -> None:
        """Cut the link; this many of the bytes on the way to each side are lost with it."""
        connection = self.connection
        if connection is None or connection.cut:
            return
        self._note(f"cut, {lost} bytes lost")
        connection.cut = True
        for waiting, count in zip(connection.on_the_way, lost, strict=True):
            del waiting[max(0, len(waiting) - count) :]

    def notice(self, side: int) -> None:
        """Tell one side that its connection is gone."""
        connection = self._attached[side]
        if connection is not None and connection.cut:
            self._note(f"{side} notices the cut")
            self._attached[side] = None
            self.sides[side].detach(self.now)
            self._collect(side)

    def turn(self, side: int) -> None:
        """End a turn of one side's event loop."""
        self.sides[side].end_turn(self.now)
        self._collect(side)

    def write(self, side: int) -> None:
        """Write the commit of one side to its disk."""
        self.sides[side].write()

    def release(self, side: int) -> None:
        """Tell one side that its commit is on the disk."""
        self.sides[side].release(self.now)
        self._collect(side)

    def supply(self, side: int) -> None:
        """Read the bodies that one side asked for."""
        self.sides[side].supply(self.now)
        self._collect(side)

    def crash(self, side: int, reaches_disk: bool) -> None:
        """Crash one side and start it again; its commit under way may just have reached the
        disk."""
        self._note(f"{side} crashes, its commit is {'kept' if reaches_disk else 'lost'}")
        if reaches_disk:
            self.sides[side].write()
        attached = self._attached[side]
        if attached is not None and attached is self.connection:
            self.cut((0, 0))
        self._attached[side] = None
        self.sides[side].crash(self.now)
        self._crashed = True

    def congest(self, side: int, congested: bool) -> None:
        """Fill the write buffer of one side, or empty it."""
        link = self.sides[side].link
        if link is not None and link.is_congested is not congested:
            self._note(f"{side} is {'' if congested else 'not '}congested")
            link.is_congested = congested
            if not congested:
                self.sides[side].session.outbound.refill(self.now)
                self._collect(side)

    def pass_time(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now_s += seconds

    def trim(self, side: int) -> None:
        """Remove all messages from the log of one side, as retention may."""
        if self.profile.trims:
            self._note(f"the log of {side} is emptied")
            self.sides[side].trim()

    # -- the end -----------------------------------------------------------------------

    def come_to_rest(self) -> None:
        """Let everything arrive; fail if something is left to do in the end."""
        self._note("come to rest")
        for _ in range(QUIET_ROUNDS_MAX):
            if not self._one_quiet_round():
                return
        lengths = [(side.session.window_length, side.session.queue_length) for side in self.sides]
        raise AssertionError(f"it never comes to rest: windows and queues {lengths}")

    def _one_quiet_round(self) -> bool:
        busy = False
        if self.connection is None or self.connection.cut:
            for side in (0, 1):
                while self.read(side, None):
                    pass
                self.notice(side)
            self.open((20, 20), (False, False))
            busy = True
        for side in (0, 1):
            self.notice(side)
            self.attach(side)
            self.congest(side, False)
            busy = self.read(side, None) or busy
            if self.sides[side].reads:
                self.supply(side)
                busy = True
            self.turn(side)
            if self.sides[side].under_way is not None:
                self.write(side)
                self.release(side)
                busy = True
        assert self.connection is not None
        return busy or any(self.connection.on_the_way) or any(side.reads for side in self.sides)

    def judge(self) -> None:
        """Come to rest, and check that every promise was kept."""
        self.come_to_rest()
        possible = self.profile.reasons()
        exact = not (self._crashed or self.profile.qos0 or self.profile.gives_up)
        for side in self.sides:
            side.at_rest()
            side.count_drops()
        for traffic in self.traffic:
            traffic.judge(possible, exact)

    def _collect(self, side: int) -> None:
        """Put the bytes that one side wrote on their way, if there is a connection."""
        wire = self.sides[side].wire
        check_session(self.sides[side].session, self.sides[side].context)
        connection = self._attached[side]
        if connection is not None and not connection.cut:
            connection.on_the_way[1 - side].extend(wire)
        wire.clear()

    def _note(self, what: str) -> None:
        self.trace.append(f"{self._now_s:.2f} {what}")
