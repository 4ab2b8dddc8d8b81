"""The outcome of a storm over a cluster, and the sum of several storms' outcomes.

A verdict is one line of JSON in a file, so that storms which ran one after the other, or side by
side, are added up.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, final

import msgspec


class Interruption(NamedTuple):
    """The cost of one fault: the longest time without an acknowledgement since then, seconds; 0
    where they went on; how many servers of the log were filled anew, and how many histories were
    begun by an operator's word. None began without: that fails a storm."""

    fault: str
    seconds: float
    refills: int = 0
    histories: int = 0


@final
class Verdict(NamedTuple):
    """The course of one or more storms in which all promises were kept.

    Attributes:
        acknowledged: messages, by QoS.
        refused: messages that a broker refused, as it could not commit them.
        wills: messages of lost devices.
        landed: rows in the table of the landing job; None without one.
        interruptions: the faults in their order.
        seconds: duration.
        storms: number of storms.
    """

    acknowledged: dict[int, int]
    refused: int
    wills: int
    landed: int | None
    interruptions: list[Interruption]
    seconds: float
    storms: int = 1

    def __str__(self) -> str:
        storms = "" if self.storms == 1 else f"{self.storms} storms, "
        landed = ""
        if self.landed is not None:
            landed = f"; landed in the table {self.landed:,}, each once, as the log has them"
        return (
            f"{storms}{len(self.interruptions):,} faults in {self.seconds:,.0f} s; acknowledged"
            f" {self.acknowledged[2]:,} at QoS 2 and {self.acknowledged[1]:,} at QoS 1, refused"
            f" {self.refused:,}; {self.wills:,} wills{landed}\n"
            "QoS 2: lost 0, duplicated 0, out of order 0; QoS 1: lost 0; sessions, retained"
            " messages, wills: all there; views: equal in every key and value; histories without"
            " an operator's word: 0\n"
            f"{table(self.interruptions)}"
        )


def note(path: Path, verdict: Verdict | None) -> None:
    """Append the verdict of a storm to a file; None for a storm that failed."""
    with path.open("ab") as file:
        file.write(msgspec.json.encode(verdict) + b"\n")


def noted(path: Path) -> tuple[list[Verdict], int]:
    """Return the verdicts in a file, and the number of storms that failed."""
    lines = path.read_bytes().splitlines()
    found = [msgspec.json.decode(line, type=Verdict | None) for line in lines]
    verdicts = [verdict for verdict in found if verdict is not None]
    return verdicts, len(found) - len(verdicts)


def total(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the sum of one or more verdicts."""
    tables = [verdict.landed for verdict in verdicts if verdict.landed is not None]
    return Verdict(
        acknowledged={
            qos: sum(verdict.acknowledged[qos] for verdict in verdicts) for qos in (1, 2)
        },
        refused=sum(verdict.refused for verdict in verdicts),
        wills=sum(verdict.wills for verdict in verdicts),
        landed=sum(tables) if tables else None,
        interruptions=[one for verdict in verdicts for one in verdict.interruptions],
        seconds=sum(verdict.seconds for verdict in verdicts),
        storms=sum(verdict.storms for verdict in verdicts),
    )


def table(interruptions: Sequence[Interruption]) -> str:
    """Return the table by kind of fault: seconds without an acknowledgement."""
    titles = f"{'fault':<22}{'count':>6}{'anew':>6}{'by word':>9}{'went on':>9}"
    lines = [f"{titles}{'p50 s':>8}{'p99 s':>8}{'max s':>8}"]
    for name in dict.fromkeys(one.fault for one in interruptions):
        all_s = sorted(one.seconds for one in interruptions if one.fault == name)
        refills = sum(one.refills for one in interruptions if one.fault == name)
        histories = sum(one.histories for one in interruptions if one.fault == name)
        some_s = [seconds for seconds in all_s if seconds]
        figures = (statistics.median(some_s), quantile(some_s, 0.99), some_s[-1]) if some_s else ()
        lines.append(
            f"{name:<22}{len(all_s):>6}{refills:>6}{histories:>9}{len(all_s) - len(some_s):>9}"
            + "".join(f"{figure:>8.2f}" for figure in figures)
        )
    return "\n".join(lines)


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which ``share`` of the ordered values are, the highest of them."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
