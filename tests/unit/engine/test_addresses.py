"""Addresses of peers, in the forms they have, and what counts as one source."""

import ipaddress

import pytest

from penstock.engine.values.addresses import host_of, network_of, source_of, text_of


@pytest.mark.parametrize(
    ("peer", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:50000", "192.0.2.7"),
        ("[::ffff:192.0.2.7]:50000", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("[2001:db8::5:1]:50000", "2001:db8::/64"),
        ("[fe80::1%eth0]:50000", "fe80::/64"),
        ("10.1.2.3:1", ""),
        ("::ffff:10.1.2.3", ""),
        ("", ""),
        ("process 7 of user 0", ""),
    ],
)
def test_one_source_is_an_ipv4_address_or_a_64_of_ipv6(peer: str, source: str) -> None:
    assert source_of(peer, [ipaddress.ip_network("10.0.0.0/8")]) == source


@pytest.mark.parametrize(
    "text",
    [
        *("0.0.0.0", "255.255.255.255", "10.20.30.40", "1.2.3.4%eth0", "::1"),
        *("256.1.1.1", "01.2.3.4", "1.2.3.00", "1.2.3", "1.2.3.4.5", "1..2.3", "1.2.3.", ""),
        *(
            "+1.2.3.4",
            "1_0.2.3.4",
            " 1.2.3.4",
            "1.2.3.4 ",
            "\uff11.2.3.4",
            "1.2.3.1000",
            "1.2.3.\u00b2",
        ),
    ],
)
def test_the_short_way_to_an_ipv4_source_leads_where_the_long_one_does(text: str) -> None:
    elsewhere = [ipaddress.ip_network("2001:db8::/128")]
    assert source_of(text) == source_of(text, elsewhere)
    assert source_of(f"{text}:1883") == source_of(f"{text}:1883", elsewhere)


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("10.1.2.3/8", "10.0.0.0/8"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::1/128", "2001:db8::1/128"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
        ("::/0", "::/0"),
    ],
)
def test_a_network_has_one_text(text: str, network: str) -> None:
    assert text_of(network_of(text)) == network


@pytest.mark.parametrize("text", ["", "nowhere", "not/a/network", "10.0.0.0/33"])
def test_a_text_that_is_no_network_is_refused_with_the_reason(text: str) -> None:
    with pytest.raises(ValueError, match="neither an IP address nor a network"):
        network_of(text)


def test_the_host_of_a_peer() -> None:
    peers = ["[::1]:1", "2001:db8::1", "192.0.2.7:1883", "h:1", "process 1 of user 2"]
    hosts = ["::1", "2001:db8::1", "192.0.2.7", "h", "process 1 of user 2"]
    assert [host_of(peer) for peer in peers] == hosts
