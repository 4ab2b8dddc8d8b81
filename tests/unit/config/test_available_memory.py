"""How much memory there is: the machine's, or less where a cgroup says so."""

from pathlib import Path

import pytest

from penstock.config.available_memory import AvailableMemory, available_memory

GIB = 2**30
CGROUP = AvailableMemory(2 * GIB, "the limit of its cgroup")


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("own", "name"),
    [
        ("0::/\n", "memory.max"),
        ("0::/a/b\n", "a/b/memory.max"),
        ("0::/a/b\n", "a/memory.max"),
        ("0::/../other\n", "memory.max"),
        ("4:memory:/docker/1\n0::/\n", "memory/docker/1/memory.limit_in_bytes"),
        ("4:cpu,memory:/docker/1\n", "memory/memory.limit_in_bytes"),
    ],
)
def test_the_lowest_limit_of_its_cgroups_counts(tmp_path: Path, own: str, name: str) -> None:
    write(tmp_path, "proc/self/cgroup", own)
    write(tmp_path, f"sys/fs/cgroup/{name}", f"{2 * GIB}\n")
    assert available_memory(tmp_path, 8 * GIB) == CGROUP
    assert available_memory(tmp_path, GIB) == AvailableMemory(GIB, "the machine's memory")


@pytest.mark.parametrize("text", ["max\n", "9223372036854771712\n", "", "nonsense"])
def test_a_cgroup_without_a_limit(tmp_path: Path, text: str) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/a\n")
    write(tmp_path, "sys/fs/cgroup/a/memory.max", text)
    assert available_memory(tmp_path, 8 * GIB) == AvailableMemory(8 * GIB, "the machine's memory")


def test_a_system_without_cgroups(tmp_path: Path) -> None:
    assert available_memory(tmp_path, 8 * GIB).size_bytes == 8 * GIB


def test_this_machine_has_memory() -> None:
    assert available_memory().size_bytes > 2**20
