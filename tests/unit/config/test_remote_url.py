"""URLs of servers that are dialled."""

from __future__ import annotations

import pytest

from penstock.config.address import Address, SocketFile
from penstock.config.remote_url import RemoteUrl


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("mqtt://broker.example", RemoteUrl("mqtt", Address("broker.example", 1883))),
        ("mqtts://broker.example/", RemoteUrl("mqtts", Address("broker.example", 8883))),
        ("tcp://192.0.2.7:1884", RemoteUrl("mqtt", Address("192.0.2.7", 1884))),
        ("ssl://[2001:db8::1]:99", RemoteUrl("mqtts", Address("2001:db8::1", 99))),
        ("tls://a", RemoteUrl("mqtts", Address("a", 8883))),
        ("mqtt://[::1]", RemoteUrl("mqtt", Address("::1", 1883))),
        ("ws://a", RemoteUrl("ws", Address("a", 80), "/mqtt")),
        ("ws://a:8080/", RemoteUrl("ws", Address("a", 8080), "/")),
        ("wss://a/ws?key=1", RemoteUrl("wss", Address("a", 443), "/ws?key=1")),
        ("unix:///run/mqtt", RemoteUrl("unix", SocketFile("/run/mqtt"))),
    ],
)
def test_a_url_says_where_and_how(text: str, url: RemoteUrl) -> None:
    assert RemoteUrl.parse(text) == url
    assert url.is_encrypted == (url.scheme in ("mqtts", "wss"))
    assert url.is_websocket == (url.scheme in ("ws", "wss"))
    assert RemoteUrl.parse(str(url)) == url


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("mqtt://a", ["mqtt://a:1883"]),
        ("mqtts://a,[::1]:99, b/", ["mqtts://a:8883", "mqtts://[::1]:99", "mqtts://b:8883"]),
        ("wss://a,b/ws?key=1,2", ["wss://a:443/ws?key=1,2", "wss://b:443/ws?key=1,2"]),
        ("mqtt://a, ws://b/x,unix:///s", ["mqtt://a:1883", "ws://b:80/x", "unix:///s"]),
    ],
)
def test_a_cluster_has_several(text: str, urls: list[str]) -> None:
    assert [str(url) for url in RemoteUrl.parse_list(text)] == urls


@pytest.mark.parametrize("text", ["mqtt://a,", "mqtt://,a", "mqtt://a,b/t", "mqtt://a,u:p@b"])
def test_a_mistake_in_one_of_several_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="mqtt://HOST:PORT"):
        RemoteUrl.parse_list(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "broker",
        "broker:1883",
        "http://broker",
        "mqtt://",
        "mqtt://a:b",
        "mqtt://u:p@a",
        "mqtt://a/t",
        "mqtt://a:0",
        "mqtt://[::1",
        "ws://a/b#c",
        "unix://host/path",
        "unix://",
    ],
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="mqtt://HOST:PORT"):
        RemoteUrl.parse(text)
