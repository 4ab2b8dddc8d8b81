"""Requests to an HTTP service of the settings, with limits on time and length, and to no other
server.

No redirect is followed and no proxy used, because a request may contain a password. The time from
the first byte sent to the last byte received, and the length of the answer have limits.
"""

from __future__ import annotations

import http.client
import ssl
import time
import urllib.request
from typing import Final

BODY_BYTES_MAX: Final = 1_048_576


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a password is sent to the server of the settings, and to no other."""

    def redirect_request(self, *arguments: object) -> None:
        """Return None: the redirect is not followed."""
        del arguments


def opener_for(url: str, ca_file: str = "") -> urllib.request.OpenerDirector:
    """Return an opener that sends requests to a service.

    Args:
        url: the URL of the service.
        ca_file: file of the authorities for the service's certificate; empty for the system's.
    """
    handlers: list[urllib.request.BaseHandler] = [_NoRedirect(), urllib.request.ProxyHandler({})]
    if url.startswith("https:"):
        context = ssl.create_default_context(cafile=ca_file or None)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers)


def body_of(
    response: http.client.HTTPResponse, ends_s: float, bytes_max: int = BODY_BYTES_MAX
) -> bytes:
    """Read and return the body of a response.

    Args:
        response: the response.
        ends_s: the time of the monotonic clock, in seconds, until which the body must have arrived.
        bytes_max: the longest body that is accepted.

    Raises:
        ValueError: the body is too long.
        TimeoutError: the body did not arrive in time.
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
