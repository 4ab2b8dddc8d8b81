"""The addresses that a member tells the others."""

from __future__ import annotations

import pytest

from penstock.config.cluster_addresses import address_problems
from penstock.config.settings import Settings

FAR = ("nats://10.0.0.1:4222",)
NEAR = ("nats://127.0.0.1:4222", "nats://localhost:4223")


def member(cluster: dict[str, object], bind: str, stream: str = "10.0.0.1:8815") -> Settings:
    return Settings.model_validate(
        {
            "cluster": {"node": "a", **cluster},
            "listener": {"bind": bind, "allow_anonymous": True},
            "stream": {"bind": stream, "allow_anonymous": True},
        }
    )


@pytest.mark.parametrize(
    "settings",
    [
        member({"log": FAR}, "10.0.0.1:1883"),
        member({"log": FAR, "advertise": "mqtt.example.org:1883"}, "0.0.0.0:1883"),
        member({"log": NEAR}, "127.0.0.1:1883", "127.0.0.1:8815"),
    ],
)
def test_addresses_that_others_reach_are_no_problem(settings: Settings) -> None:
    assert list(address_problems(settings)) == []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            member({"log": FAR}, "0.0.0.0:1883"),
            "cluster.advertise is empty, and listener.bind is 0.0.0.0:1883, which stands for all",
        ),
        (member({"log": NEAR}, "[::]:1883"), "which stands for all addresses"),
        (member({"log": FAR}, "127.0.0.1:1883"), "which only this machine reaches: clients"),
        (
            member({"log": FAR, "advertise": "0.0.0.0:1883"}, "10.0.0.1:1883"),
            "cluster.advertise is 0.0.0.0:1883, which stands for all addresses",
        ),
        (
            member({"log": FAR}, "10.0.0.1:1883", "127.0.0.1:8815"),
            "and stream.bind is 127.0.0.1:8815, which only this machine reaches: no other machine",
        ),
    ],
)
def test_an_address_that_others_cannot_use_is_one_sentence(
    settings: Settings, sentence: str
) -> None:
    (found,) = address_problems(settings)
    assert sentence in found
    assert "; set cluster." in found
