"""A port kept for a program that listens there later, or again after it was away for a moment.

Between two starts of a program no socket listens at its port, and where the port is one that the
system hands out by itself (for a bind of port 0, or for an outgoing connection), another program
may be given it then, and keep it. So a socket is bound there and never listens:

========================== ===========================================
another program            while the port is held
========================== ===========================================
binds port 0, or goes out  is given another one
binds it with SO_REUSEADDR may, and may listen, unless another does
binds it without           is refused
connects to it             is refused, unless a program listens
========================== ===========================================

So Linux does it (socket(7), ``SO_REUSEADDR``); elsewhere a socket bound with that option is in the
way of another, so that the port is chosen and not held, as other programs do.
"""

from __future__ import annotations

import socket
import sys
from types import TracebackType
from typing import Final, Self, final

_CAN_HOLD: Final = sys.platform == "linux"


@final
class ReservedPort:
    """A TCP port that the system gives no other program until ``close``.

    Args:
        host: an address of this machine.
        port: 0 to 65535; 0 for one that is free.

    Raises: OSError: another socket listens there, or has bound it without SO_REUSEADDR; or the
    address is not of this machine.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((host, port))
        except BaseException:
            self._socket.close()
            raise
        self.host: Final = host
        self.port: Final[int] = self._socket.getsockname()[1]
        if not _CAN_HOLD:
            self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def close(self) -> None:
        """Release the port; a program that listens there already is not affected."""
        self._socket.close()
