"""`penstock cluster reseed` asks one member after another for a copy, as long as it makes sense."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from penstock.cli.cluster_reseed import TRY_S_MAX, copy_from_a_peer
from penstock.cluster.beats import Beat
from penstock.errors import StoreUnavailable
from penstock.stream.seed_client import FetchedCopy

COPY = FetchedCopy(7, "epoch")


def beat(node: str, applied: int) -> Beat:
    """A standby's heartbeat; its stream service has the member's name."""
    return Beat(
        node=node, role="standby", term=1, applied=applied, synced=0, stream_address=f"{node}:8815"
    )


BEATS = {"a": beat("a", 2), "b": beat("b", 1)}


class Peers:
    """Members, some of which refuse a copy a few times."""

    def __init__(self, **refusals: int) -> None:
        self.refusals = refusals
        self.asked: list[str] = []

    def heard(self) -> Iterator[dict[str, Beat]]:
        yield {}
        yield BEATS

    def fetch(self, address: str) -> FetchedCopy:
        node = address.partition(":")[0]
        self.asked.append(node)
        if self.refusals.get(node, 0):
            self.refusals[node] -= 1
            raise StoreUnavailable("connection refused")
        return COPY


def test_a_member_whose_stream_service_does_not_listen_yet_is_passed_over(
    capsys: pytest.CaptureFixture[str],
) -> None:
    peers = Peers(a=1)
    assert copy_from_a_peer(peers.heard, peers.fetch) is COPY
    assert peers.asked == ["a", "b"]
    assert "a gave no copy: connection refused" in capsys.readouterr().err


def test_all_are_asked_again_when_each_has_refused() -> None:
    peers = Peers(a=2, b=1)
    assert copy_from_a_peer(peers.heard, peers.fetch) is COPY
    assert peers.asked == ["a", "b", "a", "b"]


def test_the_command_ends_when_no_member_gives_a_copy_in_time() -> None:
    peers = Peers(a=1000, b=1000)
    clock = count(0.0, TRY_S_MAX / 4)
    with pytest.raises(StoreUnavailable, match="connection refused"):
        copy_from_a_peer(peers.heard, peers.fetch, lambda: next(clock))
    assert peers.asked == ["a", "b", "a", "b", "a"]


def test_silence_of_all_members_ends_the_command_at_once() -> None:
    with pytest.raises(StoreUnavailable, match="no other member of the cluster sends heartbeats"):
        copy_from_a_peer(lambda: iter([{}]), Peers().fetch)
