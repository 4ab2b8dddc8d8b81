"""A power cut at any moment: the broker starts on what is left, and every promise is kept.

The real broker's writes, renames, removals and syncs are recorded under a mixed load, over more
than one start. What a disk may hold after a cut is built of them (``tests/support/disk_model.py``),
and the clients come back to a broker on that (``tests/support/survivors.py``): no acknowledged
message, subscription or retained message is missing, nothing at QoS 2 comes twice, no queue refers
to a body that is gone, and a store that lost nothing is not refused.

A failing cut is named as POSITION:SEED of a recording, which is kept; to see it again::

      python -m tests.crash.torture --recording DIRECTORY --cut POSITION:SEED

The long run is ``make torture``.
"""

import random
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Final

import pytest

from penstock.protocol.packets import Publish
from tests.support.disk_calls import DiskCall
from tests.support.disk_model import Style
from tests.support.power_cut import Cut, PowerCuts, draw_cuts, style_of
from tests.support.promises import Client, Held
from tests.support.recording import Recording, record, with_early_watermark, without_syncs
from tests.support.survivors import Survivor, fresh, judge

LIVES: Final = 2
LIFE_S: Final = 0.7
CUTS: Final = 30
ONE_REAL_IN: Final = 15
FAULTY_CUTS_MAX: Final = 120

pytestmark = [
    pytest.mark.skipif(
        shutil.which("strace") is None, reason="strace is not installed: apt-get install strace"
    ),
    pytest.mark.timeout(1200),
]


@pytest.fixture(scope="module")
def seed() -> int:
    """Of the load and of the cuts."""
    return random.randrange(2**32)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory, seed: int) -> Recording:
    directory = tmp_path_factory.mktemp("recording")
    record(directory, seed, LIVES, LIFE_S)
    return Recording(directory)


def test_every_promise_is_kept(recording: Recording, seed: int) -> None:
    cuts = draw_cuts(recording, CUTS, seed)
    outcomes = list(PowerCuts(recording, real=ONE_REAL_IN).run(cuts))
    problems = [f"{outcome.cut} {outcome.problem}" for outcome in outcomes if outcome.problem]
    assert not problems, f"--recording {recording.directory}:\n" + "\n".join(problems)
    assert len(outcomes) == CUTS
    assert max(outcome.acknowledged for outcome in outcomes) > 50


@pytest.mark.parametrize("qos", [1, 2])
def test_only_what_first_came_at_qos_1_may_come_again(qos: int) -> None:
    """Its subscription was of QoS 1 when it was sent, and is of QoS 2 since."""
    client = Client("fickle")
    client.has_session, client.expiry_s = True, 3600
    client.subscriptions["ledger/2/+"] = Held(2, 1)
    for packet_id in (1, 2):
        client.receive(Publish("ledger/2/p1", b"0", qos, False, False, packet_id))
    survivor = Survivor(client)
    survivor.present = survivor.greeted = True
    with nullcontext() if qos == 1 else pytest.raises(AssertionError, match="fickle 2 times"):
        judge([survivor], fresh())


def test_the_names_above_the_store_survive(recording: Recording) -> None:
    """The data directory and those above it were made by the broker; nothing unsynced is left."""
    unlucky = next(number for number in range(1000) if style_of(number) is Style.NOTHING)
    [outcome] = PowerCuts(recording).run([Cut(recording.end, unlucky)])
    assert outcome.problem == ""


@pytest.mark.parametrize(
    "fault",
    [
        partial(without_syncs, suffix=".log"),
        partial(without_syncs, suffix="/store"),
        partial(without_syncs, suffix="/there"),
        with_early_watermark,
    ],
    ids=["log not synced", "names not synced", "data directory not synced", "watermark first"],
)
def test_a_missing_sync_is_found(
    recording: Recording, seed: int, fault: Callable[[list[DiskCall]], list[DiskCall]]
) -> None:
    """The proof can fail: the same recording without some of its syncs."""
    calls = fault(recording.disk_calls)
    cuts = draw_cuts(recording, FAULTY_CUTS_MAX, seed)
    if fault is with_early_watermark:  # what it does wrong lasts a moment
        moments = [call.finished for call in calls if call.path.endswith("/committed")]
        cuts = [Cut(at + 1, seed + at) for at in moments[10:] if at > recording.ready]
    random.Random(seed).shuffle(cuts)
    cuts = sorted(cuts[:FAULTY_CUTS_MAX])
    found = (outcome for outcome in PowerCuts(recording, calls).run(cuts) if outcome.problem)
    assert list(islice(found, 1)), "no cut found it"
