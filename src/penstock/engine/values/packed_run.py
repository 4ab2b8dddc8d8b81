"""A run: consecutive deliveries of a session's queue as packed numbers, thirteen bytes each.

::

      first = 40   offsets  [ 901  902  905  906 ··· ]   8 bytes: the log offset of the message
                   sizes    [ 120   96  120  310 ··· ]   4 bytes: the size of the message
                   kinds    [   0    0    1    0 ··· ]   1 byte: an index into the table
                   table    [ (QoS 1, …), (QoS 2, with subscription identifier 7, …) ]

A million messages that wait for a client take 13 megabytes, in memory and in the store, however
large their bodies are. A segment that a commit stores has the same form.
"""

from __future__ import annotations

from array import array
from typing import Final, TypeAlias, final

from penstock.engine.values.message import Delivery

# QoS, RETAIN, subscription identifiers, and a place that is free: it had the shared subscription of
# the delivery before each group had a queue of its own
Kind: TypeAlias = tuple[int, bool, tuple[int, ...], None]

RUN_LEN_MAX: Final = 4096
_KINDS_MAX: Final = 255
_SIZE_MAX: Final = 0xFFFFFFFF


@final
class PackedRun:
    """Deliveries with the sequences ``first``, ``first`` + 1, … of one session.

    Args:
        first: the sequence of the first delivery.
    """

    def __init__(self, first: int) -> None:
        self.first = first
        self.offsets: array[int] = array("q")
        self.sizes: array[int] = array("I")
        self.kinds = bytearray()
        self.table: list[Kind] = []

    def __len__(self) -> int:
        return len(self.kinds)

    @property
    def end(self) -> int:
        """Return the sequence after that of the last delivery."""
        return self.first + len(self.kinds)

    def add(self, sequence: int, offset: int, size_bytes: int, kind: Kind) -> bool:
        """Append one delivery; return False if it needs another run: its sequence does not follow,
        or this run is full."""
        count = len(self.kinds)
        if sequence != self.first + count or count >= RUN_LEN_MAX:
            return False
        table = self.table
        if table and table[-1] == kind:
            code = len(table) - 1
        elif kind in table:
            code = table.index(kind)
        elif len(table) < _KINDS_MAX:
            code = len(table)
            table.append(kind)
        else:
            return False
        self.offsets.append(offset)
        self.sizes.append(min(size_bytes, _SIZE_MAX))
        self.kinds.append(code)
        return True

    def put(self, delivery: Delivery) -> bool:
        """Append ``delivery`` as ``add`` does."""
        kind = (delivery.qos, delivery.retain, delivery.subscription_ids, None)
        return self.add(delivery.sequence, delivery.offset, delivery.size_bytes, kind)

    def copy(self) -> PackedRun:
        """Return a copy of the run."""
        other = PackedRun(self.first)
        other.offsets = self.offsets[:]
        other.sizes = self.sizes[:]
        other.kinds = self.kinds[:]
        other.table = self.table[:]
        return other

    def delivery(self, position: int) -> Delivery:
        """Return the delivery at ``position``, 0 = the first, without its body."""
        qos, retain, subscription_ids, _ = self.table[self.kinds[position]]
        sequence = self.first + position
        found = Delivery(None, self.offsets[position], qos, retain, subscription_ids, sequence)
        found.size_bytes = self.sizes[position]
        return found

    def size_bytes(self, position: int) -> int:
        """Return the bytes of all messages from ``position`` on."""
        return sum(self.sizes[position:])


def append_run(runs: list[PackedRun], run: PackedRun) -> None:
    """Append ``run`` to ``runs``; merge it into the last run if its sequences follow and it fits.

    The caller must not use ``run`` afterwards: later runs may be merged into it.
    """
    last = runs[-1] if runs else None
    if last is None or last.end != run.first or len(last) + len(run) > RUN_LEN_MAX:
        runs.append(run)
        return
    table = last.table
    codes: dict[Kind, int] = {kind: code for code, kind in enumerate(table)}
    new = [kind for kind in run.table if kind not in codes]
    if len(table) + len(new) > _KINDS_MAX:
        runs.append(run)
        return
    for kind in new:
        codes[kind] = len(table)
        table.append(kind)
    last.offsets.extend(run.offsets)
    last.sizes.extend(run.sizes)
    translated = bytes([codes[kind] for kind in run.table])
    last.kinds.extend(run.kinds.translate(translated.ljust(256, b"\0")))
