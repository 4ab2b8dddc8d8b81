"""The HTTP application of the admin process.

===========  ===========================================================  ==================
path         response                                                     credentials
===========  ===========================================================  ==================
/            the page of operators (``page``)                             a login
/healthz     200 if the broker's event loop answers, else 503             none
/readyz      200 if the broker can serve clients, else 503; in a cluster  none
             200 for the primary only, or the role in the query
/metrics     all metrics, for Prometheus; 503 if the broker is silent     needed if configured
/api/v1/…    the JSON API (``api``)                                       needed
===========  ===========================================================  ==================

The responses of health checks are JSON. If tokens or users are configured, a request without
credentials learns which check failed, but not why: the reasons contain paths of this machine.
Health checks are answered regardless of the number of other requests.
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
from penstock.admin.broker import BrokerRequests
from penstock.admin.events import EventReader
from penstock.admin.exposition import Exposition
from penstock.admin.health import (
    ANY,
    LAG_MAX,
    PRIMARY,
    STANDBY,
    Check,
    RequiredRole,
    check_liveness,
    check_readiness,
)
from penstock.admin.json_api import api_routes, refusal
from penstock.admin.logins import HttpRefusal, Logins
from penstock.admin.page.routes import page_routes
from penstock.control.metric_requests import Health
from penstock.errors import PenstockError

ANSWERS_MAX: Final = 48
"""Requests that are answered at the same time; health checks do not count."""

LAG_DIGITS_MAX: Final = 18

HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Default headers of every response."""

_CHECKS: Final = frozenset({"/healthz", "/readyz"})


def web_app(
    broker: BrokerRequests,
    exposition: Exposition,
    events: EventReader,
    gate: Gate,
    logins: Logins | None,
    disk_free_bytes_min: int,
) -> Starlette:
    """Return the application.

    Args:
        broker: sends requests to the broker.
        exposition: encodes the broker's metrics.
        events: reads the broker's events.
        gate: authenticates requests.
        logins: logs operators in; None if neither tokens nor users are configured.
        disk_free_bytes_min: free bytes of the disk below which the broker is not ready.
    """

    async def healthz(request: Request) -> Response:
        return _checks_response(await check_liveness(broker), gate.may_see_reasons(request))

    async def readyz(request: Request) -> Response:
        try:
            required = required_role_of(request)
        except ValueError as error:
            return refusal(400, str(error))
        checks, health = await check_readiness(broker, disk_free_bytes_min, required)
        return _checks_response(checks, gate.may_see_reasons(request), health)

    async def metrics(request: Request) -> Response:
        if gate.requires_credentials:
            admitted = await gate.admit(request, modifies=False)
            if isinstance(admitted, HttpRefusal):
                return refusal(*admitted)
        try:
            found = await broker.metrics()
        except PenstockError as error:
            return refusal(503, str(error))
        text, content_type = exposition.text(found, request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            *api_routes(broker, events, gate),
            *page_routes(logins),
        ],
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=_guard(gate))],
        exception_handlers={HTTPException: _http_error_response},
    )


Next = Callable[[Request], Awaitable[Response]]


def _guard(gate: Gate) -> Callable[[Request, Next], Awaitable[Response]]:
    """Return the middleware in front of all routes.

    It refuses a ``Host`` header of another machine, limits concurrent requests to ``ANSWERS_MAX``,
    and adds ``HEADERS`` to each response.
    """
    answering = 0

    async def guard(request: Request, call_next: Next) -> Response:
        nonlocal answering
        is_check = (
            request.scope["path"] in _CHECKS
        )  # the path of the request line, not of the Host header
        if not gate.accepts_host(request.headers.get("host", "")):
            response = refusal(
                421, "the Host header names another machine; use localhost or 127.0.0.1"
            )
        elif answering >= ANSWERS_MAX and not is_check:
            response = refusal(503, "too many requests are under way", {"Retry-After": "1"})
        else:
            answering += not is_check
            try:
                response = await call_next(request)
            finally:
                answering -= not is_check
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return guard


def required_role_of(request: Request) -> RequiredRole:
    """Return the role that a readiness check requires of a member of a cluster.

    The query may have ``role`` (primary, standby or any) and ``lag`` (entries).

    Raises:
        ValueError: ``role`` is another word, or ``lag`` is not a number of entries.
    """
    role = request.query_params.get("role", PRIMARY)
    lag = request.query_params.get("lag", str(LAG_MAX))
    if role not in (PRIMARY, STANDBY, ANY):
        raise ValueError(f"role must be {PRIMARY}, {STANDBY} or {ANY}")
    if not (lag.isascii() and lag.isdigit() and len(lag) <= LAG_DIGITS_MAX):
        raise ValueError("lag must be a number of entries, 0 or more")
    return RequiredRole(role, int(lag))


def _checks_response(
    checks: Sequence[Check], with_reasons: bool, health: Health | None = None
) -> Response:
    passes = all(check.passes for check in checks)
    outcomes: list[dict[str, object]] = []
    for check in checks:
        line: dict[str, object] = {"check": check.name, "passes": check.passes}
        if with_reasons:
            line["why"] = check.why
        outcomes.append(line)
    answer: dict[str, object] = {"passes": passes, "checks": outcomes}
    if health is not None and health.role:
        answer |= {"role": health.role, "lag": health.lag}
    return JSONResponse(answer, 200 if passes else 503)


async def _http_error_response(request: Request, error: Exception) -> Response:
    """Return the response to an HTTP error of the router: an unknown path or method."""
    del request
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
