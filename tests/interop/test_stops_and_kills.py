"""Stock clients publish while their broker is stopped and killed, again and again.

None may call a message failed that the broker has: its program would publish it again. After a
stop that holds for every client. After a kill it holds for clients that keep their session: what
was under way is completed by the next connection. aiomqtt keeps nothing, and cannot know.
"""

from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.interop.publisher_program import PublisherProgram, start
from tests.support.broker import Broker
from tests.support.fixtures import Clients, running_broker

ENDS: Final = 20
TIMEOUT_S: Final = 900  # twenty starts of a broker take minutes on a busy machine
MESSAGES: Final = 100  # delivered between two ends
SETTINGS: Final = {"limits.max_mqueue_len": 0, "log.level": "info"}

CASES: Final = [
    (client, version, qos)
    for client in ("mqttjs", "paho", "paho_c", "aiomqtt")
    for version in (4, 5)
    for qos in (1, 2)
]


class Verdict(NamedTuple):
    """How a client fared: numbers of messages."""

    delivered: int
    repeated: int
    called_failed: int
    failed_and_delivered: int
    lost: int


def received(broker: Broker, clients: Clients) -> list[int]:
    """The messages that the broker has, in their order, with those that it has more than once."""
    reader = clients.join(broker, "reader", clean_start=False, expiry_s=3600, present=True)
    found: list[int] = []
    clients.join(broker, "last").publish("load/last", b"", 1)
    while True:
        message = reader.take()
        if message.topic == "load/last":
            reader.disconnect()
            return found
        found.append(int(message.payload))


def judge(program: PublisherProgram, found: list[int]) -> Verdict:
    """Compare what the client says with what the broker has."""
    outcomes = program.outcomes
    return Verdict(
        len(outcomes.ok),
        len(found) - len(set(found)),
        len(outcomes.failed),
        len(outcomes.failed.keys() & set(found)),
        len(outcomes.ok - set(found)),
    )


def play(
    directory: Path, clients: Clients, case: tuple[str, int, int], ends: int, is_killed: bool
) -> Verdict:
    """Publish through ``ends`` stops or kills; the verdict."""
    client, version, qos = case
    with running_broker(directory, SETTINGS) as broker:
        reader = clients.join(broker, "reader", clean_start=False, expiry_s=3600)
        reader.subscribe("load/#", qos=2)
        reader.disconnect()
        program = start(client, broker, "load/t", version, qos)
        try:
            for _ in range(ends):
                program.wait_for_more(MESSAGES)
                if is_killed:
                    broker.kill()
                else:
                    assert broker.stop() == 0
                broker.start()
            program.wait_for_more(MESSAGES)
            program.finish()
        finally:
            program.close()
        verdict = judge(program, received(broker, clients))
    print(f"{client}, MQTT {version}, QoS {qos}, {'kills' if is_killed else 'stops'}: {verdict}")
    return verdict


@pytest.mark.parametrize("case", [("paho", 5, 1), ("aiomqtt", 5, 2)], ids=str)
def test_no_delivered_message_is_called_failed_after_stops(
    tmp_path: Path, clients: Clients, case: tuple[str, int, int]
) -> None:
    """One client that keeps its session, and one that keeps nothing: of the long test below."""
    verdict = play(tmp_path, clients, case, 2, False)
    assert (verdict.failed_and_delivered, verdict.repeated, verdict.lost) == (0, 0, 0)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.torture("twenty stops of each client")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_delivered_message_is_called_failed_after_twenty_stops(
    tmp_path: Path, clients: Clients, case: tuple[str, int, int]
) -> None:
    """Nor is any message twice in the log: all that it has was acknowledged before the end."""
    verdict = play(tmp_path, clients, case, ENDS, False)
    assert (verdict.failed_and_delivered, verdict.repeated, verdict.lost) == (0, 0, 0)


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.torture("twenty kills of each client")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_no_delivered_message_is_called_failed_after_twenty_kills(
    tmp_path: Path, clients: Clients, case: tuple[str, int, int]
) -> None:
    verdict = play(tmp_path, clients, case, ENDS, True)
    assert verdict.lost == 0
    if case[0] != "aiomqtt":
        assert verdict.failed_and_delivered == 0
