"""A port reserved for a program that listens there later, or again after a restart.

Between two starts of a program no socket listens at its port. If the port is in the range from
which the system assigns ports (for a bind of port 0, or for an outgoing connection), another
program may get it then, and keep it. So a socket is bound to the port and never listens:

========================== ===========================================
another program            while the port is reserved
========================== ===========================================
binds port 0, or connects  gets another port
binds it with SO_REUSEADDR may, and may listen, unless another does
binds it without           is refused
connects to it             is refused, unless a program listens
========================== ===========================================

This is the behaviour of Linux (socket(7), ``SO_REUSEADDR``). On other systems a socket bound with
that option keeps the program itself from binding, so there the port is chosen and not reserved.
"""

from __future__ import annotations

import socket
import sys
from types import TracebackType
from typing import Final, Self, final

_CAN_RESERVE: Final = sys.platform == "linux"


@final
class ReservedPort:
    """A TCP port that the system gives no other program until ``close``.

    Args:
        host: an address of this machine.
        port: 0 to 65535; 0 for a free port.

    Raises:
        OSError: another socket listens there, or has bound the port without SO_REUSEADDR; or the
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
        if not _CAN_RESERVE:
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
