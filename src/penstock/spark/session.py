"""Starts a local Spark with settings for a small machine, and ends all its processes.

Spark is a Java process beside this one, and Java starts Python workers in turn::

    this process ──stdin pipe, py4j──▶ Java ──▶ Python workers

When this process ends in any way, even by SIGKILL, the pipe breaks; Java then exits, and so do the
workers. `local_spark` stops Spark in the orderly way, and kills Java if it does not exit in time.

The output of Java and the workers goes to a file, so that a terminal stays readable.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Self

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import penstock
from penstock.errors import PenstockError
from penstock.spark.java import find_java_home
from penstock.spark.worker_python import worker_python

TASK_ATTEMPTS_MAX: Final = 4
"""Attempts of one task before the query fails; plain `local[2]` would make only one."""

LOCAL_MASTER: Final = f"local[*,{TASK_ATTEMPTS_MAX}]"
"""Spark inside one process, with all cores."""

JAVA_EXIT_TIMEOUT_S: Final = 5.0
"""Seconds that Java has to exit before it is killed."""

STOP_S_MAX: Final = 30.0
"""Seconds from the request to stop until Java is killed, if Spark has not ended. It is longer than
the last batches of jobs may take (`penstock.spark.jobs.job.BATCH_END_TIMEOUT_S`)."""

_POLL_S: Final = 0.25

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",  # penstock.spark.pushdown
    "spark.sql.streaming.stopTimeout": "5s",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # The default manager starts a process (readlink) for each name that it reads: this takes a
    # tenth of a second for a query of one batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
}


class SparkFailed(PenstockError):
    """Raised when Spark could not be started, or a query ended with an error."""


@contextlib.contextmanager
def local_spark(
    name: str,
    master: str = LOCAL_MASTER,
    log: Path | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
    **settings: str,
) -> Iterator[SparkSession]:
    """Provide a Spark session for the time of a `with` block.

    Args:
        name: shown by cluster managers.
        master: Spark's master URL.
        log: file for the output of Java and the Python workers; None: standard error.
        is_stopping: returns whether the block has been asked to end; STOP_S_MAX later Java is
            killed, so that calls of a Java that hangs do not last for ever.
        settings: more Spark settings, with underscores for dots:
            `spark_sql_shuffle_partitions="4"`.

    Raises:
        JavaNotFound: there is no Java on which Spark can run.
        SparkFailed: Spark did not start, or had to be killed at the end.
    """
    _set_environment(master)
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(name)
    if master.startswith("local"):
        conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    for key, value in _SETTINGS.items():
        conf.set(key, value)
    for key, value in settings.items():
        conf.set(key.replace("_", "."), value)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_mute_py4j())
        watch = stack.enter_context(_JavaWatch(is_stopping, log))
        output: IO[bytes] | None = None
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            output = stack.enter_context(log.open("ab"))
        try:
            # In a session of its own, so that Ctrl-C reaches this process only, which stops Java.
            with watch.launching():
                gateway = launch_gateway(  # type: ignore[no-untyped-call]  # it has no types
                    conf,
                    popen_kwargs={"stdout": output, "stderr": output, "start_new_session": True},
                )
        except PySparkRuntimeError as error:
            where = f"; {log} says why" if log is not None else ""
            raise SparkFailed(f"Java could not start Spark{where}") from error
        stack.callback(_end_java, gateway.proc)
        stack.callback(_forget_gateway)
        stack.callback(gateway.shutdown)
        with _keep_interrupt_handler():
            context = SparkContext(conf=conf, gateway=gateway)
        # PySpark would print a traceback when Java ends; the caller gets an exception for that.
        context._accumulatorServer.handle_error = _ignore_error  # type: ignore[assignment,method-assign]  # noqa: SLF001
        session = SparkSession.builder.getOrCreate()
        stack.callback(_stop_spark, session)
        stack.callback(watch.begin_end)
        yield session


class _JavaWatch:
    """Kills a Java that has not ended STOP_S_MAX after it was to: a call of it might never return.

    What waits for an answer then gets an error, and the end of the watch raises SparkFailed.
    """

    def __init__(self, is_stopping: Callable[[], bool], log: Path | None) -> None:
        self._is_stopping = is_stopping
        self._log = log
        self._is_ending = False
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._has_killed = False
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._has_killed:
            more = f" (its output is in {self._log})" if self._log is not None else ""
            raise SparkFailed(
                f"Java had not ended {STOP_S_MAX:.0f} s after the stop, and was killed{more}"
            )

    @contextlib.contextmanager
    def launching(self) -> Iterator[None]:
        """Learn which process PySpark starts in the `with` block; it tells nobody before the end of
        the start."""
        popen = java_gateway.Popen  # type: ignore[attr-defined]

        def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
            self._process = subprocess.Popen(*arguments, **options)
            return self._process

        java_gateway.Popen = start  # type: ignore[assignment,attr-defined]
        try:
            yield
        finally:
            java_gateway.Popen = popen  # type: ignore[attr-defined]

    def begin_end(self) -> None:
        """Note that Spark is about to be stopped, whether or not that was asked for."""
        self._is_ending = True

    def _watch(self) -> None:
        while not self._is_ending and not self._is_stopping():
            if self._ended.wait(_POLL_S):
                return
        if not self._ended.wait(STOP_S_MAX) and self._process is not None:
            self._has_killed = True
            self._process.kill()


def _ignore_error(*_: object) -> None:
    pass


@contextlib.contextmanager
def _mute_py4j() -> Iterator[None]:
    """Drop py4j's records to the root logger for the time of a `with` block.

    If Java ends during a call, py4j logs a traceback there and then raises the error, which the
    caller gets anyway. Without a handler, Python would print the traceback.
    """

    def is_not_of_py4j(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    logging.root.addFilter(is_not_of_py4j)
    try:
        yield
    finally:
        logging.root.removeFilter(is_not_of_py4j)


def _stop_spark(session: SparkSession) -> None:
    """Stop Spark, unless it has ended already."""
    with contextlib.suppress(OSError, Py4JError):  # Java ends meanwhile, or is killed
        if not has_ended(session):
            session.stop()
            return
    SparkSession._instantiatedSession = None  # noqa: SLF001  # as its own stop does
    SparkContext._active_spark_context = None  # noqa: SLF001


def has_ended(session: SparkSession) -> bool:
    """Return whether no call of the session can succeed: Java has ended, or has stopped Spark."""
    context = session.sparkContext
    process = getattr(context._gateway, "proc", None)  # noqa: SLF001  # there is no other way
    if process is not None and process.poll() is not None:
        return True
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001
    except (OSError, Py4JNetworkError):
        return True


def _set_environment(master: str) -> None:
    """Set JAVA_HOME, PYSPARK_PYTHON and PYTHONPATH for Java and the Python workers."""
    os.environ["JAVA_HOME"] = find_java_home()
    os.environ["PYSPARK_PYTHON"] = worker_python(master)
    package_root = str(Path(penstock.__file__).parents[1])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if package_root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([package_root, *paths])


@contextlib.contextmanager
def _keep_interrupt_handler() -> Iterator[None]:
    """Restore the handler of SIGINT after the `with` block, in which PySpark replaces it."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, handler)


def _forget_gateway() -> None:
    """Remove PySpark's references to the ended Java, so that a later session starts its own."""
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001


def _end_java(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(JAVA_EXIT_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
