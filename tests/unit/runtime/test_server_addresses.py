"""Which address of a cluster is dialled next, and when."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.remote_url import RemoteUrl
from penstock.protocol import reasons
from penstock.runtime.server_addresses import REFERENCES_MAX, ServerAddresses
from penstock.transport.backoff import STABLE_S, Backoff

ANOTHER = reasons.USE_ANOTHER_SERVER
MOVED = reasons.SERVER_MOVED
SOON_S = 0.1
FIRST_S = 1.0
LONGEST_S = 100.0


def cluster(text: str = "mqtt://a,b,c", *, follows: bool = False) -> ServerAddresses:
    urls = RemoteUrl.parse_list(text)
    return ServerAddresses(urls, Backoff(FIRST_S, LONGEST_S, Random(1)), follows)


def dialled(addresses: ServerAddresses) -> str:
    return str(addresses.take()).removeprefix("mqtt://").removesuffix(":1883")


def connected_to(addresses: ServerAddresses, wanted: str) -> None:
    while dialled(addresses) != wanted:
        addresses.after_failure()


def test_each_is_tried_at_once_and_the_pauses_between_rounds_grow() -> None:
    addresses = cluster()
    for pause_s in (FIRST_S, 2 * FIRST_S, 4 * FIRST_S):
        for name, code in (("a", None), ("b", reasons.SERVER_UNAVAILABLE), ("c", ANOTHER)):
            assert dialled(addresses) == name
            waits_s = (
                addresses.after_failure() if code is None else addresses.after_refusal(code, "")
            )
            assert addresses.is_round_over is (name == "c")
            assert waits_s <= SOON_S or name == "c"
        assert 0.75 * pause_s <= waits_s <= 1.25 * pause_s


def test_after_a_lost_connection_the_next_is_tried_and_the_lost_one_last() -> None:
    addresses = cluster()
    connected_to(addresses, "b")
    assert addresses.after_connection(0, "", STABLE_S) <= SOON_S
    for name in ("c", "a", "b"):
        assert dialled(addresses) == name
        waits_s = addresses.after_refusal(ANOTHER, "b")  # a standby may not know that b is gone
        assert (waits_s > SOON_S) is (name == "b")


def test_the_only_address_is_dialled_again_after_a_pause() -> None:
    addresses = cluster("mqtt://a")
    for lasted_s in (0.0, STABLE_S):
        assert dialled(addresses) == "a"
        assert addresses.after_connection(0, "", lasted_s) > SOON_S


def test_short_connections_end_in_a_pause() -> None:
    addresses = cluster("mqtt://a,b")
    pauses_s = []
    for _ in range(6):
        dialled(addresses)
        pauses_s.append(addresses.after_connection(0, "", STABLE_S / 2))
    assert [pause_s > SOON_S for pause_s in pauses_s] == [False, True] * 3


@pytest.mark.parametrize("code", [reasons.SESSION_TAKEN_OVER, reasons.ADMINISTRATIVE_ACTION])
def test_a_session_that_was_ended_is_not_fought_for_at_the_next_address(code: int) -> None:
    addresses = cluster()
    connected_to(addresses, "b")
    assert addresses.after_connection(code, "", STABLE_S) > SOON_S
    assert dialled(addresses) == "b"


def test_a_refused_login_waits_the_longest_once_all_were_asked() -> None:
    addresses = cluster()
    dialled(addresses)
    assert addresses.after_refusal(reasons.NOT_AUTHORIZED, "") <= SOON_S
    dialled(addresses)
    assert addresses.after_refusal(ANOTHER, "a") <= SOON_S  # a was asked in this round
    dialled(addresses)
    assert addresses.after_failure() > LONGEST_S / 2


def test_a_login_that_one_refused_and_another_accepted_is_soon_tried_again() -> None:
    addresses = cluster("mqtt://a,b")
    dialled(addresses)
    addresses.after_refusal(reasons.NOT_AUTHORIZED, "")
    dialled(addresses)
    assert addresses.after_connection(0, "", 1.0) < 2 * FIRST_S


@pytest.mark.parametrize("code", [ANOTHER, MOVED])
@pytest.mark.parametrize(
    ("reference", "chosen"),
    [
        ("c", "c"),
        ("C:1883", "c"),
        ("elsewhere:1883 c:1 a c:1883 b", "c"),
        ("a", "b"),  # which just said so
        ("c:1884", "b"),
        ("elsewhere", "b"),
        ("mqtt://c u:p@c c/c c? [c] :", "b"),
        ("", "b"),
    ],
)
def test_a_reference_leads_only_to_the_given_addresses(
    code: int, reference: str, chosen: str
) -> None:
    addresses = cluster()
    dialled(addresses)
    assert addresses.after_refusal(code, reference) <= SOON_S
    assert dialled(addresses) == chosen
    assert [str(url) for url in addresses.urls] == [f"mqtt://{name}:1883" for name in "abc"]


def test_a_reference_of_a_primary_that_hands_over_is_followed_at_once() -> None:
    addresses = cluster()
    dialled(addresses)
    assert addresses.after_connection(ANOTHER, "c", 3 * STABLE_S) <= SOON_S
    assert dialled(addresses) == "c"


def test_other_reason_codes_refer_to_no_server() -> None:
    addresses = cluster()
    dialled(addresses)
    addresses.after_refusal(reasons.SERVER_BUSY, "c")
    assert dialled(addresses) == "b"


def test_a_reference_does_not_lead_out_of_tls() -> None:
    addresses = cluster("mqtts://a,mqtt://b:1,mqtts://b:2", follows=True)
    dialled(addresses)
    addresses.after_refusal(ANOTHER, "b:1")
    assert str(addresses.take()) == "mqtts://b:1"
    addresses.after_refusal(ANOTHER, "b")
    assert str(addresses.take()) == "mqtts://b:2"


@pytest.mark.parametrize(
    ("url", "reference", "followed"),
    [
        ("mqtt://a:9", "other", "mqtt://other:1883"),
        ("mqtts://a:9", "other", "mqtts://other:8883"),
        ("mqtt://a:9", "[::1]:7 other", "mqtt://[::1]:7"),
        ("wss://a/path", "other", "wss://other:443/path"),
        ("mqtt://a:9", "[::1] other", "mqtt://[::1]:1883"),
        ("mqtt://a:9", "other:0 a:9 ::1 more:1", "mqtt://more:1"),
        ("unix:///s", "other", "unix:///s"),
    ],
)
def test_other_servers_are_followed_by_a_client_that_may(
    url: str, reference: str, followed: str
) -> None:
    addresses = cluster(url, follows=True)
    addresses.take()
    addresses.after_refusal(ANOTHER, reference)
    assert str(addresses.take()) == followed


def test_a_server_that_moved_is_replaced_for_good() -> None:
    addresses = cluster("mqtt://a,b", follows=True)
    dialled(addresses)
    addresses.after_refusal(MOVED, "new")
    assert dialled(addresses) == "new"
    addresses.after_connection(0, "", STABLE_S)
    assert [dialled(addresses), addresses.after_refusal(ANOTHER, "") <= SOON_S] == ["b", True]
    assert dialled(addresses) == "new"


@pytest.mark.parametrize("code", [ANOTHER, MOVED])
def test_servers_that_always_name_new_ones_end_in_a_pause(code: int) -> None:
    addresses = cluster("mqtt://a", follows=True)
    for number in range(REFERENCES_MAX + 1):
        addresses.take()
        pause_s = addresses.after_refusal(code, f"other-{number}")
        assert (pause_s > SOON_S) is (number == REFERENCES_MAX)


attempts = st.one_of(
    st.just(("unreachable", 0, "", 0.0)),
    st.tuples(
        st.sampled_from(["refused", "ended"]),
        st.sampled_from([0, ANOTHER, MOVED, reasons.SERVER_BUSY, reasons.NOT_AUTHORIZED]),
        st.sampled_from(["", "a", "b c", "x", "y z a", "b:1883 x"]),
        st.sampled_from([0.0, STABLE_S]),
    ),
)


@given(st.lists(attempts, max_size=40), st.booleans())
def test_no_address_is_dialled_twice_without_a_pause_or_a_connection_that_stood(
    ends: list[tuple[str, int, str, float]], follows: bool
) -> None:
    addresses = cluster(follows=follows)
    round_of: list[str] = []
    for kind, code, reference, lasted_s in ends:
        url = dialled(addresses)
        assert url not in round_of
        round_of.append(url)
        if kind == "unreachable":
            addresses.after_failure()
        elif kind == "refused":
            addresses.after_refusal(code, reference)
        else:
            addresses.after_connection(code, reference, lasted_s)
            if lasted_s:
                round_of.clear()
        if addresses.is_round_over:
            round_of.clear()
        assert len(round_of) <= 3 + REFERENCES_MAX
