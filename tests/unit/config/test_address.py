"""HOST:PORT, as people write it."""

import pytest

from penstock.config.address import Address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:1883", "127.0.0.1", 1883),
        ("localhost:0", "localhost", 0),
        ("[::1]:1883", "::1", 1883),
        ("broker-1.plant.example:65535", "broker-1.plant.example", 65535),
        (" 127.0.0.1:1883 ", "127.0.0.1", 1883),
    ],
)
def test_an_address_is_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert Address.parse(text) == Address(host, port)
    assert str(Address.parse(text)) == text.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1883",
        ":1883",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:mqtt",
        "127.0.0.1:٣",
        "999.0.0.1:1883",
        "::1:1883",
        "[127.0.0.1]:1883",
        "[localhost]:1883",
        "host name:1883",
        "-host:1883",
    ],
)
def test_anything_else_is_refused_with_the_form_expected(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        Address.parse(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_is_what_only_this_machine_reaches(host: str) -> None:
    assert Address(host, 1).is_loopback


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "broker.example"])
def test_every_other_host_counts_as_reachable(host: str) -> None:
    assert not Address(host, 1).is_loopback
