"""The answers of the admin process to HTTP.

===========  ========================================================  =======
path         what it says                                              token
===========  ========================================================  =======
/healthz     200 while the broker's event loop turns, else 503         none
/readyz      200 while clients can be served, else 503                 none
/metrics     all metrics, for Prometheus; 503 if the broker is silent  asked
/api/v1/…    the JSON API (``api``)                                    needed
===========  ========================================================  =======

Checks are JSON. Where tokens are asked for, a request without one is told which check failed, and
not why: reasons name paths of this machine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.admin.access import Gate
from penstock.admin.api import api_routes, refusal
from penstock.admin.broker import Broker
from penstock.admin.exposition import Exposition
from penstock.admin.health import Check, alive, ready
from penstock.errors import PenstockError

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of every answer."""


def web_app(
    broker: Broker, exposition: Exposition, gate: Gate, disk_free_bytes_min: int
) -> Starlette:
    """Return the application.

    Args:
        broker: asks the broker.
        exposition: writes its metrics.
        gate: decides who may read them.
        disk_free_bytes_min: free bytes of the disk below which the broker is not ready.
    """

    async def healthz(request: Request) -> Response:
        return _checked(await alive(broker), _lets_in(gate, request))

    async def readyz(request: Request) -> Response:
        return _checked(await ready(broker, disk_free_bytes_min), _lets_in(gate, request))

    async def metrics(request: Request) -> Response:
        if not _lets_in(gate, request):
            return refusal(
                401,
                "this asks for a token: Authorization: Bearer TOKEN",
                {"WWW-Authenticate": 'Bearer realm="penstock"'},
            )
        try:
            found = await broker.metrics()
        except PenstockError as error:
            return refusal(503, str(error))
        text, content_type = exposition.text(found, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    async def guard(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        if gate.names_us(request.headers.get("host", "")):
            response = await call_next(request)
        else:
            response = refusal(
                421, "the Host header names another machine; ask for localhost, or 127.0.0.1"
            )
        response.headers.update(HEADERS)
        return response

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            *api_routes(broker, gate),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={HTTPException: _refused},
    )


def _lets_in(gate: Gate, request: Request) -> bool:
    return gate.lets_in(request.headers.get("authorization", ""))


def _checked(checks: Sequence[Check], with_reasons: bool) -> Response:
    passes = all(check.passes for check in checks)
    told: list[dict[str, object]] = []
    for check in checks:
        line: dict[str, object] = {"check": check.name, "passes": check.passes}
        if with_reasons:
            line["why"] = check.why
        told.append(line)
    return JSONResponse({"passes": passes, "checks": told}, 200 if passes else 503)


async def _refused(request: Request, error: Exception) -> Response:
    """Answer a path or a method that does not exist."""
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
