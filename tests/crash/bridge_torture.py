"""The long storm over a bridge: ``python -m tests.crash.bridge_torture --messages 100000``.

Two Penstocks in network namespaces, joined by a link that is cut again and again, while both
brokers and the publisher's program are killed with SIGKILL in turn: ``tests/support/bridge_storm``.
It prints what was done and what became of the messages; the exit code is 1 if a promise is broken,
and the directory with stores, logs and the subscriber's record is kept then.
"""

import argparse
import contextlib
import io
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from penstock.version import build_kind
from tests.support.bridge_storm import play
from tests.support.namespaces import Namespaces, Proxied, obstacle

MESSAGES: Final = 100_000
MESSAGES_A_ROUND: Final = 700
ROUNDS_MIN: Final = 8  # each kind of fault has its turn twice
ROUNDS_TIMES_MAX: Final = 5  # who has not finished by then gets calm
_ROUND_S: Final = 4.0  # that one takes, about
_PROGRESS_S: Final = 5.0


def storm(messages: int, rounds: int, seed: int, link: Namespaces | Proxied) -> int:
    """One storm; the exit code."""
    kind = "network namespaces" if isinstance(link, Namespaces) else "a proxy"
    print(
        f"storm over {kind}, {build_kind()}: --messages {messages} --rounds {rounds} --seed {seed}",
        flush=True,
    )
    directory = Path(tempfile.mkdtemp(prefix="penstock-storm-"))
    said = io.StringIO()  # the programs' logs: of interest if something fails
    shown_s = 0.0

    def tell(progress: str) -> None:
        nonlocal shown_s
        if time.monotonic() - shown_s > _PROGRESS_S:
            shown_s = time.monotonic()
            print(f"  {progress}", file=sys.stderr, flush=True)

    try:
        with contextlib.redirect_stdout(said):
            rounds_max = ROUNDS_TIMES_MAX * rounds
            verdict = play(directory, link, seed, messages, rounds, rounds_max, tell)
    except AssertionError as failure:
        print(f"{said.getvalue()}FAILED\n{failure}\n(what is left: {directory})")
        return 1
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory)
        raise
    print(verdict)
    if not verdict.is_kept:
        print(f"{said.getvalue()}FAILED (what is left: {directory})")
        return 1
    shutil.rmtree(directory)
    return 0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, help=f"of each QoS, 2 and 1; {MESSAGES:,}")
    parser.add_argument("--rounds", type=int, help="of faults; one for 700 messages, 8 or more")
    parser.add_argument("--seconds", type=float, help="as many messages as take so long, about")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--delay-ms", type=int, default=0, help="of each packet on the link")
    parser.add_argument("--loss-percent", type=float, default=0.0, help="of them")
    parser.add_argument("--proxy", action="store_true", help="cut a proxy, not namespaces")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and end all we began
    if asked.seconds is None:
        messages = asked.messages or MESSAGES
        rounds = asked.rounds or max(ROUNDS_MIN, messages // MESSAGES_A_ROUND)
    else:
        rounds = asked.rounds or max(ROUNDS_MIN, int(asked.seconds / _ROUND_S))
        messages = asked.messages or rounds * MESSAGES_A_ROUND
    if why := "asked for" if asked.proxy else obstacle():
        print(f"a proxy is cut instead of a link: {why}")
        with Proxied() as proxied:
            return storm(messages, rounds, asked.seed, proxied)
    with Namespaces() as namespaces:
        is_impaired = asked.delay_ms > 0 or asked.loss_percent > 0
        if is_impaired and not namespaces.impair(asked.delay_ms, asked.loss_percent):
            print("this kernel has no netem: packets are neither delayed nor lost")
        return storm(messages, rounds, asked.seed, namespaces)


if __name__ == "__main__":
    sys.exit(main())
