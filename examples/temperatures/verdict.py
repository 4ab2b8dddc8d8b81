"""The comparison: what devices were promised, against what the table has.

A reading is known by device and sequence number. For each QoS:

    sent          readings a device handed to its MQTT client
    acknowledged  those for which it got PUBACK (QoS 1) or PUBCOMP (QoS 2)
    rows          rows of the table that carry one of them, whole and unchanged
    distinct      different readings among those rows
    lost          acknowledged, and in no row
    duplicated    rows beyond the first of the same reading

Neither lost nor duplicated is computed from totals: a lost and a doubled reading do not make up for
each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from examples.temperatures.fleet import Device
from examples.temperatures.ledger import Ledger
from examples.temperatures.readings import Reading


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table, as far as the verdict looks at it."""

    client_id: str
    topic: str
    qos: int
    payload: bytes


@dataclass(slots=True)
class Tally:
    """The figures of one QoS."""

    qos: int
    devices: int = 0
    sent: int = 0
    acknowledged: int = 0
    refused: int = 0
    rows: int = 0
    distinct: int = 0
    lost: int = 0
    duplicated: int = 0

    @property
    def unsettled(self) -> int:
        """Sent, and neither acknowledged nor refused in time."""
        return self.sent - self.acknowledged - self.refused


@dataclass(slots=True)
class Verdict:
    """The outcome.

    Attributes:
        tallies: by QoS.
        foreign: rows that no device sent in this form.
        sessions_forgotten: reconnects that found the broker without its session.
        lost: the lost readings, as (device, sequence), for the search.
        doubled: readings with more than one row, likewise.
    """

    tallies: dict[int, Tally]
    foreign: int = 0
    sessions_forgotten: int = 0
    lost: list[tuple[str, int]] = field(default_factory=list)
    doubled: list[tuple[str, int]] = field(default_factory=list)

    def complaints(self) -> list[str]:
        """What went wrong, a sentence each; empty when the promise was kept."""
        found = []
        for tally in self.tallies.values():
            where = f"at QoS {tally.qos}"
            if tally.lost:
                found.append(f"{tally.lost} acknowledged readings are not in the table {where}.")
            if tally.qos == 2 and tally.duplicated:
                found.append(f"{tally.duplicated} rows repeat a reading {where}.")
            if tally.unsettled:
                found.append(f"{tally.unsettled} readings were never acknowledged {where}.")
            if tally.refused:
                found.append(f"{tally.refused} readings were refused {where}.")
        if self.foreign:
            found.append(f"{self.foreign} rows of the table are not what a device sent.")
        if self.sessions_forgotten:
            found.append(f"The broker forgot {self.sessions_forgotten} sessions it had confirmed.")
        return found


def judge(
    devices: Iterable[Device],
    ledgers: dict[str, Ledger],
    readings: dict[str, list[Reading]],
    rows: Iterable[Row],
    sessions_forgotten: int = 0,
) -> Verdict:
    """Compare ledgers and table.

    Args:
        devices: who took part.
        ledgers: by device name.
        readings: by city.
        rows: the whole table.
        sessions_forgotten: as counted by the devices.
    """
    verdict = Verdict({}, sessions_forgotten=sessions_forgotten)
    sequences: dict[str, dict[bytes, int]] = {}
    known: dict[str, Device] = {}
    copies: dict[str, Counter[int]] = {}
    for device in devices:
        known[device.name] = device
        copies[device.name] = Counter()
        sequences[device.name] = {
            device.payload(number, readings[device.city]): number
            for number in range(len(ledgers[device.name].entries))
        }
    for row in rows:
        sender = known.get(row.client_id)
        sequence = None if sender is None else sequences[sender.name].get(row.payload)
        if sender is None or sequence is None or (row.topic, row.qos) != (sender.topic, sender.qos):
            verdict.foreign += 1
        else:
            copies[sender.name][sequence] += 1
    for device in known.values():
        tally = verdict.tallies.setdefault(device.qos, Tally(device.qos))
        _add(tally, verdict, device.name, ledgers[device.name], copies[device.name])
    verdict.tallies = dict(sorted(verdict.tallies.items()))
    return verdict


def _add(tally: Tally, verdict: Verdict, name: str, ledger: Ledger, copies: Counter[int]) -> None:
    acknowledged = ledger.acknowledged_sequences()
    lost = sorted(acknowledged - copies.keys())
    tally.devices += 1
    tally.sent += len(ledger.entries)
    tally.acknowledged += len(acknowledged)
    tally.refused += len(ledger.refused_sequences())
    tally.rows += copies.total()
    tally.distinct += len(copies)
    tally.lost += len(lost)
    tally.duplicated += sum(count - 1 for count in copies.values())
    verdict.lost += [(name, sequence) for sequence in lost]
    verdict.doubled += [(name, number) for number, count in copies.items() if count > 1]
