"""A standalone Spark cluster from the pip package: a master and workers, each a process of its own.

::

      driver ──▶ master ◀── worker 0 ── executor ── Python
        ╰──────────────────▶  worker 1 ── executor ── Python
                                  ╰─ kill_worker(1): all of it, as when the machine is switched off

All of them on loopback and free ports. Each is the leader of its own session, which its executors
and their Python never leave: so what belongs to it is known, and nothing is left of it.
"""

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from pyspark.find_spark_home import _find_spark_home

from penstock.spark.java import find_java_home
from penstock.transport.reserved_port import ReservedPort
from tests.support.deadline import wait_for
from tests.support.environment import environment
from tests.support.process_tree import kill_session

WORKERS: Final = 2
_HOST: Final = "127.0.0.1"
_EXECUTOR_MIB: Final = 512
_READY_S: Final = 600.0  # long: a slow machine must not fail it
_SMALL_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_DEFAULTS: Final = f"""\
spark.executor.memory {_EXECUTOR_MIB}m
spark.executor.extraJavaOptions -XX:+UseSerialGC
"""
_LOCAL: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@final
class SparkCluster:
    """A cluster for a ``with`` block; each worker has one core.

    Args:
        directory: for what its processes print, and the workers' files.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port, self._page_port = ReservedPort(_HOST), ReservedPort(_HOST)
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes] | None] = [None] * WORKERS
        conf = directory / "conf"
        conf.mkdir(parents=True)
        (conf / "spark-defaults.conf").write_text(_DEFAULTS)
        self.environment = environment() | {
            "JAVA_HOME": find_java_home(),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_CONF_DIR": str(conf),
        }
        """What a driver needs to reach it."""

    @property
    def url(self) -> str:
        """Spark's master URL."""
        return f"spark://{self._port}"

    def __enter__(self) -> Self:
        try:
            self._master = self._start(
                "master",
                "org.apache.spark.deploy.master.Master",
                *("--port", str(self._port.port), "--webui-port", str(self._page_port.port)),
            )
            wait_for("the master of the cluster", lambda: self._state() is not None, _READY_S)
            for number in range(WORKERS):
                self.start_worker(number)
            wait_for("the workers of the cluster", lambda: self.workers() == WORKERS, _READY_S)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start_worker(self, number: int) -> None:
        """Start a worker; the master takes a moment to know it."""
        self._workers[number] = self._start(
            f"worker-{number}",
            "org.apache.spark.deploy.worker.Worker",
            *("--port", "0", "--webui-port", "0", "--cores", "1"),
            *("--memory", f"{2 * _EXECUTOR_MIB}m"),
            *("--work-dir", str(self._directory / f"worker-{number}"), self.url),
        )

    def kill_worker(self, number: int) -> None:
        """End a worker, its executors and their Python, as when its machine is switched off."""
        worker = self._workers[number]
        assert worker is not None
        _end(worker)
        self._workers[number] = None

    def workers(self) -> int:
        """How many the master knows, and takes for alive."""
        state = self._state()
        return 0 if state is None else int(state["aliveworkers"])

    def close(self) -> None:
        """End all of it."""
        self._port.close()
        self._page_port.close()
        for process in (*self._workers, self._master):
            if process is not None:
                _end(process)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        main, *rest = arguments
        command = [f"{_find_spark_home()}/bin/spark-class", main, "--host", _HOST, *rest]
        java = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": _SMALL_JAVA}
        with (self._directory / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment | java,
                start_new_session=True,
            )

    def _state(self) -> dict[str, Any] | None:
        """What the master's page says, once it answers."""
        try:
            with _LOCAL.open(f"http://{self._page_port}/json/", timeout=5) as answer:
                state: dict[str, Any] = json.load(answer)
        except (OSError, ValueError):
            return None
        return state


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
    kill_session(process.pid)
    process.wait()
