"""What a client leaves behind with the broker: retained messages, wills, aliases, shared queues."""

from __future__ import annotations

from typing import Final

import pytest

from penstock.engine.values.limits import NEVER_EXPIRES_S
from penstock.protocol.encode import encode
from penstock.protocol.kinds import V5
from penstock.protocol.packets import Connect, Publish, Subscribe, Subscription, Will
from penstock.protocol.properties import Properties
from tests.attacks.attack import TIMEOUT_S, Attack, Target, check, one_of, play, send_all, swallow

SOURCE: Final = "127.0.0.2"  # the others come from 127.0.0.1
MIB: Final = 2**20
TOPIC: Final = "t" * 1000


def retained(target: Target) -> None:
    """Retain a message for each of ever new topics."""
    made = target.log_in("retains", source=SOURCE)
    while target.goes_on:
        number = target.did["retained messages"]
        topics = (f"r/{each}/{TOPIC}" for each in range(number, number + 100))
        send_all(made, *(Publish(topic, bytes(1000), 0, True) for topic in topics))
        swallow(made, 0.001)
        target.did["retained messages"] += 100


def wills(target: Target) -> None:
    """Leave sessions with large wills that are due in a year."""
    while target.goes_on:
        number = target.did["wills"]
        made = target.dial(source=SOURCE)
        delayed = Properties(will_delay_interval=31_536_000)
        kept = Properties(session_expiry_interval=NEVER_EXPIRES_S)
        will = Will(f"w/{number}/{TOPIC}", bytes(50_000), 1, True, delayed)
        made.sendall(encode(Connect(f"will-{number}", V5, True, 0, will, properties=kept), V5))
        swallow(made, 0.01)
        target.let_go(made)
        target.did["wills"] += 1


def aliases(target: Target) -> None:
    """Set all topic aliases anew with each packet, to topics that nobody saw before."""
    made = target.log_in("aliases", source=SOURCE)
    number = 0
    while target.goes_on:
        packets: list[Publish] = []
        for alias in range(1, 11):
            number += 1
            properties = Properties(topic_alias=alias)
            packets.append(Publish(f"a/{number}/{TOPIC}", b"", 0, properties=properties))
            again = Properties(topic_alias=alias)
            packets.append(Publish("", b"", 0, properties=again))
        send_all(made, *packets)
        swallow(made, 0.0001)
        target.did["aliases set"] += 10


def group_queue(target: Target) -> None:
    """Fill the queue of a shared group whose only member is away, and let others join and leave."""
    member = target.log_in("member", expiry_s=NEVER_EXPIRES_S, clean=False, source=SOURCE)
    send_all(member, Subscribe(1, [Subscription("$share/g/q/#", 1)]))
    swallow(member, 0.05)
    target.let_go(member)
    made = target.log_in("fills", source=SOURCE)
    while target.goes_on:
        send_all(made, *(Publish("q/1", bytes(1000), 1, packet_id=1 + each) for each in range(10)))
        swallow(made, 0.001)
        target.did["QoS 1 messages"] += 10
        if target.did["QoS 1 messages"] % 1000 == 0:
            guest = target.log_in("guest", source=SOURCE)
            send_all(guest, Subscribe(1, [Subscription("$share/g/q/#", 0)]))
            swallow(guest)
            target.let_go(guest)
            target.did["members that came and went"] += 1


ATTACKS: Final = [
    Attack(
        "retained messages for ever new topics",
        "2 KB each, 16 MiB for all",
        retained,
        {"memory.retained_bytes_max": 16 * MIB},
        mosquitto="it keeps all of it, without a bound",
    ),
    Attack(
        "wills that are due in a year",
        "50 KB each, 16 MiB for all",
        wills,
        {"memory.sessions_bytes_max": 16 * MIB},
        mosquitto="it keeps all of it, without a bound",
    ),
    Attack("topic aliases that are set anew", "ten of 1 KB each", aliases),
    Attack(
        "the queue of a shared group",
        "1 KB each, one member that is away",
        group_queue,
        {"limits.max_mqueue_len": 10_000},
    ),
]


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("attack", one_of(ATTACKS), ids=lambda attack: attack.name)
def test_state_that_a_client_leaves_behind_has_a_bound(
    attack: Attack, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outcome = play(attack, tmp_path_factory.mktemp("attacked"))
    check(outcome)
    assert outcome.memory_mib - outcome.memory_before_mib < 200
