"""The program that starts Penstock quickly: it has imported its modules, and forks.

It is started by ``tests.support.processes``, which says why. A request is a message on a socket: a
JSON document with ``arguments``, ``environment`` and ``cwd``, and four descriptors: standard input,
output and error, and a socket for what is known of the process, its number first and its exit
status at its end. The program ends when the other end of its socket is closed.
"""

import contextlib
import importlib
import json
import os
import selectors
import socket
import sys
from pathlib import Path
from typing import Any

REQUEST_BYTES_MAX = 200_000
PRELOADED = ("penstock.app.serving", "penstock.cli.main", "penstock.config.load")

SURVIVE = {"jemalloc_bg_thd"}
"""Threads that begin again in a forked process."""


def other_threads() -> set[str]:
    """Return the names of the threads beside the first."""
    threads = Path("/proc/self/task").iterdir()
    return {(one / "comm").read_text().strip() for one in threads if one.name != str(os.getpid())}


def serve(control: socket.socket) -> list[str]:
    """Fork a process for each request until the other end is closed, which exits.

    Returns in a forked process: its arguments.
    """
    running: dict[int, tuple[int, socket.socket]] = {}  # by a descriptor of the process
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in running:
                    selector.unregister(key.fd)
                    tell_end(key.fd, *running.pop(key.fd))
                    continue
                request, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
                if not request:
                    sys.exit()
                *standard, said = descriptors
                assert other_threads() <= SURVIVE, "an imported module began a thread"
                pid = os.fork()
                if pid == 0:
                    control.close()
                    for process, (_, status) in running.items():
                        os.close(process)
                        status.close()
                    os.close(said)
                    return become(json.loads(request), standard)
                for descriptor in standard:
                    os.close(descriptor)
                status = socket.socket(fileno=said)
                status.send(str(pid).encode())
                process = os.pidfd_open(pid)
                running[process] = pid, status
                selector.register(process, selectors.EVENT_READ)


def tell_end(process: int, pid: int, status: socket.socket) -> None:
    """Say with which exit status a process ended."""
    os.close(process)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with status, contextlib.suppress(BrokenPipeError):  # nobody wants to know any more
        status.send(str(code).encode())


def become(request: dict[str, Any], standard: list[int]) -> list[str]:
    """Make the forked process the one that is asked for; return its arguments."""
    os.setsid()
    for own, descriptor in enumerate(standard):
        os.dup2(descriptor, own)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    arguments: list[str] = request["arguments"]
    return arguments


if __name__ == "__main__":
    del sys.path[0]  # the directory of this file, which has no modules of Penstock
    for module in PRELOADED:
        importlib.import_module(module)
    sys.argv[1:] = serve(socket.socket(fileno=int(sys.argv[1])))
    importlib.import_module("penstock.cli.main").main()
