"""Requests to an HTTP service that a setting names: to no other server, and bounded.

No redirect is followed and no proxy used, because a request may carry a password. The time of an
answer, from the first byte sent to the last one received, and its length have limits.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from typing import Final

BODY_BYTES_MAX: Final = 1_048_576


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a password goes to the server of the settings, and to no other."""

    def redirect_request(self, *arguments: object) -> None:
        """Follow nothing."""
        del arguments


def opener_for(url: str, ca_file: str = "") -> urllib.request.OpenerDirector:
    """Return an opener that sends requests to a service.

    Args:
        url: its URL.
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
        response: the response with the body.
        ends_s: when the body must be there, by the monotonic clock.
        bytes_max: the longest body that is accepted.

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
