"""The admin process: an HTTP server in a process of its own, started by the broker.

    broker ◀─ control socket ──────── admin process ◀─ HTTP ─ Prometheus, a kubelet, a browser
    stream service ◀─ events ────────────╯

It does not slow the broker down: it limits its requests to the broker (``broker``), and runs at a
lower priority. If it dies, the broker starts it again.

It prints `ready http://HOST:PORT` (with TLS `https://`) when it accepts connections. It ends with
exit code 0 on SIGTERM, on SIGINT, or when its standard input ends, as it does if the parent process
died.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvicorn

from penstock.admin.access import Gate
from penstock.admin.broker import BrokerRequests
from penstock.admin.connection_timeouts import TimeoutProtocol
from penstock.admin.events import EventReader
from penstock.admin.exposition import Exposition
from penstock.admin.logins import Logins
from penstock.admin.web import web_app
from penstock.auth.admin_tokens import AdminTokens, read_admin_grants
from penstock.config.address import Address
from penstock.errors import ConfigError
from penstock.telemetry.logs import configure_logs, get_logger
from penstock.telemetry.sign_of_life import SIGN_S, give_sign
from penstock.telemetry.terminal import guard_terminals

logger = get_logger(__name__)

NICENESS: Final = 5
REQUEST_HEAD_BYTES_MAX: Final = 16_384
SHUTDOWN_S_MAX: Final = 1
_BACKLOG: Final = 64


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve HTTP until the process is stopped; return the exit code."""
    guard_terminals()
    configure_logs("warning")
    parser = argparse.ArgumentParser(prog="penstock.admin.service", description="Admin process")
    parser.add_argument("--data-dir", type=Path, required=True, help="the broker's data directory")
    parser.add_argument("--bind", default="127.0.0.1:8080", help="HOST:PORT, port 0 for a free one")
    parser.add_argument("--certificate", help="PEM file; enables HTTPS")
    parser.add_argument("--key", help="PEM file of the certificate's private key")
    parser.add_argument("--token-file", type=Path, help="file of the accepted tokens")
    parser.add_argument("--passwords", action="store_true", help="users of the broker may log in")
    parser.add_argument("--events-at", default="", help="HOST:PORT of the stream service")
    parser.add_argument("--events-tls", action="store_true", help="the stream service uses TLS")
    parser.add_argument(
        "--answer-s-max", type=float, default=2.0, help="time limit of a health check, seconds"
    )
    parser.add_argument(
        "--disk-free-bytes-min", type=int, default=0, help="free bytes of a ready broker"
    )
    parser.add_argument("--broker-pid", type=int, default=os.getppid(), help="the broker's process")
    options = parser.parse_args(arguments)
    try:
        bind = Address.parse(options.bind)
        file = options.token_file
        tokens = None if file is None else AdminTokens(read_admin_grants(file))
        listening = _listen(bind)
    except (ValueError, ConfigError) as error:
        print(f"penstock: admin process: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"penstock: the admin process cannot listen on {bind}: {error}", file=sys.stderr)
        return 2
    os.nice(NICENESS)
    broker = BrokerRequests(options.data_dir, options.answer_s_max)
    has_users: bool = options.passwords
    logins = Logins(broker, tokens, has_users) if has_users or tokens is not None else None
    app = web_app(
        broker,
        Exposition(options.broker_pid),
        EventReader(options.data_dir, options.events_at, options.events_tls),
        Gate(tokens, logins, f"[{bind.host}]" if ":" in bind.host else bind.host),
        logins,
        options.disk_free_bytes_min,
    )
    config = uvicorn.Config(
        app,
        http=TimeoutProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # warnings: any peer could fill the log with bad requests
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=SHUTDOWN_S_MAX,
        h11_max_incomplete_event_size=REQUEST_HEAD_BYTES_MAX,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
    )
    scheme = "https" if options.certificate else "http"
    try:
        config.load()
    except (OSError, ValueError) as error:
        print(f"penstock: admin process: the certificate cannot be used: {error}", file=sys.stderr)
        return 2
    return asyncio.run(
        _serve(uvicorn.Server(config), listening, f"{scheme}://{_bound_address(listening)}")
    )


async def _serve(server: uvicorn.Server, listening: socket.socket, url: str) -> int:
    loop = asyncio.get_running_loop()
    given = sys.stdin.fileno()

    def input_ended() -> None:
        if not os.read(given, 4096):
            loop.remove_reader(given)
            server.should_exit = True

    with contextlib.suppress(OSError, ValueError):  # a file or a terminal without readiness events
        loop.add_reader(given, input_ended)
    listening.listen(_BACKLOG)
    try:
        print(f"ready {url}", flush=True)
    except BrokenPipeError:  # the broker was killed meanwhile
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    signs = asyncio.create_task(_give_signs())
    await server.serve(sockets=[listening])
    signs.cancel()
    return 0


async def _give_signs() -> None:
    while True:
        give_sign()
        await asyncio.sleep(SIGN_S)


def _listen(bind: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if the protocol is given; else a response takes 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((bind.host, bind.port))
    except BaseException:
        listening.close()
        raise
    return listening


def _bound_address(listening: socket.socket) -> Address:
    host, port = listening.getsockname()[:2]
    return Address(host, port)


if __name__ == "__main__":
    sys.exit(main())
