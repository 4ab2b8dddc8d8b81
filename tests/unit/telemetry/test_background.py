"""A log that nobody reads holds nobody up."""

import contextlib
import json
import logging
import os
import sys
import threading
from pathlib import Path

from penstock.telemetry.background import BackgroundHandler, DescriptorHandler
from penstock.telemetry.log_file import LogFileHandler
from penstock.telemetry.logs import JsonFormatter
from tests.support.deadline import wait_for


def test_python_3_13_may_enter_the_lock_that_handlers_do_not_have(tmp_path: Path) -> None:
    """Its ``Handler.handle`` does; with None, the thread of the log ended at the first line."""
    descriptor = os.open(tmp_path / "lines", os.O_WRONLY | os.O_CREAT)
    handler = DescriptorHandler(descriptor)
    file = LogFileHandler(str(tmp_path / "file"), 1000, 1, handler)
    for unlocked in (handler, file):
        assert unlocked.lock is not None
        with unlocked.lock, unlocked.lock:  # and who has it holds nobody up
            unlocked.handle(logging.makeLogRecord({"msg": "a line"}))
        unlocked.close()
    os.close(descriptor)
    assert (tmp_path / "lines").read_text() == (tmp_path / "file").read_text() == "a line\n"


def test_a_full_pipe_holds_nobody_up_and_what_is_lost_is_counted() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        handler = BackgroundHandler(logging.StreamHandler(stream), lines_max=10)
        logger = logging.Logger("penstock.x")
        logger.addHandler(handler)
        for _ in range(100):
            logger.info("x" * 10_000)  # the pipe takes 64 KiB, or fewer
        seen = b""
        os.set_blocking(reading, False)

        def read() -> bool:
            nonlocal seen
            with contextlib.suppress(BlockingIOError):
                seen += os.read(reading, 1_000_000)
            return b"log lines are lost" in seen

        wait_for("the number", read)
        ends = threading.Thread(target=handler.close)
        ends.start()
        while ends.is_alive():  # what is queued would fill the pipe again, and hold up its end
            read()
            ends.join(0.01)
    os.close(reading)
    assert seen.count(b"x" * 10_000) < 100


def test_a_queued_line_is_written_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = BackgroundHandler(logging.FileHandler(path))
    logger = logging.Logger("penstock.x")
    logger.addHandler(handler)
    for number in range(1000):
        logger.info("%d", number)
    handler.close()
    assert path.read_text().split() == [str(number) for number in range(1000)]


def test_a_line_with_a_mistake_in_it_harms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "log"
    handler = BackgroundHandler(logging.FileHandler(path))
    logger = logging.Logger("penstock.x")
    logger.addHandler(handler)
    logger.error("%d rows", "many")
    handler.close()
    assert path.read_text() == "%d rows ('many',)\n"


def test_a_line_of_json() -> None:
    try:
        raise ValueError("mistake, password=s3cret")
    except ValueError:
        record = logging.LogRecord(
            "penstock.a.b", logging.INFO, "", 0, "\x1b[2J \x9b2J %s\n", ("ü",), sys.exc_info()
        )
    line = JsonFormatter().format(record)
    assert line.isprintable()
    found = json.loads(line)
    assert found["level"] == "info"
    assert found["logger"] == "a.b"
    assert found["message"] == "\x1b[2J \x9b2J ü\n"
    assert "ValueError: mistake, password=********" in found["exception"]
    assert "s3cret" not in line
