"""Machines on a switch of their own: a network namespace each, and cables that can be pulled.

::

      namespace a      namespace b      namespace c      namespace client
      10.78.0.1        10.78.0.2        10.78.0.3        10.78.0.4
        cable            cable            cable            cable
          ╚═══════════════╩═══ switch ═════╩═════════════════╝      ``cut``: its port is down

What is pulled loses packets, as a cable does: no end hears of it. ``deafen`` and ``mute`` lose
those of one direction: they are addressed to a network card that nobody has.

A namespace has no name: a process holds it, which ends with the test run, also one that is killed,
and the namespace with it, its cables and what is mounted in it. So nothing is left.

Where this cannot be had (``obstacle``), ``LOOPBACK`` is the one place for all machines.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from tests.support.deadline import DEADLINE_S, wait_for

CLIENT: Final = "client"
_SWITCH: Final = "switch"
_CABLE: Final = "cable"  # the interface of a machine
_PREFIX: Final = "10.78.0"
_NOBODY: Final = "02:00:00:00:00:fe"
_NETWORK: Final = 0x40000000  # CLONE_NEWNET
_OWN: Final = Path("/proc/thread-self/ns/net")


@dataclass(frozen=True)
class Place:
    """A place for a program to run.

    Attributes:
        host: the address at which others reach it.
        command: what stands before the command of a program.
        inside: returns a context in which this thread makes its connections from there.
        root: the file system as the programs there see it.
    """

    host: str
    command: tuple[str, ...]
    inside: Callable[[], AbstractContextManager[None]]
    root: Path


LOOPBACK: Final = Place("127.0.0.1", (), nullcontext, Path("/"))


def obstacle() -> str:
    """Why this machine cannot make network namespaces; empty where it can."""
    for program in ("ip", "unshare", "nsenter"):
        if shutil.which(program) is None:
            return f"there is no command {program}"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Network(["one"]):
            return ""
    except OSError as error:
        return str(error)


@final
class Network:
    """A switch, machines, and a host for clients; a context manager.

    Args:
        names: names of the machines.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._numbers = {name: number for number, name in enumerate([*names, CLIENT], 1)}
        self._holders: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._make()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._remove()

    def place(self, name: str) -> Place:
        """Return the place of a machine, or of ``CLIENT``."""
        holder = self._holders[name].pid
        command = (
            *("nsenter", f"--net=/proc/{holder}/ns/net", f"--mount=/proc/{holder}/ns/mnt"),
            f"--wdns={Path.cwd()}",
        )

        @contextlib.contextmanager
        def inside() -> Iterator[None]:
            with _entered(Path(f"/proc/{holder}/ns/net")):
                yield

        return Place(self._host(name), command, inside, Path(f"/proc/{holder}/root"))

    def cut(self, name: str) -> None:
        """Pull the cable of a machine, at the switch: the machine itself sees no error."""
        self._run(_SWITCH, "ip", "link", "set", "dev", name, "down")

    def mend(self, name: str) -> None:
        """Plug it in."""
        self._run(_SWITCH, "ip", "link", "set", "dev", name, "up")

    def mute(self, name: str) -> None:
        """Lose what a machine sends."""
        for other in self._others(name):
            self._address(name, other)

    def deafen(self, name: str) -> None:
        """Lose what is sent to a machine."""
        for other in self._others(name):
            self._address(other, name)

    def hear_again(self, name: str) -> None:
        """Lose nothing more in either direction."""
        for other in self._others(name):
            for one, to in ((name, other), (other, name)):
                self._run(one, "ip", "neigh", "flush", "to", self._host(to), "nud", "permanent")

    def give_disk(self, name: str, directory: Path, size_mib: int) -> None:
        """Mount a file system of its own at a directory, for this machine alone."""
        options = f"size={size_mib}m"
        self._run(name, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory))

    def _others(self, name: str) -> list[str]:
        return [other for other in self._numbers if other != name]

    def _host(self, name: str) -> str:
        return f"{_PREFIX}.{self._numbers[name]}"

    def _address(self, name: str, to: str) -> None:
        """Let ``name`` send what is for ``to`` to nobody."""
        self._run(
            *(name, "ip", "neigh", "replace", self._host(to), "lladdr", _NOBODY),
            *("nud", "permanent", "dev", _CABLE),
        )

    def _make(self) -> None:
        for name in (_SWITCH, *self._numbers):
            self._hold(name)
        self._run(_SWITCH, "ip", "link", "add", _SWITCH, "type", "bridge")
        self._run(_SWITCH, "ip", "link", "set", "dev", _SWITCH, "up")
        for name in self._numbers:
            _run(
                *("ip", "link", "add", _CABLE, "netns", str(self._holders[name].pid)),
                *("type", "veth", "peer", "name", name),
                *("netns", str(self._holders[_SWITCH].pid)),
            )
            self._run(_SWITCH, "ip", "link", "set", "dev", name, "master", _SWITCH, "up")
            self._run(name, "ip", "address", "add", f"{self._host(name)}/24", "dev", _CABLE)
            self._run(name, "ip", "link", "set", "dev", "lo", "up")
            self._run(name, "ip", "link", "set", "dev", _CABLE, "up")

    def _hold(self, name: str) -> None:
        """Start the process that holds a namespace until its standard input ends."""
        own = _OWN.readlink()
        holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the test run
        )
        self._holders[name] = holder

        def is_there() -> bool:
            if holder.poll() is not None:
                assert holder.stderr is not None
                raise OSError(holder.stderr.read().decode().strip())
            with contextlib.suppress(OSError):
                there = Path(f"/proc/{holder.pid}/ns/net").readlink()
                return there != own and Path(f"/proc/{holder.pid}/comm").read_text() == "cat\n"
            return False

        wait_for(f"the namespace of {name}", is_there)

    def _remove(self) -> None:
        for holder in self._holders.values():
            for pipe in (holder.stdin, holder.stderr):
                assert pipe is not None
                pipe.close()
        for holder in self._holders.values():
            holder.wait(DEADLINE_S)
        self._holders.clear()

    def _run(self, name: str, *command: str) -> str:
        holder = self._holders[name].pid
        return _run(
            *("nsenter", f"--net=/proc/{holder}/ns/net", f"--mount=/proc/{holder}/ns/mnt"),
            *command,
        )


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


@contextlib.contextmanager
def _entered(path: Path) -> Iterator[None]:
    """Let this thread be in another network namespace for a while."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(descriptor: int) -> None:
        if libc.setns(descriptor, _NETWORK) != 0:
            raise OSError(ctypes.get_errno(), "setns")

    own, there = (os.open(one, os.O_RDONLY | os.O_CLOEXEC) for one in (_OWN, path))
    try:
        enter(there)
        try:
            yield
        finally:
            enter(own)
    finally:
        os.close(there)
        os.close(own)
