"""Older states that are put back under a pipeline from the log to a table, and two jobs at once.

============== =================================================================================
``older``      the job's directory is replaced by an older copy, while the job is killed
``deleted``    the job's directory is deleted
``another``    the job's directory is replaced by that of another table
``data``       the broker's data directory is replaced by an older copy: what was acknowledged
               since is not of the living history any more, and lost where it had not landed
``second``     a second job begins beside the first, whose lock was deleted with its directory
============== =================================================================================
"""

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

from penstock.stream.client import StreamClient
from tests.support.broker import Broker
from tests.support.pipelines import LogToTable, server_of

OLDER, DELETED, ANOTHER, DATA, SECOND = "older", "deleted", "another", "data", "second"
RESTORES: Final = (OLDER, DELETED, ANOTHER, DATA, SECOND)

_LAST_OFFSETS: Final = 20_000  # before a position of receipts, which are compared with the table


@final
class Restores:
    """What is put back, and what the living history has then.

    Args:
        pipeline: from the log to a table.
        broker: of it.
        directory: for copies.
        times: how often each is done.
        draw: chooses when.
    """

    def __init__(
        self,
        pipeline: LogToTable,
        broker: Broker,
        directory: Path,
        times: dict[str, int],
        draw: random.Random,
    ) -> None:
        self.done = dict.fromkeys(RESTORES, 0)
        self.lost = 0  # acknowledged, in no row, and gone with the data directory
        self._pipeline = pipeline
        self._broker = broker
        self._directory = directory
        self._left = [kind for kind, count in times.items() for _ in range(count)]
        draw.shuffle(self._left)
        self._copies: list[Path] = []
        self._data: Path | None = None

    def of_round(self, rounds_left: int) -> list[str]:
        """What is done in the next round: as many as it takes to do all, of what there is a copy
        for."""
        count = -(-len(self._left) // max(1, rounds_left))
        found: list[str] = []
        for kind in [*self._left]:
            has_copy = self._data is not None if kind == DATA else bool(self._copies)
            is_possible = has_copy or kind not in (DATA, OLDER)
            if len(found) < count and is_possible and not (kind == DATA and DATA in found):
                found.append(kind)
                self._left.remove(kind)
        return found

    def copy(self) -> None:
        """Copy what may be put back later; nothing is on its way to the broker."""
        place = self._directory / str(len(self._copies))
        checkpoint = self._pipeline.table.job_dir
        if checkpoint.is_dir():
            shutil.copytree(checkpoint, place / "job", dirs_exist_ok=True)
            self._copies.append(place / "job")
        if self._data is None:
            self._broker.stop()
            shutil.copytree(
                self._broker.data_dir, place / "data", ignore=shutil.ignore_patterns("control")
            )
            self._broker.start()
            self._data = place / "data"

    def put_back(self, kind: str, draw: random.Random) -> None:
        """One of them, but for the second job, which its caller starts."""
        self.done[kind] += 1
        checkpoint = self._pipeline.table.job_dir
        if kind == DATA:
            assert self._data is not None
            self._broker.stop()
            shutil.rmtree(self._broker.data_dir)
            shutil.move(self._data, self._broker.data_dir)
            self._broker.start()
            self._data = None
            self.lost = self._count_lost()
            return
        shutil.rmtree(checkpoint, ignore_errors=True)
        if kind == OLDER and self._copies:
            shutil.copytree(draw.choice(self._copies), checkpoint)
        if kind == ANOTHER:
            (checkpoint / "offsets").mkdir(parents=True)
            (checkpoint / "commits").mkdir()
            (checkpoint / "metadata").write_text('{"id":"00000000-0000-0000-0000-000000000000"}')
            for name in ("offsets", "commits"):
                position = '{"0": 999999999, "epoch": "20261121T000000-00000001"}'
                (checkpoint / name / "7").write_text(f"v1\n{{}}\n{position}\n")

    def living(self) -> dict[str, set[int]]:
        """The numbers in the log, by their publisher; each is there once."""
        found: dict[str, set[int]] = {}
        count = 0
        with StreamClient(server_of(self._broker)) as client:
            log = client.offsets("messages")
            for source, number in self._read(client, log.epoch, 0, log.latest):
                found.setdefault(source, set()).add(number)
                count += 1
        assert count == sum(map(len, found.values())), "a message is in the log twice"
        return found

    def _count_lost(self) -> int:
        living, rows = self.living(), set(self.rows())
        return sum(
            number not in living.get(source, set()) and (source, number) not in rows
            for source, numbers in self._pipeline.load.acknowledged.items()
            for number in numbers
        )

    def check_receipts(self) -> None:
        """Raise AssertionError if the broker takes a message for landed that is in no row."""
        with StreamClient(server_of(self._broker)) as client:
            known = {state.table: state.offset for state in client.tables()}
            offset = known.get(self._pipeline.table.name, 0)
            log = client.offsets("messages")
            first = max(log.earliest, offset - _LAST_OFFSETS)
            told = set(self._read(client, log.epoch, first, min(offset, log.latest)))
        missing = told - set(self.rows())
        assert not missing, f"receipts are ahead of the table by {len(missing)} messages"

    def rows(self) -> Counter[tuple[str, int]]:
        """The rows of the table: publisher and number."""
        return Counter(self._pipeline.rows())

    @staticmethod
    def _read(client: StreamClient, epoch: str, start: int, end: int) -> Iterator[tuple[str, int]]:
        if start >= end:
            return
        columns = ["topic", "payload"]
        read = client.read(
            "messages", epoch, start, end, topic_filters=("ledger/#",), columns=columns
        )
        for batch in read:
            for row in batch.to_pylist():
                yield row["topic"].rpartition("/")[2], int(row["payload"])
