"""Two network namespaces joined by a cable that can be pulled.

::

      namespace penstock-PID-1-near          namespace penstock-PID-1-far
        lo 127.0.0.1                           lo 127.0.0.1
        cable 10.77.0.1 ════ veth pair ════ 10.77.0.2 cable
                        ╰ ``cut``: down   ``mend``: up

What is pulled loses packets, as a cable does: no end hears of it. Each end has ports of its own.
The namespaces are removed at the end, whatever happened; who runs something in them ends it first.

Where this cannot be had (``obstacle``), ``Proxied`` is the same between two brokers on loopback: a
proxy that is cut ends connections, which a cable does not.
"""

import itertools
import os
import shutil
import subprocess
from types import TracebackType
from typing import Final, Protocol, Self, final

from tests.support.broker import Address, Broker
from tests.support.deadline import DEADLINE_S
from tests.support.fault_proxy import FaultProxy

NEAR: Final = "near"
FAR: Final = "far"
_CABLE: Final = "cable"  # the interface at either end
_ADDRESSES: Final = {NEAR: "10.77.0.1", FAR: "10.77.0.2"}
_PORT: Final = 1883
_numbers = itertools.count(1)


class Link(Protocol):
    """Two places for brokers and clients, and what joins them."""

    def command(self, end: str) -> tuple[str, ...]:
        """What stands before the command of a program that runs at this end."""

    def bind(self, end: str) -> Address:
        """Where a broker listens that runs at this end."""

    def reach(self, far: Broker) -> str:
        """The URL of the started broker at the far end, for the near one."""

    def cut(self) -> None:
        """Nothing passes any more."""

    def mend(self) -> None:
        """It passes again."""


def obstacle() -> str:
    """Why this machine cannot make network namespaces; empty where it can."""
    if shutil.which("ip") is None:
        return "there is no command ip (iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with Namespaces():
            return ""
    except OSError as error:
        return str(error)


@final
class Namespaces:
    """Two namespaces and their cable; a context manager."""

    def __init__(self) -> None:
        prefix = f"penstock-{os.getpid()}-{next(_numbers)}"
        self._names = {end: f"{prefix}-{end}" for end in (NEAR, FAR)}

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

    def command(self, end: str) -> tuple[str, ...]:
        """See ``Link``; ``ip netns exec`` becomes the program, so its process is the program's."""
        return ("ip", "netns", "exec", self._names[end])

    def bind(self, end: str) -> Address:
        """See ``Link``: what runs beside the near broker reaches it with the cable pulled too."""
        return ("127.0.0.1" if end == NEAR else "0.0.0.0", _PORT)

    def reach(self, far: Broker) -> str:
        """See ``Link``."""
        return f"mqtt://{_ADDRESSES[FAR]}:{far.port}"

    def cut(self) -> None:
        """Pull the cable, at the near end."""
        _ip("-n", self._names[NEAR], "link", "set", _CABLE, "down")

    def mend(self) -> None:
        """Plug it in."""
        _ip("-n", self._names[NEAR], "link", "set", _CABLE, "up")

    def impair(self, delay_ms: int, loss_percent: float) -> bool:
        """Make the cable slow and bad, both ways; False where the kernel has no netem."""
        faults = ("delay", f"{delay_ms}ms", "loss", f"{loss_percent}%")
        try:
            for name in self._names.values():
                _run("tc", "-n", name, "qdisc", "replace", "dev", _CABLE, "root", "netem", *faults)
        except OSError:
            return False
        return True

    def _make(self) -> None:
        near, far = self._names[NEAR], self._names[FAR]
        for name in (near, far):
            _ip("netns", "add", name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip(
            *("link", "add", _CABLE, "netns", near, "type", "veth"),
            *("peer", "name", _CABLE, "netns", far),
        )
        for end, name in self._names.items():
            _ip("-n", name, "address", "add", f"{_ADDRESSES[end]}/24", "dev", _CABLE)
            _ip("-n", name, "link", "set", _CABLE, "up")
        _ip("netns", "exec", near, "true")

    def _remove(self) -> None:
        known = _ip("netns", "list").split()
        for name in self._names.values():
            if name in known:
                _ip("netns", "delete", name)  # its end of the cable goes with it


@final
class Proxied:
    """A proxy on loopback for a cable; a context manager."""

    def __init__(self) -> None:
        self._proxy: FaultProxy | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._proxy is not None:
            self._proxy.__exit__(kind, error, trace)

    def command(self, end: str) -> tuple[str, ...]:
        """See ``Link``."""
        del end
        return ()

    def bind(self, end: str) -> Address:
        """See ``Link``."""
        del end
        return ("127.0.0.1", 0)

    def reach(self, far: Broker) -> str:
        """See ``Link``."""
        assert self._proxy is None
        self._proxy = FaultProxy(far.address).__enter__()
        return f"mqtt://127.0.0.1:{self._proxy.address[1]}"

    def cut(self) -> None:
        """Nothing passes, and connections are reset."""
        assert self._proxy is not None
        self._proxy.partition()
        self._proxy.reset()

    def mend(self) -> None:
        """See ``Link``."""
        assert self._proxy is not None
        self._proxy.heal()


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    if done.returncode != 0:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
