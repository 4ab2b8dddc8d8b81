"""The questions of docs/questions.md, each asked of a broker to which things have happened."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.protocol import reasons
from tests.support.broker import Broker
from tests.support.deadline import wait_for
from tests.support.fixtures import Clients, running_broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "questions.md"
QUESTIONS = dict(
    re.findall(r"^\| ([^|`]+) \| `([^`]+)` \|$", PAGE.read_text("utf-8"), re.MULTILINE)
)

ANSWERS = {  # a pattern in the answer
    "Who is connected?": "press-7",
    "Who is connected as press-7, from where, since when?": r"address +127\.0\.0\.1",
    "Who is connected from this network?": "press-7",
    "Which clients does this user have?": "slow",
    "Why does slow get nothing of this topic?": "in-flight window is full",
    "May press-7 publish there, and by which line of the access list?": r"may publish +yes",
    "Which clients are at their limits?": "slow",
    "How is the broker, and which clients are held up, and by what?": "slow +window full",
    "Which clients have the longest queues?": r"slow .*1/1",
    "What became of the last messages of this topic?": "dropped: queue full",
    "What was published there in the last hour?": "plant/line1/temp",
    "What happened between the broker and slow in the last minutes?": "connected: main",
    "What was dropped, for whom and why?": "slow.*queue_full",
    "Who was refused?": "refused +rogue",
    "When did press-7 come and go?": "connected +press-7",
    "Who kicked press-7, and what else did operators do?": "press-7 +act kick.* by [a-z]",
    "Which sessions are away?": "away-1",
    "How many sessions would go if those away for a month went?": "0 sessions would be removed",
    "What is retained below plant/?": "plant/state",
    "What does this retained message say?": "running",
    "Clear what is retained there.": "cleared 1 retained messages",
    "How far are readers behind the log?": "",
    "How far are tables behind the log?": "",
    "Who is banned, and for how long?": "rogue",
    "Keep this client out for an hour.": "",
    "Which settings are in effect?": "max_mqueue_len",
    "What does this machine lack?": "Python",
    "Take a backup while it runs.": "",
}
WITH_DATA_DIRECTORY = {
    *("clients", "sessions", "retained", "bans", "store", "why", "story", "events", "top"),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with short queues and events."""
    settings = {
        "limits.max_inflight": "1",
        "limits.max_mqueue_len": "1",
        "events.enabled": "true",
    }
    with running_broker(tmp_path_factory.mktemp("asked"), settings, stream=True) as running:
        opened = Clients()
        try:
            happen(running, opened)
            yield running
        finally:
            opened.close()


def happen(broker: Broker, clients: Clients) -> None:
    """Let there be something to ask about."""
    clients.join(broker, "away-1", expiry_s=3600).drop()
    clients.join(broker, "press-7")
    ask(broker, "penstock clients kick press-7 --why maintenance")
    press = clients.join(broker, "press-7")
    slow = clients.join(broker, "slow", expiry_s=3600)
    slow.subscribe("plant/line1/+", qos=1)
    press.publish("plant/state", b"running", 1, retain=True)
    for _ in range(3):
        press.publish("plant/line1/temp", b"21", 1)
    ask(broker, "penstock bans add client rogue --why guesses")
    refused = clients.open(broker).connect("rogue")
    assert refused.reason_code == reasons.BANNED
    wait_for(
        "the events to be written",
        lambda: "rogue" in ask(broker, "penstock events refused --since 7d") or None,
    )


def ask(broker: Broker, command: str) -> str:
    """The answer to a command that succeeds."""
    words = shlex.split(command)[1:]
    if words[0] == "store":
        words[-1] = str(broker.data_dir.parent / words[-1])
    for commands, option, value in (
        (
            {"why", "story", "events", "stream", "tail"},
            "--server",
            ":".join(map(str, broker.stream_address)),
        ),
        ({"flow"}, "--broker", ":".join(map(str, broker.address))),
        (WITH_DATA_DIRECTORY, "--data-dir", str(broker.data_dir)),
    ):
        if words[0] in commands:
            words += [option, value]
    if words[0] == "tail":  # writes to the file descriptor of standard output
        started = [sys.executable, "-m", "penstock", *words]
        done = subprocess.run(started, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout
    result = CliRunner().invoke(app, words, terminal_width=200)
    assert result.exit_code == 0, f"{command}: {result.output} {result.exception}"
    return result.output


def test_every_question_has_an_answer_here() -> None:
    assert QUESTIONS.keys() == ANSWERS.keys()
    assert len(QUESTIONS) >= 20


@pytest.mark.parametrize("question", ANSWERS)
def test_the_answer(broker: Broker, question: str) -> None:
    assert re.search(ANSWERS[question], ask(broker, QUESTIONS[question]))
