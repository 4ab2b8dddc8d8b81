"""The landing job of a storm over a cluster: the ledgers' topics in a Delta table.

``penstock table run`` reads from the stream services of all members, for as long as the storm
lasts, and has to go on by itself whatever happens to them. It is a small Spark, for the machines
and the devices need the processor.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from tests.support import left_behind
from tests.support.deadline import wait_for
from tests.support.environment import environment
from tests.support.machines import Machines
from tests.support.process_tree import alive, descendants, kill

TOPICS: Final = "ledger/#"
TRIGGER_S: Final = 5
_JAVA: Final = "-Xmx512m -XX:TieredStopAtLevel=1 -XX:ActiveProcessorCount=1"
_LANDED_S: Final = 120.0
_JAVA_ENDS_S: Final = 60.0
_LAST_WORDS: Final = 6000


@final
class Landing:
    """The job; a context manager that ends it, and all that it has started.

    Args:
        machines: the cluster.
        directory: a directory for the table and the job's output.
    """

    def __init__(self, machines: Machines, directory: Path) -> None:
        self.table = directory / "landed"
        self._machines = machines
        self._log = directory / "landing.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        command = [
            *self._machines.client.command,
            *(sys.executable, "-m", "penstock", "table", "run", str(self.table)),
            *("--server", self._machines.streams, "--topics", TOPICS, "--master", "local[1,4]"),
            *("--trigger", str(TRIGGER_S)),
        ]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment() | {"_JAVA_OPTIONS": _JAVA},
                start_new_session=True,
            )
        left_behind.watch(self._process.pid)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        started = descendants(process.pid)
        process.kill()
        process.wait()
        left_behind.forget(process.pid)
        try:
            wait_for("Java to end", lambda: not alive(started), _JAVA_ENDS_S)
        finally:
            kill(started)

    def check(self) -> None:
        """Raise AssertionError where the job has ended by itself."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"the landing job ended with code {code}:\n{self._last_words()}"

    def finish(self, rows: dict[str, list[int]]) -> int:
        """Wait until as many rows have landed as the log has, stop the job, and compare them;
        return how many they are.

        Args:
            rows: the numbers that the log has, by topic, in its order.

        Raises:
            AssertionError: a row is missing, there twice or elsewhere, or the job failed.
        """
        expected = sum(len(numbers) for numbers in rows.values())

        def is_complete() -> bool:
            self.check()
            return self._landed() >= expected

        try:
            wait_for(f"{expected} rows in the table", is_complete, _LANDED_S)
        except AssertionError as error:
            raise AssertionError(
                f"{error}; it has {self._landed()}:\n{self._last_words()}"
            ) from error
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(_LANDED_S)
        assert code == 0, f"the landing job ended with code {code}:\n{self._last_words()}"
        found = self._rows()
        for topic in rows.keys() | found.keys():
            assert found.get(topic) == rows.get(topic), (
                f"{topic}: the table has other rows than the log: {_differ(rows, found, topic)}"
            )
        return expected

    def _landed(self) -> int:
        """Return the number of rows of the table, 0 before there is one."""
        if not any((self.table / "_delta_log").glob("*.json")):
            return 0
        files = pa.table(DeltaTable(self.table).get_add_actions())
        return sum(files.column("num_records").to_pylist())

    def _rows(self) -> dict[str, list[int]]:
        """Return the numbers in the table, by topic, in the order of their offsets."""
        columns = ["offset", "topic", "payload"]
        found = DeltaTable(self.table).to_pyarrow_table(columns=columns).sort_by("offset")
        rows: dict[str, list[int]] = {}
        for topic in pc.unique(found.column("topic")).to_pylist():
            chosen = found.filter(pc.equal(found.column("topic"), topic))
            rows[topic] = [int(payload) for payload in chosen.column("payload").to_pylist()]
        return rows

    def _last_words(self) -> str:
        said = self._log.read_text(errors="replace") if self._log.exists() else ""
        return said[-_LAST_WORDS:]


def _differ(rows: dict[str, list[int]], found: dict[str, list[int]], topic: str) -> str:
    """Return where the rows of a topic in the log and in the table begin to differ."""
    logged, landed = rows.get(topic, []), found.get(topic, [])
    pairs = zip(logged, landed, strict=False)
    same = next((n for n, (one, other) in enumerate(pairs) if one != other), None)
    place = min(len(logged), len(landed)) if same is None else same
    return (
        f"at row {place} of {len(logged)} and {len(landed)}:"
        f" {logged[place : place + 5]} and {landed[place : place + 5]}"
    )
