"""One user takes what is there for all: sessions, subscriptions, QoS 2 that is never released."""

from __future__ import annotations

from typing import Final

import pytest

from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.protocol.kinds import V31
from penstock.protocol.packets import Publish, Subscribe, Subscription
from tests.attacks.attack import TIMEOUT_S, Attack, Target, check, play, send_all, swallow

SOURCE: Final = "127.0.0.2"  # the others come from 127.0.0.1
SESSIONS: Final = 200
MIB: Final = 2**20
FILTERS: Final = 100  # of one SUBSCRIBE
LEVELS: Final = 100


def sessions(target: Target) -> None:
    """Make sessions that never expire, until one is refused; then again."""
    while target.goes_on:
        number = target.did["eternal sessions"]
        made = target.log_in(f"eternal-{number}", expiry_s=NEVER_EXPIRES_S, source=SOURCE)
        target.did["eternal sessions"] += 1
        target.let_go(made)


def subscriptions(target: Target) -> None:
    """Make subscriptions with many levels, in sessions that never expire."""
    number = target.did["sessions"]
    made = target.log_in(f"deep-{number}", expiry_s=NEVER_EXPIRES_S, source=SOURCE)
    target.did["sessions"] += 1
    below = "/x" * (LEVELS - 2)
    for packet in range(1, 100):
        if not target.goes_on:
            return
        filters = [f"{number}-{packet}/{each}{below}" for each in range(FILTERS)]
        send_all(made, Subscribe(packet, [Subscription(name, 0) for name in filters]))
        swallow(made)
        target.did["filters asked for"] += FILTERS


def unreleased(target: Target) -> None:
    """Send QoS 2 messages of MQTT 3.1 that fill the log, and never PUBREL."""
    number = target.did["clients"]
    made = target.log_in(f"never-{number}", V31, clean=False, source=SOURCE)
    target.did["clients"] += 1
    made.settimeout(1)
    for packet_id in range(1, 100):
        if not target.goes_on:
            return
        send_all(made, Publish("t", bytes(MIB - 100), 2, packet_id=packet_id), version=V31)
        target.did["MiB sent"] += 1


SESSIONS_ATTACK: Final = Attack(
    "eternal sessions of one user",
    f"{SESSIONS} for all",
    sessions,
    {"limits.sessions_max": SESSIONS},
)
SUBSCRIPTIONS_ATTACK: Final = Attack(
    "deep subscriptions of one user",
    f"{LEVELS} levels each, 64 MiB for all",
    subscriptions,
    {"memory.sessions_bytes_max": 64 * MIB},
)
UNRELEASED_ATTACK: Final = Attack(
    "QoS 2 of MQTT 3.1, never released",
    "1 MiB each, 64 MiB for all",
    unreleased,
    {"memory.unreleased_bytes_max": 64 * MIB},
    mosquitto="it keeps all of it, without a bound",
)
ATTACKS: Final = [SESSIONS_ATTACK, SUBSCRIPTIONS_ATTACK, UNRELEASED_ATTACK]


@pytest.mark.timeout(TIMEOUT_S)
def test_sessions_leave_room(tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(SESSIONS_ATTACK, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert 0 < outcome.facts["eternal sessions"] <= SESSIONS // 4


@pytest.mark.timeout(TIMEOUT_S)
def test_subscriptions_leave_room(tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(SUBSCRIPTIONS_ATTACK, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.memory_mib - outcome.memory_before_mib < 64


@pytest.mark.timeout(TIMEOUT_S)
def test_messages_never_released_fill_no_disk(tmp_path_factory: pytest.TempPathFactory) -> None:
    outcome = play(UNRELEASED_ATTACK, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.disk_mib < 64
