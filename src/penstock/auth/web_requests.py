"""Requests to an HTTP service that a setting names: there and nowhere else, and bounded.

No redirect is followed and no proxy asked, for a request may carry a password. What an answer takes
in time, from the first byte sent to the last one received, and in bytes has a limit.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from typing import Final

BODY_BYTES_MAX: Final = 1_048_576


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A password goes where the settings say, and nowhere else."""

    def redirect_request(self, *told: object) -> None:
        """Follow nothing."""
        del told


def opener_for(url: str, ca_file: str = "") -> urllib.request.OpenerDirector:
    """Return what sends requests to a service.

    Args:
        url: where it is.
        ca_file: authorities that its certificate must be signed by; empty for the system's.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=ca_file or None)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def body_of(
    response: http.client.HTTPResponse, ends_s: float, bytes_max: int = BODY_BYTES_MAX
) -> bytes:
    """Return the body, which must come in time and not be too long.

    Args:
        response: whose it is.
        ends_s: when it must be there, by the monotonic clock.
        bytes_max: its longest.

    Raises:
        ValueError: it is too long.
        TimeoutError: it takes too long.
    """
    body = b""
    while True:
        piece = response.read1(65_536)
        body += piece
        if not piece:
            return body
        if len(body) > bytes_max:
            raise ValueError(f"its answer is longer than {bytes_max} bytes")
        if time.monotonic() > ends_s:
            raise TimeoutError("its answer takes too long")
