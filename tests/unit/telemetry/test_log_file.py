"""A log file that turns, and what becomes of its lines where it cannot be written."""

import logging
import shutil
from pathlib import Path
from typing import final

from penstock.telemetry.log_file import LogFileHandler


@final
class Lines(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append(record.getMessage())


def _written(path: Path) -> list[str]:
    return path.read_text().splitlines()


def _logger(
    path: Path, instead: Lines, bytes_max: int = 4096, files_max: int = 2
) -> logging.Logger:
    logger = logging.Logger("penstock.x")
    logger.addHandler(LogFileHandler(str(path), bytes_max, files_max, instead))
    return logger


def test_a_log_file_turns_and_keeps_so_many(tmp_path: Path) -> None:
    path = tmp_path / "log"
    instead = Lines()
    logger = _logger(path, instead, bytes_max=100)
    for number in range(20):
        logger.info("%030d", number)
    files = [tmp_path / name for name in ("log.2", "log.1", "log")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    kept = [int(line) for file in files for line in _written(file)]
    assert kept == list(range(20 - len(kept), 20))
    assert all(file.stat().st_size <= 100 for file in files)
    assert instead.seen == []


def test_somebody_else_renames_it(tmp_path: Path) -> None:
    path = tmp_path / "log"
    logger = _logger(path, Lines())
    logger.info("before")
    path.rename(tmp_path / "log-20261125")
    logger.info("after")
    assert _written(tmp_path / "log-20261125") == ["before"]
    assert _written(path) == ["after"]


def test_the_directory_of_a_log_file_vanishes_and_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "log"
    instead = Lines()
    logger = _logger(path, instead)
    logger.info("before")
    shutil.rmtree(folder)
    logger.info("one")
    logger.info("two")
    said = f"log.file {path} cannot be written: No such file or directory;"
    assert instead.seen == [f"{said} until it can, its lines come here", "one", "two"]
    folder.mkdir()
    logger.info("after")
    assert _written(path) == ["2 lines went to standard error", "after"]
    assert len(instead.seen) == 3


def test_a_disk_that_is_full() -> None:
    instead = Lines()
    logger = _logger(Path("/dev/full"), instead)
    logger.info("the store cannot write")
    assert "No space left on device" in instead.seen[0]
    assert instead.seen[1] == "the store cannot write"


def test_a_directory_in_which_it_cannot_turn(tmp_path: Path) -> None:
    path = tmp_path / "log"
    instead = Lines()
    logger = _logger(path, instead, bytes_max=100, files_max=1)
    (tmp_path / "log.1").mkdir()
    for number in range(5):
        logger.info("%030d", number)
    assert instead.seen[-1] == f"{4:030d}"
    assert len(_written(path)) == 3
    (tmp_path / "log.1").rmdir()
    logger.info("last")
    assert _written(path)[-1] == "last"
