"""Name look-ups that delay neither each other nor other work nor the exit of the process.

::

      name ─▶ a look-up under way? ── yes ─▶ wait for its answer
                 ╰─ no ─▶ a thread of its own ─▶ answer ─▶ all callers that still wait
                              ╰── no answer: the callers' deadlines end their wait, not the thread

``getaddrinfo`` blocks until the system's resolver answers (tens of seconds if a name server does
not respond), and cannot be cancelled. In the event loop's thread pool a few such names would occupy
all threads, so that other names and other work wait; and closing the loop waits for them. Here each
name has a daemon thread, which an exit does not join. One look-up of a name serves all callers, so
that repeated dialling starts no second thread.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from typing import Final, NamedTuple

LOOK_UPS_MAX: Final = 256
"""Largest number of look-ups at a time in this process; a further look-up fails at once."""


class SocketAddress(NamedTuple):
    """An address family and an address, in the form that ``socket.connect`` takes."""

    family: int
    address: tuple[str | bytes | int, ...]


_Key = tuple[asyncio.AbstractEventLoop, str, int]

# Only used in the event loop's thread.
_under_way: dict[_Key, asyncio.Future[list[SocketAddress]]] = {}


async def look_up(host: str, port: int) -> list[SocketAddress]:
    """Return the addresses of ``host``, each once, in the system's order of preference.

    A numeric address is returned without a look-up. The wait can be cancelled, and is bounded
    by the caller (``asyncio.timeout``).

    Raises:
        OSError: the name does not exist, no name server answered, or too many look-ups are under
            way.
        ValueError: ``host`` is no host name.
    """
    numeric = _numeric(host, port)
    if numeric is not None:
        return [numeric]
    loop = asyncio.get_running_loop()
    key = (loop, host, port)
    answer = _under_way.get(key)
    if answer is None:
        if len(_under_way) >= LOOK_UPS_MAX:
            raise OSError(f"{len(_under_way)} name look-ups wait for an answer already")
        answer = loop.create_future()
        thread = threading.Thread(
            target=_resolve, args=(loop, host, port, answer), name=f"look-up {host}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # the system gives no more threads
            raise OSError(f"{host} cannot be looked up: {error}") from error
        _under_way[key] = answer  # after the thread has started, which may fail
        answer.add_done_callback(lambda done: _forget(key, done))
    return await asyncio.shield(answer)


def _numeric(host: str, port: int) -> SocketAddress | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if address.version == 4:
        return SocketAddress(socket.AF_INET, (host, port))
    if "%" in host:  # the interface has a number, which the system knows
        return None
    return SocketAddress(socket.AF_INET6, (host, port, 0, 0))


def _resolve(
    loop: asyncio.AbstractEventLoop,
    host: str,
    port: int,
    answer: asyncio.Future[list[SocketAddress]],
) -> None:
    """Ask the system's resolver, in a thread of its own, and pass the answer to the loop."""
    found: list[SocketAddress] = []
    failure: Exception | None = None
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        found = list(
            dict.fromkeys(SocketAddress(family, place) for family, _, _, _, place in answers)
        )
    except (OSError, UnicodeError) as error:  # UnicodeError is a ValueError: no IDNA name
        failure = error
    try:
        loop.call_soon_threadsafe(_set_result, answer, found, failure)
    except RuntimeError:  # the loop is closed: no caller waits any more
        return


def _set_result(
    answer: asyncio.Future[list[SocketAddress]],
    found: list[SocketAddress],
    failure: Exception | None,
) -> None:
    if answer.done():
        return
    if failure is None:
        answer.set_result(found)
    else:
        answer.set_exception(failure)


def _forget(key: _Key, done: asyncio.Future[list[SocketAddress]]) -> None:
    _under_way.pop(key, None)
    if not done.cancelled():
        done.exception()  # the callers may be gone: asyncio logs no "never retrieved"
