"""What a device notes for itself: each reading it sent, and when it was acknowledged, if it was.

    sequence,sent_at_s,acknowledged_at_s,reason_code
    0,1795248000.120331,1795248000.131120,0
    1,1795248000.120402,,

An acknowledgement is the packet that ends the sender's duty: PUBACK at QoS 1, PUBCOMP at QoS 2.
A reason code of 0x80 or above in a PUBACK is a refusal, not an acknowledgement. In a PUBCOMP there
is only one, 0x92, and after a reconnect it means that an earlier PUBREL was taken [v5 §3.7.2.1].
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_HEADER: Final = ("sequence", "sent_at_s", "acknowledged_at_s", "reason_code")
_REFUSAL: Final = 0x80


@dataclass(slots=True)
class Entry:
    """One reading: seconds since the Unix epoch; None while not acknowledged."""

    sent_at_s: float
    acknowledged_at_s: float | None = None
    reason_code: int = 0


@dataclass(slots=True)
class Ledger:
    """All entries of one device; the sequence number is the index."""

    qos: int
    entries: list[Entry] = field(default_factory=list)

    def sent(self, at_s: float) -> int:
        """Note the next reading as sent; its sequence number."""
        self.entries.append(Entry(at_s))
        return len(self.entries) - 1

    def acknowledged(self, sequence: int, at_s: float, reason_code: int) -> None:
        """Note what ended the exchange for a reading."""
        entry = self.entries[sequence]
        entry.acknowledged_at_s = at_s
        entry.reason_code = reason_code

    def acknowledged_sequences(self) -> set[int]:
        """Readings whose arrival was promised."""
        return {
            sequence
            for sequence, entry in enumerate(self.entries)
            if entry.acknowledged_at_s is not None and not self._is_refusal(entry)
        }

    def acknowledged_by(self, at_s: float) -> int:
        """How many acknowledgements had arrived at `at_s`, seconds since the Unix epoch."""
        return sum(
            entry.acknowledged_at_s is not None and entry.acknowledged_at_s <= at_s
            for entry in self.entries
        )

    def refused_sequences(self) -> set[int]:
        """Readings that the broker said it would not take."""
        return {number for number, entry in enumerate(self.entries) if self._is_refusal(entry)}

    def _is_refusal(self, entry: Entry) -> bool:
        return self.qos == 1 and entry.reason_code >= _REFUSAL

    def write(self, path: Path) -> None:
        """As CSV; the file is there whole or not at all."""
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(_HEADER)
            for sequence, entry in enumerate(self.entries):
                at_s = entry.acknowledged_at_s
                rows.writerow(
                    (
                        sequence,
                        f"{entry.sent_at_s:.6f}",
                        "" if at_s is None else f"{at_s:.6f}",
                        "" if at_s is None else entry.reason_code,
                    )
                )
        unfinished.rename(path)

    @classmethod
    def read(cls, path: Path, qos: int) -> Ledger:
        """What `write` wrote."""
        ledger = cls(qos)
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                sequence = ledger.sent(float(row["sent_at_s"]))
                if row["acknowledged_at_s"]:
                    at_s, code = float(row["acknowledged_at_s"]), int(row["reason_code"])
                    ledger.acknowledged(sequence, at_s, code)
        return ledger
