"""The judges of the link can fail: each side with one fault must be found out.

Each fault changes one method of ``Endpoint``, around a correct session. A fault that no seed finds
would mean that its judge proves nothing.
"""

from __future__ import annotations

import re
from typing import Final

import pytest

from penstock.engine.batch.commit import Commit
from penstock.engine.values.clock import Now
from penstock.engine.values.drop_reasons import SESSION_ENDED
from penstock.engine.values.records import RecoveredState
from penstock.engine.wire.link import Link
from penstock.protocol.decode import Decoder
from penstock.protocol.encode import encode
from penstock.protocol.packets import Packet, Puback, Publish
from tests.model.endpoint import PACKET_SIZE_BYTES_MAX, Endpoint
from tests.model.link import Make
from tests.model.test_link import play

SEEDS: Final = 400


def packets_of(data: bytes, version: int) -> list[Packet]:
    """Return the packets in ``data``, which ends with a whole packet."""
    decoder = Decoder(PACKET_SIZE_BYTES_MAX, version)
    decoder.feed(data)
    packets: list[Packet] = []
    while (packet := decoder.next_packet()) is not None:
        packets.append(packet)
    return packets


class TakesEverythingForNew(Endpoint):
    """Forgets the packet identifiers of QoS 2."""

    def is_new(self, packet: Publish, now: Now) -> bool:
        self.session.receive(packet, now)
        return True


class TakesDuplicatesForKnown(Endpoint):
    """Believes the DUP flag instead of the packet identifier."""

    def is_new(self, packet: Publish, now: Now) -> bool:
        return self.session.receive(packet, now) and not packet.dup


class AnswersBeforeTheDisk(Endpoint):
    """Lets everything leave before its commit is written."""

    def end_turn(self, now: Now) -> None:
        for link in self.context.turn.deferring:
            self.leave(link, b"".join(link.deferred_buffer.take_pieces()), now)
        self.context.turn.deferring = []
        super().end_turn(now)


class LosesCommits(Endpoint):
    """Reports every third commit as on the disk, where it is not."""

    commits = 0

    def keep(self, commit: Commit) -> None:
        self.commits += 1
        if self.commits % 3 != 0:
            super().keep(commit)


class ForgetsWhatItReceived(Endpoint):
    """Restores the window and the queue, and no inbound packet identifiers."""

    def recovered(self) -> RecoveredState:
        recovered = super().recovered()
        for progress in recovered.progress.values():
            progress.inbound.clear()
        return recovered


class IgnoresReceiveMaximum(Endpoint):
    """Sends as much as it likes."""

    def attach(self, receive_maximum: int, packet_size_max: int, now: Now) -> None:
        super().attach(receive_maximum, packet_size_max, now)
        link = self.link
        assert link is not None
        self.session.attach(link, self.limits, 65535, now)


class GivesOneIdentifierToAll(Endpoint):
    """Numbers all its messages 7."""

    def leave(self, link: Link, data: bytes, now: Now) -> None:
        frames: list[bytes] = []
        for packet in packets_of(data, self.version):
            if isinstance(packet, Publish) and packet.qos > 0:
                packet.packet_id = 7
            frames.append(encode(packet, self.version))
        super().leave(link, b"".join(frames), now)


class SendsAgainWithoutDup(Endpoint):
    """Hides that it sends again."""

    def leave(self, link: Link, data: bytes, now: Now) -> None:
        frames: list[bytes] = []
        for packet in packets_of(data, self.version):
            if isinstance(packet, Publish):
                packet.dup = False
            frames.append(encode(packet, self.version))
        super().leave(link, b"".join(frames), now)


class SendsTheLastFirst(Endpoint):
    """Reverses the order of packets that leave together."""

    def leave(self, link: Link, data: bytes, now: Now) -> None:
        packets = packets_of(data, self.version)
        packets.reverse()
        super().leave(link, b"".join(encode(packet, self.version) for packet in packets), now)


class LosesMessages(Endpoint):
    """Takes some messages for acknowledged before they are sent."""

    def leave(self, link: Link, data: bytes, now: Now) -> None:
        frames: list[bytes] = []
        for packet in packets_of(data, self.version):
            if isinstance(packet, Publish) and packet.qos == 1 and packet.packet_id % 5 == 0:
                self.handle(Puback(packet.packet_id), now)
            else:
                frames.append(encode(packet, self.version))
        super().leave(link, b"".join(frames), now)


class DropsInSilence(Endpoint):
    """Counts no drops."""

    def count_drops(self) -> None:
        for reason in range(len(self.drops.counts)):
            self.drops.counts[reason] = 0
        super().count_drops()


class CountsForTheWrongReason(Endpoint):
    """Counts each drop under the reason of an ended session."""

    def count_drops(self) -> None:
        self.drops.counts[SESSION_ENDED] = sum(self.drops.counts)
        super().count_drops()


class TakesTooMuchOffTheExpiry(Endpoint):
    """Sends messages on as if they had waited an hour."""

    def leave(self, link: Link, data: bytes, now: Now) -> None:
        frames: list[bytes] = []
        for packet in packets_of(data, self.version):
            if isinstance(packet, Publish) and packet.properties is not None:
                packet.properties.message_expiry_interval = 0
            frames.append(encode(packet, self.version))
        super().leave(link, b"".join(frames), now)


class KeepsAPlaceForever(Endpoint):
    """Ignores some acknowledgements."""

    def handle(self, packet: Packet, now: Now) -> None:
        if not (isinstance(packet, Puback) and packet.packet_id % 5 == 0):
            super().handle(packet, now)


FAULTS: Final[list[tuple[type[Endpoint], str]]] = [
    (TakesEverythingForNew, "arrived 2 times at QoS 2"),
    (TakesDuplicatesForKnown, "never arrived|tells that .* arrived, and it is on no disk"),
    (AnswersBeforeTheDisk, "it is on no disk|before the sender's disk had it"),
    (LosesCommits, "never arrived|arrived 2 times at QoS 2|was given to"),
    (ForgetsWhatItReceived, "arrived 2 times at QoS 2"),
    (IgnoresReceiveMaximum, "in flight, .* allowed"),
    (GivesOneIdentifierToAll, "7 is .* in flight, and was given to"),
    (SendsAgainWithoutDup, "is sent again without DUP"),
    (SendsTheLastFirst, "arrived after"),
    (LosesMessages, "never arrived"),
    (DropsInSilence, "never arrived, and counted is"),
    (CountsForTheWrongReason, "dropped: session ended"),
    (TakesTooMuchOffTheExpiry, "0 s left"),
    (KeepsAPlaceForever, "the window is stuck"),
]


@pytest.mark.parametrize(("fault", "found"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
@pytest.mark.parametrize("side", [0, 1])
def test_a_broken_side_is_found_out(fault: type[Endpoint], found: str, side: int) -> None:
    make: tuple[Make, Make] = (fault, Endpoint) if side == 0 else (Endpoint, fault)
    others: list[str] = []
    for seed in range(SEEDS):
        try:
            play(seed, make)
        except AssertionError as failure:
            verdict = str(failure).splitlines()[-1]
            if re.search(found, verdict):
                return
            others.append(verdict)
    raise AssertionError(f"no seed below {SEEDS} finds {fault.__name__}; found were {others[:5]}")
