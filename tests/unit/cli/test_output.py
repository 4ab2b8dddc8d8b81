"""Where `penstock sub` writes: all of it before it returns, and never outside its directory."""

import asyncio
import os
from pathlib import Path

import pytest

from penstock.cli.output import Output, OutputFailed, file_name, write_all


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


async def test_a_file_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "out"
    file.write_bytes(b"before\n")
    output = Output(file)
    await output.write("a", b"one\n")
    await output.write("b", b"two\n")
    assert file.read_bytes() == b"before\none\ntwo\n"


async def test_a_directory_gets_a_file_for_each_topic(tmp_path: Path) -> None:
    output = Output(tmp_path)
    for topic in ("a", "a/b", "../a", "a"):
        await output.write(topic, b"x")
    assert contents(tmp_path) == {
        "a": b"xx",
        "a%2Fb": b"x",
        "%2E.%2Fa": b"x",
    }


def test_file_names_are_safe_short_and_different() -> None:
    topics = [".", "..", "/", "a/b", "a%2Fb", "%2E", "x" * 300, "x" * 301, "é" * 300, "\x1b", "~"]
    names = [file_name(topic) for topic in topics]
    assert len(set(names)) == len(names)
    for name in names:
        assert "/" not in name
        assert not name.startswith(".")
        assert len(name) <= 200


async def test_a_reader_that_is_slow_does_not_hold_up_the_loop() -> None:
    reading, writing = os.pipe()
    data = os.urandom(1_000_000)
    task = asyncio.create_task(write_all(writing, data))
    got = b""
    while len(got) < len(data):
        await asyncio.sleep(0)  # the loop goes round while the pipe is full
        got += os.read(reading, 65_536)
    await task
    assert got == data
    os.close(reading)
    os.close(writing)


async def test_a_reader_that_is_gone_is_a_broken_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    for data in (b"short", bytes(1_000_000)):
        with pytest.raises(BrokenPipeError):
            await write_all(writing, data)
    os.close(writing)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
async def test_a_full_disk_is_told() -> None:
    with pytest.raises(OutputFailed, match="/dev/full"):
        await Output(Path("/dev/full")).write("a", b"x")
